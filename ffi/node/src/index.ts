/**
 * callgate decides, in-process and in well under a microsecond, whether a tool call may run.
 *
 *     import { ConcurrencyLimit, Gate, Quota, RateLimit, Refused } from "callgate";
 *
 *     const gate = new Gate({
 *       limits: {
 *         caller: new RateLimit(30, { per: "1s", burst: 60 }),
 *         server: new ConcurrencyLimit(3),
 *         tokens: new Quota(50_000, { per: "1d", tz: "Asia/Shanghai" }),
 *       },
 *       policies: { authenticated: [["caller", "caller"], ["tokens", "caller"], ["server", "shared"]] },
 *     });
 *     const answer = await gate.run("authenticated", { caller: "user:1001" }, async (permit) => {
 *       const { text, tokens } = await work();
 *       permit.used(tokens);
 *       return text;
 *     });                                                         // rejects with Refused
 *
 *     const decision = gate.tryAdmit("authenticated", { caller: "user:1001" });   // never throws on a refusal
 *     if (!decision.admitted) console.log(`try again in ${decision.retryAfterNs} ns`);
 *
 * `callgate/mcp` puts a gate in front of an MCP server; `callgate/prometheus` hands its metrics to
 * prom-client.
 */
import { addon } from "./addon.js";

export type { BatchCall, Call, Clock, Settlement } from "./call.js";
export type { Named, Rule } from "./config.js";
export { Decision } from "./decision.js";
export { CallError, CallgateError, ConfigError, Refused } from "./errors.js";
export { Gate, type GateOptions } from "./gate.js";
export type { GateHandle } from "./handle.js";
export type { Identity } from "./identities.js";
export { Key } from "./key.js";
export {
  ConcurrencyLimit,
  type ConcurrencyLimitOptions,
  type Limit,
  OFF,
  Off,
  Quota,
  type QuotaOptions,
  RateLimit,
  type RateLimitOptions,
} from "./limits.js";
export { METRICS_CONTENT_TYPE, metricsHandler, metricsText } from "./metrics.js";
export { Permit } from "./permit.js";
export type { DecisionCount, Guards, Report, Stats } from "./reports.js";
export { type Load, type LoadedIdentity, type SeedableCall, Seeder, type SeederOptions } from "./seeder.js";
export type { Domain, Duration, Integer, Outcome, Reason, Scope, Settled } from "./vocabulary.js";

/** The version of this package, and of the engine in it. */
export const version: string = addon.version;

/** Whether this machine changes 128 bits at once; else the engine takes a lock in its place. */
export const isLockFree: boolean = addon.isLockFree;
