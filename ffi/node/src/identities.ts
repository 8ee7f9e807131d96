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

export class Identities {
  readonly #engine: Engine;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Writes the identities of a call; none is absent, all zero. */
  write(caller: unknown, tool: unknown): void {
    const words = this.#engine.words;
    // The tool comes first: making the key of a long identity writes to where the caller's is.
    if (tool === undefined || tool === null) {
      words[Word.ToolSize] = 0;
      words[Word.Tool] = words[Word.Tool + 1] = words[Word.Tool + 2] = words[Word.Tool + 3] = 0;
    } else {
      words[Word.ToolSize] = this.#write(tool, "tool", "tool", Word.Tool, Size.ToolText);
    }
    if (caller === undefined || caller === null) {
      words[Word.CallerSize] = 0;
      words[Word.Caller] = words[Word.Caller + 1] = words[Word.Caller + 2] = words[Word.Caller + 3] = 0;
    } else {
      words[Word.CallerSize] = this.#write(caller, "caller", "caller", Word.Caller, Size.CallerText);
    }
  }

  /** Makes keys of those that were written as text. */
  finish(): void {
    const { words } = this.#engine;
    if (words[Word.CallerSize] === 0 && words[Word.ToolSize] === 0) return;
    this.#engine.seat.texts();
    const status = words[Word.Status] as Status;
    if (status !== Status.Ok) this.#engine.fail(status);
  }

  /** The key of an identity. */
  key(identity: unknown, domain: Domain): Key {
    if (typeof identity !== "string" && !isUint8Array(identity)) {
      throw new TypeError(`identity must be a string or a Uint8Array, not ${kindOf(identity)}`);
    }
    this.#hash(bytesOf(identity, "identity"), domain);
    return new Key(this.#engine, domain, this.#engine.words, Word.Caller);
  }

  /** Writes one identity; returns how many bytes of text it is, 0 where it is a key. */
  #write(value: unknown, domain: Domain, name: string, at: number, textAt: number): number {
    if (value instanceof Key) {
      if (!value.serves(this.#engine, domain)) throw unfit(value, this.#engine, name, domain);
      value.put(this.#engine.words, at);
      return 0;
    }
    if (typeof value === "string") {
      const size = this.#writeAscii(value, textAt);
      if (size > 0) return size;
    } else if (!isUint8Array(value)) {
      throw new TypeError(`${name} must be a string, a Uint8Array or a Key, not ${kindOf(value)}`);
    }
    const bytes = bytesOf(value, name);
    if (readLength.call(bytes) <= Size.TextBytes) {
      this.#engine.bytes.set(bytes, textAt);
      return readLength.call(bytes);
    }
    this.#hash(bytes, domain);
    this.#engine.words.copyWithin(at, Word.Caller, Word.Caller + 4);
    return 0;
  }

  /** Writes a short text of ASCII; returns its size, or 0 where it is none, or empty. */
  #writeAscii(text: string, textAt: number): number {
    const size = text.length;
    if (size > Size.TextBytes) return 0;
    const bytes = this.#engine.bytes;
    for (let n = 0; n < size; n++) {
      const code = text.charCodeAt(n);
      if (code > 127) return 0;
      bytes[textAt + n] = code;
    }
    return size;
  }

  #hash(bytes: Uint8Array, domain: Domain): void {
    // A copy, since its memory may be shared with another thread.
    this.#engine.seat.key(new Uint8Array(bytes), DOMAINS.indexOf(domain) + 1);
    const status = this.#engine.words[Word.Status] as Status;
    if (status !== Status.Ok) this.#engine.fail(status);
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

function unfit(key: Key, engine: Engine, name: string, domain: Domain): CallError {
  if (!key.isOf(engine)) return new CallError(`${name}: the key is one of another gate`, name);
  const text =
    domain === "caller"
      ? "the key is one of a tool, where a caller's is needed"
      : "the key is one of a caller, where a tool's is needed";
  return new CallError(`${name}: ${text}`, name);
}
