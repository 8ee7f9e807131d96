/** Identities: who calls and what is called, on their way into the exchange. */
import { isText } from "./config.js";
import type { Engine } from "./engine.js";
import { CallError } from "./errors.js";
import { Size, Status, Word } from "./exchange.js";
import { Key } from "./key.js";
import { kindOf } from "./text.js";
import { DOMAINS, type Domain } from "./vocabulary.js";

/** An identity: a string (taken as UTF-8), bytes, or a key of the gate. */
export type Identity = string | Uint8Array | Key;

const encoder = new TextEncoder();
const typedArray = Object.getPrototypeOf(Uint8Array.prototype) as object;
/** The getters of all typed arrays: what a value is and holds, without running code of its own. */
const readTag = getter(Symbol.toStringTag);
const readLength = getter("length") as () => number;

function getter(name: string | symbol): () => unknown {
  return Object.getOwnPropertyDescriptor(typedArray, name)?.get as () => unknown;
}

/** Whether a value is a Uint8Array: also a Buffer, and one of another realm. */
export function isUint8Array(value: unknown): value is Uint8Array {
  return ArrayBuffer.isView(value) && readTag.call(value) === "Uint8Array";
}

/** The callers of a gate, or its tools: what makes and takes their keys. */
export class Identities {
  readonly words: Int32Array;
  /** Where in the exchange one is: its key, its text and how long that is. */
  readonly at: number;
  private readonly sizeAt: number;
  private readonly textAt: number;

  constructor(
    readonly engine: Engine,
    readonly domain: Domain,
  ) {
    this.words = engine.words;
    const isCaller = domain === "caller";
    this.at = isCaller ? Word.Caller : Word.Tool;
    this.sizeAt = isCaller ? Word.CallerSize : Word.ToolSize;
    this.textAt = isCaller ? Size.CallerText : Size.ToolText;
  }

  /**
   * Writes one to the exchange: as a key, all zero where there is none, or as text, of which the
   * engine makes the key. A tool comes before the caller: for a long one, the caller's place is used.
   */
  write(identity: unknown): void {
    this.words[this.sizeAt] = 0;
    if (identity instanceof Key) identity.write(this);
    else this.writeOther(identity);
  }

  private writeOther(identity: unknown): void {
    const { words, at } = this;
    if (identity === undefined || identity === null) {
      words[at] = words[at + 1] = words[at + 2] = words[at + 3] = 0;
      return;
    }
    if (typeof identity === "string") {
      const size = this.writeAscii(identity);
      words[this.sizeAt] = size;
      if (size > 0) return;
    } else if (!isUint8Array(identity)) {
      throw new TypeError(`${this.domain} must be a string, a Uint8Array or a Key, not ${kindOf(identity)}`);
    }
    const bytes = bytesOf(identity, this.domain);
    const size = readLength.call(bytes);
    if (size <= Size.TextBytes) {
      this.engine.bytes.set(bytes, this.textAt);
      words[this.sizeAt] = size;
    } else {
      this.hash(bytes);
      words.copyWithin(at, Word.Caller, Word.Caller + 4);
    }
  }

  /** Writes a short text of ASCII; returns its size, or 0 where it is none, or empty. */
  private writeAscii(text: string): number {
    const size = text.length;
    if (size > Size.TextBytes) return 0;
    const { bytes } = this.engine;
    const textAt = this.textAt;
    for (let n = 0; n < size; n++) {
      const code = text.charCodeAt(n);
      if (code > 127) return 0;
      bytes[textAt + n] = code;
    }
    return size;
  }

  /** The key of an identity. */
  key(identity: unknown): Key {
    if (typeof identity !== "string" && !isUint8Array(identity)) {
      throw new TypeError(`identity must be a string or a Uint8Array, not ${kindOf(identity)}`);
    }
    this.hash(bytesOf(identity, "identity"));
    return new Key(this, this.words, Word.Caller);
  }

  /** Makes the key of an identity of any length, in the caller's place. */
  private hash(bytes: Uint8Array): void {
    // A copy, since its memory may be shared with another thread.
    this.engine.seat.key(new Uint8Array(bytes), DOMAINS.indexOf(this.domain) + 1);
    const status = this.words[Word.Status] as Status;
    if (status !== Status.Ok) this.engine.fail(status);
  }
}

/** The bytes of an identity: 1 or more. */
function bytesOf(value: string | Uint8Array, name: string): Uint8Array {
  if (typeof value === "string" && !isText(value)) {
    throw new CallError(`${name}: the identity can't be encoded as UTF-8`, name);
  }
  const bytes = typeof value === "string" ? encoder.encode(value) : value;
  if (readLength.call(bytes) > 0) return bytes;
  const text = "an empty identity would be one that all strangers share: it must have 1 or more bytes";
  throw new CallError(`${name}: ${text} (undefined: there is no caller, or no tool)`, name);
}
