/** What every middleware takes, whatever it stands in front of. */

import type { Decision, Seeder } from "../index.js";
import type { CallerFunction } from "./callers.js";
import type { Choices } from "./choice.js";

/** Answers a time in nanoseconds. */
export type Clock = () => number | bigint;

/**
 * One decision, for whoever measures: handed to the `observe` hook once per metered message.
 *
 * Neither `gateNs` nor `source` belongs in a metric's label.
 */
export interface Observation<Source = unknown> {
  /** The policy that refused, or the last one charged. */
  readonly policy: string;
  /** How many calls the message holds. */
  readonly cost: number;
  readonly decision: Decision;
  /** The time spent in callgate for the message (reading it, finding the caller, deciding), in ns. */
  readonly gateNs: number;
  /** What a caller function gets. */
  readonly source: Source;
}

/** What every middleware takes. */
export interface MeterOptions<Source = unknown> extends Choices {
  /** Answers who calls; see `Identity`. By default it is the user of an API key, or the SDKs' verified
   * access token. On stdio there is neither: such a caller is `anonymous`. */
  readonly caller?: CallerFunction<Source>;
  /** By tool, the policy that replaces the one of the caller's class for it, such as
   * `{ search: "expensive" }`; or by class, `{ search: { authenticated: "expensive" } }`. Under a policy
   * for every class, callers whom nobody has verified count as one. A batch is admitted under all the
   * policies that it needs, or refused whole. */
  readonly tools?: Choices["tools"];
  /** The same for methods besides `tools/call`, which cost nothing otherwise:
   * `{ "tasks/get": "polling" }`. */
  readonly methods?: Choices["methods"];
  /** The same for calls that go on with one of several rounds (they carry `inputResponses`, which any
   * client can send). By default they cost like any call. */
  readonly continuations?: Choices["continuations"];
  /** Units that a call sets aside in the quotas of its policy, 0 or more; when it ends, what it has used
   * takes their place, see `reportUsage`. 0 by default. */
  readonly reserve?: number | bigint;
  /** A `Seeder` on the same gate, which asks a ledger what a caller has used when a quota of
   * `mustSeed: true` wants to know. Not for callers that are given as a `Key`. */
  readonly seeder?: Seeder;
  /** The key of a result's `_meta` under which it says how many units were used, such as
   * `"callgate/used"`. That is taken in place of what the tool reported. */
  readonly usageMeta?: string;
  /** What an internal error does to the call: `"admit"` (the default) or `"refuse"`. It is counted in the
   * gate's `internalErrors` either way. */
  readonly onError?: "admit" | "refuse";
  /** Answers the time in ns, for tests; by default the engine's own clock. */
  readonly clock?: Clock;
  /** Goes with `clock`; answers the time since 1970 in ns, for quotas. By default the system's. */
  readonly wallClock?: Clock;
  /** Called with an `Observation` after each decision. */
  readonly observe?: (observation: Observation<Source>) => void;
}
