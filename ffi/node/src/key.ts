/** Key: the digest of an identity, made once and used for many calls. */
import type { Engine } from "./engine.js";
import type { Domain } from "./vocabulary.js";

/**
 * A prepared identity, made by `gate.key()`: saves hashing it for every call.
 *
 * It is a keyed digest: the identity can't be read from it. It serves the gate that made it, in the
 * domain it was made for. It can't be sent to another thread: make it there.
 */
export class Key {
  readonly #engine: Engine;
  readonly #domain: Domain;
  readonly #a: number;
  readonly #b: number;
  readonly #c: number;
  readonly #d: number;

  /** @internal */
  constructor(engine: Engine, domain: Domain, words: Int32Array, at: number) {
    this.#engine = engine;
    this.#domain = domain;
    this.#a = words[at] as number;
    this.#b = words[at + 1] as number;
    this.#c = words[at + 2] as number;
    this.#d = words[at + 3] as number;
  }

  /** What it stands for. */
  get domain(): Domain {
    return this.#domain;
  }

  /** Whether it is the same key: of the same identity, domain and gate. */
  equals(other: unknown): boolean {
    return (
      other instanceof Key &&
      this.#engine === other.#engine &&
      this.#domain === other.#domain &&
      this.#a === other.#a &&
      this.#b === other.#b &&
      this.#c === other.#c &&
      this.#d === other.#d
    );
  }

  /**
   * Whether it serves that gate in that domain.
   * @internal
   */
  serves(engine: Engine, domain: Domain): boolean {
    return this.#engine === engine && this.#domain === domain;
  }

  /** @internal */
  isOf(engine: Engine): boolean {
    return this.#engine === engine;
  }

  /** @internal */
  put(words: Int32Array, at: number): void {
    words[at] = this.#a;
    words[at + 1] = this.#b;
    words[at + 2] = this.#c;
    words[at + 3] = this.#d;
  }

  /** Eight digits tell keys apart in a log, and tell nothing of the identity. */
  toString(): string {
    return `<callgate.Key of a ${this.#domain}, ${(this.#a >>> 0).toString(16).padStart(8, "0")}>`;
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
