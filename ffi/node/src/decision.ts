/** Decision: what the engine said about a call. */
import { bigintOf, numberOf } from "./exchange.js";
import { Permit } from "./permit.js";
import type { Ruling } from "./ruling.js";
import { REASONS, type Reason } from "./vocabulary.js";

/**
 * What was decided about a call, by `gate.tryAdmit()`.
 *
 * Where it is refused, the figures are those of the limit that refused; where it is admitted, those
 * of the rate limit or quota of the policy that has the least left (of the concurrency limit with
 * the fewest places, where there is no other kind).
 */
export class Decision {
  readonly #ruling: Ruling;
  #permit: Permit | null = null;

  /** @internal */
  constructor(ruling: Ruling) {
    this.#ruling = ruling;
  }

  /** Whether the call may run. */
  get admitted(): boolean {
    return this.#ruling.reason === 0;
  }

  /** Why it is refused; null where it is admitted. */
  get reason(): Reason | null {
    return REASONS[this.#ruling.reason] ?? null;
  }

  /**
   * The name of the limit that refused, or that the figures are of; null where every limit of the
   * policy is off.
   */
  get by(): string | null {
    const { engine, by } = this.#ruling;
    return engine.limitNames[by] ?? null;
  }

  /**
   * The limit that refused would admit the call in exactly so many nanoseconds, nobody else having
   * charged; those behind it in the policy were not asked. 0 where it is admitted, and where no time can
   * be known.
   */
  get retryAfterNs(): bigint {
    const { timeNs0, timeNs1 } = this.#ruling;
    return this.admitted ? 0n : bigintOf(timeNs0, timeNs1);
  }

  /**
   * What the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where all are
   * off. A bigint where that is above 2^53-1.
   */
  get limit(): number | bigint {
    const { limit0, limit1 } = this.#ruling;
    return countOf(limit0, limit1, limit0, limit1);
  }

  /** What is left of that; a bigint where `limit` is one. */
  get remaining(): number | bigint {
    const { limit0, limit1, remaining0, remaining1 } = this.#ruling;
    return countOf(limit0, limit1, remaining0, remaining1);
  }

  /**
   * All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back when
   * calls end.
   */
  get resetAfterNs(): bigint {
    const { resetAfterNs0, resetAfterNs1 } = this.#ruling;
    return bigintOf(resetAfterNs0, resetAfterNs1);
  }

  /** What the call holds until it is settled, the same object every time; null where refused. */
  get permit(): Permit | null {
    if (!this.admitted) return null;
    this.#permit ??= new Permit(this, this.#ruling);
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

/** A count beside a limit: a bigint where the limit is too great for a number. */
export function countOf(limit0: number, limit1: number, count0: number, count1: number): number | bigint {
  if (numberOf(limit0, limit1) <= Number.MAX_SAFE_INTEGER) return numberOf(count0, count1);
  return bigintOf(count0, count1);
}
