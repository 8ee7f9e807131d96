/** Key: the digest of an identity, made once and used for many calls. */
import { CallError } from "./errors.js";
import type { Identities } from "./identities.js";
import type { Domain } from "./vocabulary.js";

/**
 * A prepared identity, made by `gate.key()`: saves hashing it for every call.
 *
 * It is a keyed digest: the identity can't be read from it. It serves the gate that made it, in the
 * domain it was made for. It can't be sent to another thread: make it there.
 */
export class Key {
  /** The callers or the tools of its gate. */
  readonly #of: Identities;
  readonly #a: number;
  readonly #b: number;
  readonly #c: number;
  readonly #d: number;

  /** @internal */
  constructor(of: Identities, words: Int32Array, at: number) {
    this.#of = of;
    this.#a = words[at] as number;
    this.#b = words[at + 1] as number;
    this.#c = words[at + 2] as number;
    this.#d = words[at + 3] as number;
  }

  /** What it stands for. */
  get domain(): Domain {
    return this.#of.domain;
  }

  /** Whether it is the same key: of the same identity, domain and gate. */
  equals(other: unknown): boolean {
    return (
      other instanceof Key &&
      this.#of === other.#of &&
      this.#a === other.#a &&
      this.#b === other.#b &&
      this.#c === other.#c &&
      this.#d === other.#d
    );
  }

  /**
   * Writes it to the exchange as one of those. Throws CallError where it is none.
   * @internal
   */
  write(to: Identities): void {
    if (this.#of !== to) throw misfit(this.#of, to);
    const { words, at } = to;
    // `| 0`: V8 tracks no type for a private field, and would convert the number by way of a double.
    words[at] = this.#a | 0;
    words[at + 1] = this.#b | 0;
    words[at + 2] = this.#c | 0;
    words[at + 3] = this.#d | 0;
  }

  /** Eight digits tell keys apart in a log, and tell nothing of the identity. */
  toString(): string {
    return `<callgate.Key of a ${this.domain}, ${(this.#a >>> 0).toString(16).padStart(8, "0")}>`;
  }

  /** As `toString`. */
  toJSON(): string {
    return this.toString();
  }

  /** As `toString`. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

function misfit(of: Identities, to: Identities): CallError {
  const { domain } = to;
  if (of.engine !== to.engine) return new CallError(`${domain}: the key is one of another gate`, domain);
  const text =
    domain === "caller"
      ? "the key is one of a tool, where a caller's is needed"
      : "the key is one of a caller, where a tool's is needed";
  return new CallError(`${domain}: ${text}`, domain);
}
