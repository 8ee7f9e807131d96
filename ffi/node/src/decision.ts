/** Decision: what the engine said about a call. */
import type { Engine, Terms } from "./engine.js";
import { bigintOf, InDecision, numberOf, Word } from "./exchange.js";
import { Permit } from "./permit.js";
import { REASONS, type Reason } from "./vocabulary.js";

/**
 * What was decided about a call, by `gate.tryAdmit()`.
 *
 * Where it is refused, the figures are those of the limit that refused; where it is admitted, those
 * of the rate limit or quota of the policy that has the least left (of the concurrency limit with
 * the fewest places, where there is no other kind).
 */
export class Decision {
  readonly #engine: Engine;
  /** The engine's decision, and behind it the words of its permit, if it has one. */
  readonly #words: readonly number[];
  readonly #terms: Terms | null;
  #permit: Permit | null = null;

  /** @internal */
  constructor(engine: Engine, words: readonly number[], terms: Terms | null) {
    this.#engine = engine;
    this.#words = words;
    this.#terms = terms;
  }

  /** Whether the call may run. */
  get admitted(): boolean {
    return this.#words[InDecision.Reason] === 0;
  }

  /** Why it is refused; null where it is admitted. */
  get reason(): Reason | null {
    return REASONS[this.#words[InDecision.Reason] as number] ?? null;
  }

  /**
   * The name of the limit that refused, or that the figures are of; null where every limit of the
   * policy is off.
   */
  get by(): string | null {
    return this.#engine.limitNames[this.#words[InDecision.By] as number] ?? null;
  }

  /**
   * The call would be admitted in exactly so many nanoseconds, nobody else having charged. 0 where
   * it is admitted, and where no time can be known.
   */
  get retryAfterNs(): bigint {
    return bigintOf(this.#words, InDecision.RetryAfterNs);
  }

  /**
   * What the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where all are
   * off. A bigint where that is above 2^53-1.
   */
  get limit(): number | bigint {
    return countOf(this.#words, InDecision.Limit);
  }

  /** What is left of that; a bigint where `limit` is one. */
  get remaining(): number | bigint {
    return countOf(this.#words, InDecision.Remaining);
  }

  /**
   * All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back when
   * calls end.
   */
  get resetAfterNs(): bigint {
    return bigintOf(this.#words, InDecision.ResetAfterNs);
  }

  /** What the call holds until it is settled, the same object every time; null where refused. */
  get permit(): Permit | null {
    if (!this.admitted) return null;
    this.#permit ??= new Permit(this.#engine, this, this.#words, this.#terms);
    return this.#permit;
  }

  /** As a log would have it: nanoseconds are strings, since JSON has no exact ones. */
  toJSON(): object {
    const { admitted, reason, by, limit, remaining } = this;
    const [retryAfterNs, resetAfterNs] = [String(this.retryAfterNs), String(this.resetAfterNs)];
    const counts = { limit: jsonOf(limit), remaining: jsonOf(remaining) };
    return { admitted, reason, by, retryAfterNs, ...counts, resetAfterNs };
  }

  /** For people. */
  toString(): string {
    if (this.admitted) return `<callgate.Decision admitted, '${this.by}': ${this.remaining} of ${this.limit} left>`;
    return `<callgate.Decision refused by '${this.by}': ${this.reason}, retryAfterNs=${this.retryAfterNs}>`;
  }

  /** As `toString`. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

function jsonOf(count: number | bigint): number | string {
  return typeof count === "bigint" ? String(count) : count;
}

/** A count of a decision: all of them are bigints where its limit is too great for a number. */
export function countOf(words: readonly number[], at: number): number | bigint {
  if (numberOf(words, InDecision.Limit) <= Number.MAX_SAFE_INTEGER) return numberOf(words, at);
  return bigintOf(words, at);
}

/**
 * Copies a decision and the words of its permit. Written out where the permit is one of a call
 * under rate limits, since a loop costs a third of a decision there.
 */
// prettier-ignore
export function decisionWords(w: Int32Array, at: number, permitAt: number): number[] {
  const count = w[at + InDecision.PermitWords] as number;
  if (count === 18) {
    const p = permitAt;
    return [
      w[at]!, w[at + 1]!, w[at + 2]!, w[at + 3]!, w[at + 4]!, w[at + 5]!,
      w[at + 6]!, w[at + 7]!, w[at + 8]!, w[at + 9]!, w[at + 10]!, w[at + 11]!,
      w[p]!, w[p + 1]!, w[p + 2]!, w[p + 3]!, w[p + 4]!, w[p + 5]!, w[p + 6]!, w[p + 7]!, w[p + 8]!, w[p + 9]!,
      w[p + 10]!, w[p + 11]!, w[p + 12]!, w[p + 13]!, w[p + 14]!, w[p + 15]!, w[p + 16]!, w[p + 17]!,
    ];
  }
  const copy = [
    w[at]!, w[at + 1]!, w[at + 2]!, w[at + 3]!, w[at + 4]!, w[at + 5]!,
    w[at + 6]!, w[at + 7]!, w[at + 8]!, w[at + 9]!, w[at + 10]!, w[at + 11]!,
  ];
  for (let n = 0; n < count; n++) copy.push(w[permitAt + n]!);
  return copy;
}

/** The decision in the exchange. */
export function exchangedDecision(engine: Engine, terms: Terms | null): Decision {
  return new Decision(engine, decisionWords(engine.words, Word.Decision, Word.Permit), terms);
}
