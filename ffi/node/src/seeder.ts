/** Seeder: after a restart, what callers have used before is loaded from a ledger when they call. */
import type { Call } from "./call.js";
import type { Decision } from "./decision.js";
import { parseDuration } from "./durations.js";
import { CallError, ConfigError } from "./errors.js";
import { admitted, type Gate } from "./gate.js";
import type { Identity } from "./identities.js";
import { callInteger, configInteger } from "./integers.js";
import { Key } from "./key.js";
import { Quota } from "./limits.js";
import type { Permit } from "./permit.js";
import { kindOf, quoted, shown } from "./text.js";
import type { Duration, Integer } from "./vocabulary.js";

/** Who a ledger is asked about. */
export type LoadedIdentity = Exclude<Identity, Key>;

/** Returns, or resolves to, the units used in the present window, 0 to 2^64-1. */
export type Load = (caller: LoadedIdentity) => Integer | PromiseLike<Integer>;

/** A call whose caller is an identity that the ledger knows: not a Key. */
export interface SeedableCall extends Omit<Call, "caller"> {
  readonly caller?: LoadedIdentity | null | undefined;
}

/** Options of a `Seeder`. */
export interface SeederOptions {
  /**
   * Where `load` fails. "refuse", the default: the refusal ("unseeded") stands, and the caller is
   * not loaded again for `retryAfter`. "zero": nothing is taken to have been used. Either way
   * `onLoadError` is told, and it is counted in `loadErrors`.
   */
  readonly onError?: "refuse" | "zero" | undefined;
  /** How long a caller is not loaded again after a failure; "5s" by default. */
  readonly retryAfter?: Duration | undefined;
  /** Told of each failure; by default it is a warning of the process. */
  readonly onLoadError?: (error: unknown, caller: LoadedIdentity) => void;
}

/** A load is tried anew so often where its window ends meanwhile. */
const ROUNDS = 3;

/**
 * Decides calls under a quota that must be seeded, and seeds it when a caller first calls.
 *
 *     const seeder = new Seeder(gate, "tokens", (caller) => ledger.usedToday(caller));
 *     const decision = await seeder.tryAdmit("authenticated", { caller: "user:1001" });
 *
 * `limit` is the name of one of the gate's quotas, of `mustSeed: true`, kept by "caller" in all
 * policies. One call of a caller has it loaded at a time, others of that caller wait for it. Throws
 * ConfigError where something is out of its range.
 */
export class Seeder {
  readonly #gate: Gate;
  readonly #limit: string;
  readonly #load: Load;
  readonly #onError: "refuse" | "zero";
  readonly #onLoadError: (error: unknown, caller: LoadedIdentity) => void;
  readonly #restNs: bigint;
  readonly #flights = new Map<string, Promise<void>>();
  /** When callers may be loaded again; those that rest longest come first. */
  readonly #resting = new Map<string, bigint>();
  #loadErrors = 0;

  constructor(gate: Gate, limit: string, load: Load, options: SeederOptions = {}) {
    const { onError = "refuse", retryAfter = "5s", onLoadError = warner(limit) } = options;
    if (typeof load !== "function") {
      throw new TypeError(`load must be a function of a caller, not ${kindOf(load)}`);
    }
    if (typeof onLoadError !== "function") {
      throw new TypeError(`onLoadError must be a function, not ${kindOf(onLoadError)}`);
    }
    if (onError !== "refuse" && onError !== "zero") {
      throw new ConfigError(`onError must be 'refuse' or 'zero', not ${shown(onError)}`, "onError");
    }
    checkLimit(gate, limit);
    this.#gate = gate;
    this.#limit = limit;
    this.#load = load;
    this.#onError = onError;
    this.#onLoadError = onLoadError;
    this.#restNs = retryAfterNs(retryAfter);
  }

  /** How many loads failed. */
  get loadErrors(): number {
    return this.#loadErrors;
  }

  /** As `gate.tryAdmit`; waits while the caller is loaded. */
  async tryAdmit(policy: string, call: SeedableCall = {}): Promise<Decision> {
    const { caller, tool, cost, reserve, nowNs, unixNs } = call;
    const asked = { caller, tool, cost, reserve, nowNs, unixNs };
    if ((caller as unknown) instanceof Key) {
      throw new TypeError("caller must be a string or a Uint8Array, which the ledger is asked about");
    }
    for (let round = 0; ; round++) {
      const beganMs = Date.now();
      const decision = this.#gate.tryAdmit(policy, asked);
      if (round === ROUNDS || !this.#isWaiting(decision)) return decision;
      const landed = this.#join(asked, decision, beganMs);
      if (landed === null) return decision;
      await landed;
    }
  }

  /** As `gate.admit`; waits while the caller is loaded. Rejects with Refused. */
  async admit(policy: string, call: SeedableCall = {}): Promise<Permit> {
    return admitted(await this.tryAdmit(policy, call)).watch();
  }

  #isWaiting(decision: Decision): boolean {
    return decision.reason === "unseeded" && decision.by === this.#limit;
  }

  /** The caller's load, which this call starts where none is on its way; null where it rests. */
  #join(call: SeedableCall, decision: Decision, beganMs: number): Promise<void> | null {
    const caller = call.caller as LoadedIdentity; // a limit that is kept by caller had one
    const identity = Buffer.from(caller as string).toString("latin1");
    const flying = this.#flights.get(identity);
    if (flying !== undefined) return flying;
    const restsUntil = this.#resting.get(identity);
    if (restsUntil !== undefined && clockNs(call) < restsUntil) return null;
    const isSystems = call.nowNs === undefined || call.nowNs === null;
    const endsMs = isSystems ? beganMs + Number(decision.resetAfterNs / 1_000_000n) : Infinity;
    const flight = this.#fly(identity, caller, call, endsMs).finally(() => this.#flights.delete(identity));
    this.#flights.set(identity, flight);
    return flight;
  }

  /** Loads a caller and seeds the quota; never rejects. */
  async #fly(identity: string, caller: LoadedIdentity, call: SeedableCall, endsMs: number): Promise<void> {
    let used: Integer;
    try {
      used = callInteger("what load returns", await this.#load(caller), "0 to 2^64-1 units");
    } catch (error) {
      this.#loadErrors += 1;
      try {
        this.#onLoadError(error, caller);
      } catch {
        // A reporter that fails itself must not keep those waiting who wait for the load.
      }
      if (this.#onError === "refuse") return this.#rest(identity, call);
      used = 0;
    }
    if (Date.now() >= endsMs) return; // what was loaded is yesterday's
    const { nowNs, unixNs } = call;
    try {
      this.#gate.seed(this.#limit, caller, used, { nowNs, unixNs });
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#rest(identity, call); // there is no place for the caller's state
    }
  }

  #rest(identity: string, call: SeedableCall): void {
    const now = clockNs(call);
    this.#resting.delete(identity);
    this.#resting.set(identity, now + this.#restNs);
    // A flood of callers must not fill the memory.
    for (const [oldest, until] of this.#resting) {
      if (until > now && this.#resting.size <= this.#gate.capacity) break;
      this.#resting.delete(oldest);
    }
  }
}

function checkLimit(gate: Gate, limit: unknown): void {
  if (typeof limit !== "string") throw new TypeError(`limit must be a string, not ${kindOf(limit)}`);
  const quota = gate.limits.get(limit);
  if (!(quota instanceof Quota) || !quota.mustSeed) {
    const text = `limit ${quoted(limit)} must be a Quota of the gate with mustSeed: true`;
    throw new ConfigError(text, "limit", { limit });
  }
  for (const [policy, rules] of gate.policies) {
    for (const [name, scope] of rules) {
      if (name !== limit || scope === "caller") continue;
      throw new ConfigError(
        `limit ${quoted(limit)} must be kept by 'caller' in all policies, since callers are loaded;` +
          ` policy ${quoted(policy)} keeps it by ${quoted(scope)}`,
        "scope",
        { limit, policy },
      );
    }
  }
}

function retryAfterNs(retryAfter: unknown): bigint {
  if (typeof retryAfter === "string") {
    const parsed = parseDuration(retryAfter);
    if (typeof parsed === "bigint") return parsed;
    throw new ConfigError(`retryAfter: ${parsed}`, "retryAfter");
  }
  const ns = configInteger("retryAfter", retryAfter, "a string such as '5s' or whole nanoseconds");
  if (ns >= 0n) return ns;
  throw new ConfigError("retryAfter must be 0 or more ns", "retryAfter");
}

function clockNs(call: SeedableCall): bigint {
  return call.nowNs === undefined || call.nowNs === null ? process.hrtime.bigint() : BigInt(call.nowNs);
}

function warner(limit: string): (error: unknown) => void {
  return (error) => {
    process.emitWarning(`loading what was used of quota ${shown(limit)} failed: ${String(error)}`, {
      type: "CallgateWarning",
    });
  };
}
