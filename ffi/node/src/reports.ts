/** What a gate tells about itself. */
import type { Reason } from "./vocabulary.js";

/** What one limit of a policy would say to a call. */
export interface Report {
  /** The limit's name. */
  readonly limitName: string;
  /** Why it would refuse; null where it would admit. */
  readonly reason: Reason | null;
  /** It would admit in so many nanoseconds; 0 where it does, and where no time can be known. */
  readonly retryAfterNs: bigint;
  /**
   * What the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where it is
   * off. A bigint where that is above 2^53-1.
   */
  readonly limit: number | bigint;
  /** What is left of that: before the call where it would be refused, after it where admitted. */
  readonly remaining: number | bigint;
  /**
   * All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back when
   * calls end.
   */
  readonly resetAfterNs: bigint;
}

/**
 * What a concurrency limit looks like now, over all its states (one for each caller, say), and what
 * was counted since the gate was made; of all threads that share the gate.
 */
export interface Guards {
  /** How many calls hold a place. */
  readonly inFlight: number;
  /** How many breakers are open. */
  readonly open: number;
  /** How many breakers are half-open. */
  readonly halfOpen: number;
  /** How often a breaker opened. */
  readonly trips: number;
  /** How many permits were settled after their lease. */
  readonly lapsed: number;
}

/** How many calls were decided so. */
export interface DecisionCount {
  /** The policy. */
  readonly policy: string;
  /** The limit that refused; null of the admitted. */
  readonly limit: string | null;
  /** Why; null of the admitted. */
  readonly reason: Reason | null;
  /** How many. */
  readonly count: number;
}

/**
 * What a gate's table holds now, and what was decided since the gate was made; of all threads that
 * share it.
 */
export interface Stats {
  /** All slots of the table. */
  readonly slots: number;
  /** Slots with a state that is not at rest. */
  readonly live: number;
  /** Slots with a state at rest, free for anybody. */
  readonly atRest: number;
  /** Slots that a thread is about to use. */
  readonly claimed: number;
  /** Slots that hold nothing. */
  readonly empty: number;
  /** What was decided: the admitted of each policy, and the refused of each limit and reason. */
  readonly decisions: readonly DecisionCount[];
}
