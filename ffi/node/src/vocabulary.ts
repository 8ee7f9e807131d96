/** The words of callgate, as types: the same in every language that it is used from. */

/** What a key stands for. */
export type Domain = "caller" | "tool";

/** Whose state a limit keeps: one for each caller, for each tool, for each pair of both, or one. */
export type Scope = "caller" | "tool" | "caller_tool" | "shared";

/** Why a call is refused. */
export type Reason =
  | "rate"
  | "concurrency"
  | "breaker_open"
  | "quota"
  | "unseeded"
  | "table_full"
  | "never";

/**
 * What became of a call. "abandoned": it ran, but its client went away. "cancelled": it never ran,
 * so that its charges are given back.
 */
export type Outcome = "success" | "failure" | "abandoned" | "cancelled";

/**
 * What a settlement comes to. "lapsed": it came after the lease of the call, whose place had been
 * taken for lost; of that limit nothing was changed.
 */
export type Settled = "ok" | "already_settled" | "lapsed";

/** A whole number: a number up to 2^53-1, or a bigint. */
export type Integer = number | bigint;

/** A duration: a string such as "250ms", "1s", "5m", "2h", "1d", "1w", or whole nanoseconds. */
export type Duration = string | number | bigint;

/** By the engine's CALLGATE_REASON_*. */
export const REASONS: readonly (Reason | null)[] = [
  null,
  "rate",
  "concurrency",
  "breaker_open",
  "quota",
  "unseeded",
  "table_full",
  "never",
];

/** By the engine's CALLGATE_OUTCOME_*, from 1 on. */
export const OUTCOMES: readonly Outcome[] = ["success", "failure", "abandoned", "cancelled"];

/** By the engine's CALLGATE_SCOPE_*, from 1 on. */
export const SCOPES: readonly Scope[] = ["caller", "tool", "caller_tool", "shared"];

/** By the engine's CALLGATE_DOMAIN_*, from 1 on. */
export const DOMAINS: readonly Domain[] = ["caller", "tool"];
