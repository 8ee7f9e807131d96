/** A gate from the environment: sensible without any variable. */

import { ConcurrencyLimit, ConfigError, Gate, type GateOptions, type Limit, OFF, Quota, RateLimit, type Rule } from "../index.js";
import { ANONYMOUS, AUTHENTICATED, FORWARDED_BEARER } from "./callers.js";
import { logger } from "./log.js";

export type Environment = Readonly<Record<string, string | undefined>>;

const RATE = "MCP_RATE_LIMIT";
const BURST = "MCP_RATE_LIMIT_BURST";
const ANONYMOUS_RATE = "MCP_RATE_LIMIT_ANONYMOUS";
const PLACES = "MCP_MAX_CONCURRENCY";
const TRIP = "MCP_BREAKER_TRIP_THRESHOLD";
const COOLDOWN = "MCP_BREAKER_COOLDOWN_SECONDS";
const TOKENS = "MCP_DAILY_TOKEN_LIMIT";

const DEFAULT_RATE = 30n;
const DEFAULT_ANONYMOUS_RATE = 100n;
const DEFAULT_PLACES = 3n;
const DEFAULT_TRIP = 5n;
const DEFAULT_COOLDOWN_S = 30n;
const DEFAULT_TOKENS = 50_000n;

const LEASE = "2h";
const NS_PER_S = 1_000_000_000n;

/**
 * A gate with the policies `authenticated`, `anonymous` and `forwarded-bearer`.
 *
 * | variable                       | default  | meaning                                             |
 * | ------------------------------ | -------- | --------------------------------------------------- |
 * | `MCP_RATE_LIMIT`               | 30       | tool calls a second, per caller; 0 switches the     |
 * |                                |          | rate limits off, for every class of callers         |
 * | `MCP_RATE_LIMIT_BURST`         | 2 x rate | tool calls at once after a rest, per caller         |
 * | `MCP_RATE_LIMIT_ANONYMOUS`     | 100      | tool calls a second of all anonymous callers        |
 * |                                |          | together (burst 2 x); 0 is unlimited                |
 * | `MCP_MAX_CONCURRENCY`          | 3        | tool calls that may run at once, of all callers;    |
 * |                                |          | 0 is unlimited                                      |
 * | `MCP_BREAKER_TRIP_THRESHOLD`   | 5        | so many calls in a row for which there is no place  |
 * |                                |          | open the breaker; 0: they never do                  |
 * | `MCP_BREAKER_COOLDOWN_SECONDS` | 30       | for how long it then refuses every call             |
 * | `MCP_DAILY_TOKEN_LIMIT`        | 50000    | units a day (UTC) that a caller's tools may report, |
 * |                                |          | see `reportUsage`; 0 and less switch it off         |
 * | `MCP_API_KEYS`                 | none     | `key:user,key2:user2`, see `APIKeys`                |
 * | `MCP_AUTH_ENABLED`             | see keys | whether a key is demanded: true where there are any |
 *
 * What cannot be parsed, or is out of range, keeps its default, with a warning in the log at start.
 * The limits that come of it are logged as one line of information.
 *
 * `environment` is by default `process.env`. `options` go to `Gate` as they are (`capacity`, …).
 */
export function gateFromEnv(
  environment: Environment = process.env,
  options: Omit<GateOptions, "limits" | "policies"> = {},
): Gate {
  const all: Record<string, Limit> = {
    ...rates(environment),
    tokens: tokens(environment),
    server: server(environment),
  };
  // In this order: a bearer that nobody verified has a bucket of its own only once the shared
  // allowance admits it, so that rotating bearers mints no buckets beyond that allowance. Where
  // anonymous calls are unlimited so are unverified ones: a limit that a caller escapes by leaving out
  // a header is none, and buckets for such callers would only fill the table. They have no daily quota
  // for the same reason.
  const forwarded: Rule[] = [["forwarded", "shared"], ["caller", "caller"]];
  const policies: Record<string, Rule[]> = {
    [AUTHENTICATED]: [["caller", "caller"], ["tokens", "caller"]],
    [ANONYMOUS]: [["anonymous", "shared"]],
    [FORWARDED_BEARER]: all.anonymous === OFF ? [["anonymous", "shared"]] : forwarded,
  };
  // Last, so that no place is taken by a call that another limit refuses.
  for (const rules of Object.values(policies)) rules.push(["server", "shared"]);
  const used = new Set(Object.values(policies).flatMap((rules) => rules.map(([name]) => name)));
  const limits = Object.fromEntries(Object.entries(all).filter(([name]) => used.has(name)));
  logger.info(`effective limits: ${Object.entries(limits).map(inWords).join("; ")}`);
  return new Gate({ ...options, limits, policies });
}

let theDefaultGate: Gate | undefined;

/** The process's one gate from `process.env`: what every middleware uses that is given none. One gate,
 * so that a call which passes two middlewares on its way is charged once. */
export function defaultGate(): Gate {
  theDefaultGate ??= gateFromEnv();
  return theDefaultGate;
}

function rates(environment: Environment): Record<string, Limit> {
  const rate = value(environment, RATE, DEFAULT_RATE, isRate);
  if (rate === 0n) {
    for (const name of [BURST, ANONYMOUS_RATE]) {
      if (environment[name] !== undefined) {
        logger.warn(`${name} is set, but ${RATE}=0 switches rate limiting off`);
      }
    }
    return { caller: OFF, anonymous: OFF, forwarded: OFF };
  }
  const burst = value(environment, BURST, 2n * rate, (units) => isBucket(rate, units));
  const anonymous = value(environment, ANONYMOUS_RATE, DEFAULT_ANONYMOUS_RATE, isRate);
  const shared = anonymous === 0n ? OFF : bucket(anonymous, 2n * anonymous);
  return { caller: bucket(rate, burst), anonymous: shared, forwarded: shared };
}

function server(environment: Environment): Limit {
  const places = value(environment, PLACES, DEFAULT_PLACES, (n) => n === 0n || isMade(() => guard(n, 0n, 1n)));
  const trip = value(environment, TRIP, DEFAULT_TRIP, (n) => isMade(() => guard(1n, n, 1n)));
  const cooldownS = value(environment, COOLDOWN, DEFAULT_COOLDOWN_S, (n) => isMade(() => guard(1n, 1n, n)));
  return places === 0n ? OFF : guard(places, trip, cooldownS);
}

function tokens(environment: Environment): Limit {
  const units = value(environment, TOKENS, DEFAULT_TOKENS, (n) => n <= 0n || isMade(() => quota(n)));
  return units > 0n ? quota(units) : OFF;
}

function value(
  environment: Environment,
  name: string,
  byDefault: bigint,
  isInRange: (units: bigint) => boolean,
): bigint {
  const text = environment[name];
  if (text === undefined) return byDefault;
  if (!/^[+-]?[0-9]{1,20}$/.test(text.trim())) {
    logger.warn(`${name}=${JSON.stringify(text)} is not a whole number: using the default, ${byDefault}`);
    return byDefault;
  }
  const units = BigInt(text.trim().replace(/^\+/, ""));
  if (isInRange(units)) return units;
  logger.warn(`${name}=${units} is out of range: using the default, ${byDefault}`);
  return byDefault;
}

// --- what the engine takes: asked of the engine, which alone keeps the bounds --------------------

function bucket(rate: bigint, burst: bigint): RateLimit {
  return new RateLimit(rate, { per: "1s", burst: burst });
}

function guard(places: bigint, rejectTrip: bigint, cooldownS: bigint): ConcurrencyLimit {
  return new ConcurrencyLimit(places, {
    lease: LEASE,
    rejectTrip: rejectTrip,
    cooldown: cooldownS * NS_PER_S,
  });
}

function quota(units: bigint): Quota {
  return new Quota(units, { per: "1d" });
}

function isMade(make: () => Limit): boolean {
  try {
    new Gate({ limits: { x: make() }, policies: { x: [["x", "shared"]] }, capacity: 1 }).close();
    return true;
  } catch (error) {
    if (error instanceof ConfigError) return false;
    throw error;
  }
}

function isBucket(rate: bigint, burst: bigint): boolean {
  return isMade(() => bucket(rate, burst));
}

function isRate(rate: bigint): boolean {
  return rate === 0n || isBucket(rate, 2n * rate);
}

// --- the start-up line ---------------------------------------------------------------------------

function inWords([name, limit]: [string, Limit]): string {
  if (limit instanceof RateLimit) return `${name} ${limit.count} calls a second, burst ${limit.burst}`;
  if (limit instanceof Quota) return `${name} ${limit.limit} a day`;
  if (limit instanceof ConcurrencyLimit) {
    const breaker =
      limit.rejectTrip > 0
        ? `the breaker opens for ${limit.cooldownNs / NS_PER_S} s after ${limit.rejectTrip} refusals in a row`
        : "no breaker";
    return `${name} ${limit.maxInFlight} calls at once, ${breaker}`;
  }
  return `${name} unlimited`;
}
