/** What a program says of a call. */
import type { Identity } from "./identities.js";
import type { Integer } from "./vocabulary.js";

/** A clock of the program's own, for tests. Don't mix clocks on one gate. */
export interface Clock {
  /**
   * Nanoseconds of a clock of yours, below 2^61; by default the system's (on Linux the one that
   * goes on while the machine sleeps).
   */
  readonly nowNs?: Integer | undefined;
  /** Nanoseconds since the Unix epoch, beside `nowNs`; needed there where the gate has a quota. */
  readonly unixNs?: Integer | undefined;
}

/** A call to be decided. */
export interface Call extends Clock {
  /** Who calls; needed where a limit of the policy is kept by caller. Never empty. */
  readonly caller?: Identity | null | undefined;
  /** What is called, likewise. */
  readonly tool?: Identity | null | undefined;
  /**
   * Tokens to take from each rate limit, 0 to 2^64-1: 1 for a call, the default, n for a batch of
   * n; 0 asks whether there is debt to wait for, and takes nothing.
   */
  readonly cost?: Integer | undefined;
  /** Units to set aside in each quota of the policy, 0 to 2^64-1; 0 by default. */
  readonly reserve?: Integer | undefined;
}

/** A call of a batch. */
export interface BatchCall extends Omit<Call, keyof Clock> {
  /** The name of one of the gate's policies. */
  readonly policy: string;
}

/** How a call is settled. */
export interface Settlement extends Clock {
  /**
   * The units to charge to quotas, in place of what was reserved, 0 to 2^64-1. Of an abandoned call
   * with 0 the reserve stays.
   */
  readonly used?: Integer | undefined;
}
