/** The kinds of limits that a gate is made from. */
import { addon, type EngineLimit } from "./addon.js";
import { DAY_NS, parseDuration, SECOND_NS } from "./durations.js";
import { ConfigError, configError } from "./errors.js";
import { configInteger, narrowed } from "./integers.js";
import { kindOf, shown } from "./text.js";
import type { Duration, Integer } from "./vocabulary.js";
import { Zone } from "./zones.js";

/** The engine's CALLGATE_KIND_*. */
const KIND = { off: 1n, rate: 2n, concurrency: 3n, quota: 4n } as const;

/** Options of a `RateLimit`. */
export interface RateLimitOptions {
  /** The period, 1 to 2^64-1 ns; "1s" by default. */
  per?: Duration | undefined;
  /** What a full bucket holds, 1 or more tokens; `count` by default. */
  burst?: Integer | undefined;
}

/**
 * A token bucket: `count` tokens come back in each period, up to `burst`.
 *
 *     new RateLimit(30, { per: "1s", burst: 60 })
 *
 * Tokens come back one by one, not all at once when a period ends. Filling it from empty
 * (burst * per / count) must take at most 2^61 ns, 73 years. Throws ConfigError where a number is
 * out of its range. There is no rate of 0: to switch a limit off, say `OFF`.
 */
export class RateLimit {
  /** Tokens for each period, 1 to 2^64-1. */
  readonly count: Integer;
  /** The period in nanoseconds. */
  readonly periodNs: bigint;
  /** What a full bucket holds. */
  readonly burst: Integer;

  constructor(count: Integer, options: RateLimitOptions = {}) {
    const { per = "1s", burst = count } = optionsOf(options);
    this.count = narrowed(configInteger("count", count));
    this.periodNs = durationOf("per", per, "periodNs");
    this.burst = narrowed(configInteger("burst", burst));
    check(this, `count=${this.count}, periodNs=${this.periodNs}, burst=${this.burst}`);
    Object.freeze(this);
  }
}

/** Options of a `ConcurrencyLimit`. */
export interface ConcurrencyLimitOptions {
  /**
   * A call that is never settled gives its place back by itself, between one and two of these
   * later: 1 ms to 2^61 ns; "2h" by default. Longer than any call takes: one that is settled later
   * is told "lapsed". It can't be reconfigured.
   */
  lease?: Duration | undefined;
  /**
   * So many refusals in a row, with no call settled in between, open the breaker: 0 to 63; 0:
   * refusals never do, the default.
   */
  rejectTrip?: Integer | undefined;
  /** So many calls in a row that fail open it: 0 to 63; 0: failures never do, the default. */
  failureTrip?: Integer | undefined;
  /**
   * For how long it is open then: at least 1 ms where there is a trip, at most 2^61 ns and 50,000
   * leases.
   */
  cooldown?: Duration | undefined;
  /**
   * After the cooldown so many calls at a time probe the way, 0 to 15: one that succeeds closes the
   * breaker, one that fails opens it anew. 0: the breaker is closed after the cooldown, the
   * default.
   */
  halfOpenProbes?: Integer | undefined;
}

/**
 * So many calls at once, and a breaker that opens when too many are refused or fail.
 *
 *     new ConcurrencyLimit(3, { lease: "2h", rejectTrip: 5, cooldown: "30s" })
 *
 * Over the limit a call is refused at once; nothing queues. Throws ConfigError where a number is
 * out of its range.
 */
export class ConcurrencyLimit {
  /** Calls that may run at once, 1 to 4095. */
  readonly maxInFlight: Integer;
  /** The lease in nanoseconds. */
  readonly leaseNs: bigint;
  /** So many refusals in a row open the breaker. */
  readonly rejectTrip: Integer;
  /** So many failures in a row open the breaker. */
  readonly failureTrip: Integer;
  /** For how long the breaker is open, in nanoseconds. */
  readonly cooldownNs: bigint;
  /** So many calls at a time probe the way after the cooldown. */
  readonly halfOpenProbes: Integer;

  constructor(maxInFlight: Integer, options: ConcurrencyLimitOptions = {}) {
    const { lease = "2h", rejectTrip = 0, failureTrip = 0, cooldown = "0s", halfOpenProbes = 0 } =
      optionsOf(options);
    this.maxInFlight = narrowed(configInteger("maxInFlight", maxInFlight));
    this.leaseNs = durationOf("lease", lease, "leaseNs");
    this.rejectTrip = narrowed(configInteger("rejectTrip", rejectTrip));
    this.failureTrip = narrowed(configInteger("failureTrip", failureTrip));
    this.cooldownNs = durationOf("cooldown", cooldown, "cooldownNs");
    this.halfOpenProbes = narrowed(configInteger("halfOpenProbes", halfOpenProbes));
    const given = Object.entries(this).map(([name, value]) => `${name}=${value}`);
    check(this, given.join(", "));
    Object.freeze(this);
  }
}

/** Options of a `Quota`. */
export interface QuotaOptions {
  /** How long a window is, in whole seconds, 1 to 2^33; "1d" by default. */
  per?: Duration | undefined;
  /**
   * An IANA name: windows are the calendar days of that zone, also those of 23 and 25 hours; `per`
   * must be "1d" then.
   */
  tz?: string | null | undefined;
  /**
   * Without `tz`: when one of the windows begins, in seconds since the Unix epoch, -2^63 to 2^63-1.
   * 0, the default: days begin at midnight in UTC.
   */
  anchorUnixS?: Integer | undefined;
  /**
   * Calls are refused ("unseeded") until `gate.seed` has told, for the caller and the window, what
   * was used before.
   */
  mustSeed?: boolean | undefined;
}

/**
 * So many units in each window of the calendar, for costs that are known only afterwards.
 *
 *     new Quota(50_000, { per: "1d", tz: "Asia/Shanghai" })
 *
 * A call says what it used by `permit.used` or `gate.settle`; that may be more than was left, and
 * refuses the next call then. Throws ConfigError where a number is out of its range. There is no
 * quota of 0: to switch a limit off, say `OFF`.
 */
export class Quota {
  /** Units in a window, 1 to 2^47. */
  readonly limit: Integer;
  /** How long a window is, in seconds. */
  readonly periodS: number;
  /** When one of the windows begins, in seconds since the Unix epoch; 0 where there is a `tz`. */
  readonly anchorUnixS: Integer;
  /** Whether calls are refused until the quota is seeded. */
  readonly mustSeed: boolean;
  /** The zone whose days the windows are, or null. */
  readonly tz: string | null;

  constructor(limit: Integer, options: QuotaOptions = {}) {
    const { per = "1d", tz = null, anchorUnixS = 0, mustSeed = false } = optionsOf(options);
    if (typeof mustSeed !== "boolean") {
      throw new TypeError(`mustSeed must be a boolean, not ${kindOf(mustSeed)}`);
    }
    this.tz = tz === null ? null : new Zone(tz).name;
    this.anchorUnixS = anchorOf(anchorUnixS, tz);
    this.limit = narrowed(configInteger("limit", limit));
    this.periodS = periodOf(per, tz);
    this.mustSeed = mustSeed;
    const window = `periodS=${this.periodS}, anchorUnixS=${this.anchorUnixS}`;
    check(this, `limit=${this.limit}, ${window}`);
    Object.freeze(this);
  }
}

/** The class of `OFF`. */
export class Off {
  /** What tells it apart: without it any object would do for a type checker. */
  readonly kind = "off";

  constructor() {
    Object.freeze(this);
  }
}

/** A limit that admits everything and keeps nothing: switched off, explicitly. */
export const OFF = new Off();

/** Any kind of limit. */
export type Limit = RateLimit | ConcurrencyLimit | Quota | Off;

export const KINDS = [RateLimit, ConcurrencyLimit, Quota, Off] as const;
export const KINDS_TEXT = "a RateLimit, ConcurrencyLimit, Quota or OFF";

/** Whether a value is a limit. */
export function isLimit(value: unknown): value is Limit {
  return KINDS.some((kind) => value instanceof kind);
}

/** A limit as the engine takes it. */
export function engineLimit(limit: Limit): EngineLimit {
  if (limit instanceof RateLimit) {
    return [KIND.rate, BigInt(limit.count), limit.periodNs, BigInt(limit.burst)];
  }
  if (limit instanceof ConcurrencyLimit) {
    const { maxInFlight, leaseNs, rejectTrip, failureTrip, cooldownNs, halfOpenProbes } = limit;
    const trips = [BigInt(rejectTrip), BigInt(failureTrip)];
    return [KIND.concurrency, BigInt(maxInFlight), leaseNs, ...trips, cooldownNs, BigInt(halfOpenProbes)];
  }
  if (limit instanceof Quota) {
    const periodS = limit.tz === null ? BigInt(limit.periodS) : 0n; // 0: its windows are set
    const mustSeed = limit.mustSeed ? 1n : 0n;
    return [KIND.quota, BigInt(limit.limit), periodS, BigInt(limit.anchorUnixS), mustSeed];
  }
  return [KIND.off];
}

/** Throws ConfigError where the engine finds a number out of its range. */
function check(limit: Limit, given: string): void {
  const fault = addon.checkLimit(engineLimit(limit));
  if (fault !== null) throw configError(fault[0], `${fault[1]} (given: ${given})`);
}

function optionsOf<T>(options: T): T {
  if (typeof options === "object" && options !== null) return options;
  throw new TypeError(`the options must be an object, not ${kindOf(options)}`);
}

function durationOf(name: string, value: unknown, field: string): bigint {
  const wanted = "a string such as '250ms' or whole nanoseconds";
  if (typeof value !== "string") return configInteger(name, value, wanted);
  const parsed = parseDuration(value);
  if (typeof parsed === "string") throw new ConfigError(`${name}: ${parsed}`, field);
  return parsed;
}

function periodOf(per: unknown, tz: string | null): number {
  const periodNs = durationOf("per", per, "periodS");
  if (tz !== null && periodNs !== DAY_NS) {
    const text = "per must be '1d' where there is a tz: windows are its calendar days, not";
    throw new ConfigError(`${text} ${shown(per)}`, "periodS");
  }
  if (periodNs % SECOND_NS === 0n && periodNs >= SECOND_NS && periodNs <= SECOND_NS << 33n) {
    return Number(periodNs / SECOND_NS);
  }
  const text = "per must be 1 to 2^33 whole seconds, such as '1h' or '1d', not";
  throw new ConfigError(`${text} ${shown(per)}`, "periodS");
}

function anchorOf(anchorUnixS: unknown, tz: string | null): Integer {
  const anchor = configInteger("anchorUnixS", anchorUnixS);
  if (tz !== null && anchor !== 0n) {
    const text = "anchorUnixS must be 0 where there is a tz: windows begin at its midnights";
    throw new ConfigError(text, "anchorUnixS");
  }
  if (anchor === BigInt.asIntN(64, anchor)) return narrowed(anchor);
  throw new ConfigError("anchorUnixS must be -2^63 to 2^63-1 s", "anchorUnixS");
}
