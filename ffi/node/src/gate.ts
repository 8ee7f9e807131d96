/** Gate: what a program makes once, and asks about every call. */
import { randomBytes } from "node:crypto";

import { Batch } from "./batch.js";
import type { BatchCall, Call, Clock, Settlement } from "./call.js";
import { GateConfig, type Named, type Rule } from "./config.js";
import { Decision } from "./decision.js";
import { Engine } from "./engine.js";
import { CallError, ConfigError, Refused } from "./errors.js";
import { put, Status, Word } from "./exchange.js";
import { type GateHandle, handleOf, seatOf } from "./handle.js";
import { type Identity, isUint8Array } from "./identities.js";
import { callInteger } from "./integers.js";
import type { Key } from "./key.js";
import { ConcurrencyLimit, engineLimit, isLimit, KINDS_TEXT, type Limit, Quota } from "./limits.js";
import { END, internalErrorsOf, textOf } from "./metrics.js";
import { Permit } from "./permit.js";
import { type Guards, guardsOf, metricsOf, peeked, type Report, type Stats, statsOf } from "./reports.js";
import { takeRuling } from "./ruling.js";
import { kindOf } from "./text.js";
import { type Domain, DOMAINS, type Integer, type Outcome, type Scope, type Settled } from "./vocabulary.js";

/** What a gate is made from. */
export interface GateOptions {
  /** By name a RateLimit, ConcurrencyLimit, Quota or OFF; 1 to 64 of them. */
  readonly limits: Named<Limit>;
  /**
   * By name an array of [limit's name, scope], 1 to 8; 1 to 64 policies. Each is for a class of
   * callers. Its limits are charged in order, all or none. Scopes say whose state a limit keeps:
   * "caller", "tool", "caller_tool" (one for each pair), "shared" (one for all). Best with
   * concurrency limits last: no place is taken then by a call that another limit refuses.
   */
  readonly policies: Named<readonly Rule[]>;
  /**
   * How many distinct callers are sure to find a place, 1 to 67,108,864; 10,000 by default. A
   * guarantee, not a cap. Each tool of a limit kept by tool takes the place of a caller, so does
   * each pair. All memory is taken now; it never grows.
   */
  readonly capacity?: Integer | undefined;
  /** 16 random bytes under which identities are hashed; new ones by default. */
  readonly secret?: Uint8Array | undefined;
}

const NO_CALL: Call = Object.freeze({});

/** How a gate is found that another thread has made. */
class Attachment {
  constructor(
    readonly engine: Engine,
    readonly handle: GateHandle,
  ) {}
}

/**
 * Decides calls: limits, the policies that apply them, and the state of all callers.
 *
 *     const gate = new Gate({
 *       limits: {
 *         caller: new RateLimit(30, { per: "1s", burst: 60 }),
 *         tokens: new Quota(50_000, { per: "1d", tz: "Asia/Shanghai" }),
 *         server: new ConcurrencyLimit(3, { lease: "2h", rejectTrip: 5, cooldown: "30s" }),
 *       },
 *       policies: { authenticated: [["caller", "caller"], ["tokens", "caller"], ["server", "shared"]] },
 *     });
 *     const answer = await gate.run("authenticated", { caller: "user:1001" }, async (permit) => …);
 *
 * The memory is this process's: worker threads share a gate by its `handle()`; processes of
 * `cluster` each have their own. It is given back by `close()`, or when the garbage collector finds
 * that nobody has the gate, or a permit of it, any more.
 *
 * Methods throw CallError where a call can't be decided, as where the gate is closed; nothing is
 * charged then. What is of a wrong type is a TypeError.
 */
export class Gate {
  readonly #engine: Engine;
  readonly #handle: GateHandle;
  readonly #batch: Batch;
  #internalErrors = 0;

  /** Throws ConfigError where something is out of its range. */
  constructor(options: GateOptions) {
    if (typeof options !== "object" || options === null) {
      throw new TypeError(`the options of a Gate must be an object, not ${kindOf(options)}`);
    }
    if (options instanceof Attachment) {
      this.#engine = options.engine;
      this.#handle = options.handle;
    } else {
      const { limits, policies, capacity = 10_000, secret = randomBytes(16) } = options;
      const config = GateConfig.check(limits, policies, capacity);
      const id = randomBytes(16);
      this.#engine = Engine.open(config, checkedSecret(secret), id);
      this.#handle = handleOf(id);
    }
    this.#batch = new Batch(this.#engine);
  }

  /**
   * The gate that another thread of this process has made: both share one set of limits. Throws
   * CallError where all threads have closed it, or where it is one of another process.
   */
  static attach(handle: GateHandle): Gate {
    const { seat, descriptions, known } = seatOf(handle);
    const engine = new Engine(seat, GateConfig.described(...descriptions));
    return new Gate(new Attachment(engine, known) as unknown as GateOptions);
  }

  /**
   * What another thread of this process attaches to, by `Gate.attach`: plain data, to be sent with
   * `postMessage` or `workerData`. It keeps nothing alive: the gate must be open when the other
   * thread attaches, and is then open until both have closed it.
   */
  handle(): GateHandle {
    this.#engine.checkOpen();
    return this.#handle;
  }

  /** The limits by name, as this thread last set them. A copy: see `reconfigure`. */
  get limits(): ReadonlyMap<string, Limit> {
    return new Map(this.#engine.config.limits);
  }

  /** The policies by name. A copy. */
  get policies(): ReadonlyMap<string, readonly Rule[]> {
    return new Map(this.#engine.config.policies);
  }

  /** How many distinct callers are sure to find a place. */
  get capacity(): number {
    return this.#engine.config.capacity;
  }

  /**
   * Decides one call. A refusal is no error: see `decision.admitted`. All limits of the policy are
   * charged, or none is.
   */
  tryAdmit(policy: string, call: Call = NO_CALL): Decision {
    const engine = this.#engine;
    const terms = engine.prepare(policy, call);
    // Called by its name, and all that runs here for most calls is short, so that V8 can make one
    // function of it: some 750 bytes of bytecode, of which calls of private methods cost the most.
    engine.seat.admit();
    if (engine.words[Word.Status] !== Status.Ok) engine.admitAgain(policy);
    return new Decision(takeRuling(engine, terms));
  }

  /**
   * Decides 0 to 4096 calls, one after the other at one time, in one crossing into the engine: with
   * prepared keys, many are cheaper so. Where one can't be decided, none is.
   */
  tryAdmitMany(calls: readonly BatchCall[], clock: Clock = NO_CALL): Decision[] {
    return this.#batch.tryAdmit(calls, clock);
  }

  /** Decides one call. Throws Refused where it may not run. */
  admit(policy: string, call: Call = NO_CALL): Permit {
    const permit = admitted(this.tryAdmit(policy, call));
    return this.#engine.config.holds(policy) ? permit.watch() : permit;
  }

  /**
   * Decides one call and runs it: settled as "success" where `work` returns or resolves, "failure"
   * where it throws or rejects, and "abandoned" where that is an AbortError or `call.signal` was
   * aborted meanwhile; not again where `work` has settled it. Rejects with Refused where the call
   * may not run.
   */
  async run<T>(
    policy: string,
    call: Call & { readonly signal?: AbortSignal | undefined },
    work: (permit: Permit) => T | PromiseLike<T>,
  ): Promise<T> {
    if (typeof work !== "function") throw new TypeError(`work must be a function, not ${kindOf(work)}`);
    const { signal } = call;
    const permit = this.admit(policy, call);
    let outcome: Outcome = "failure";
    try {
      const result = await work(permit);
      outcome = signal?.aborted ? "abandoned" : "success";
      return result;
    } catch (error) {
      if (signal?.aborted || isAbort(error)) outcome = "abandoned";
      throw error;
    } finally {
      permit.end(outcome);
    }
  }

  /**
   * Ends an admitted call. Returns "ok"; "already_settled" where it was settled before; "lapsed"
   * where that comes after its lease: its place was taken for lost, and of that limit nothing was
   * changed. `outcome` is "success" by default, `used` 0: `permit.settle` knows more.
   */
  settle(permit: Permit, settlement: Settlement & { readonly outcome?: Outcome | undefined } = {}): Settled {
    if (typeof settlement !== "object" || settlement === null) {
      throw new TypeError(`the settlement must be an object, not ${kindOf(settlement)}`);
    }
    return Permit.settle(permit, this.#engine, settlement.outcome ?? "success", settlement);
  }

  /** What each limit of the policy would say to the call, in order. Changes nothing. */
  peek(policy: string, call: Call = NO_CALL): Report[] {
    return peeked(this.#engine, policy, call);
  }

  /**
   * Makes a Key, once, for an identity that comes again: hashing costs as much as deciding.
   *
   * `identity` is a string (taken as UTF-8) or bytes, 1 or more bytes; `domain` what it will be
   * passed as.
   */
  key(identity: string | Uint8Array, domain: Domain = "caller"): Key {
    if (!DOMAINS.includes(domain)) {
      if (typeof domain !== "string") throw new TypeError(`domain must be a string, not ${kindOf(domain)}`);
      throw new CallError("domain must be 'caller' or 'tool'", "domain");
    }
    return (domain === "caller" ? this.#engine.callers : this.#engine.tools).key(identity);
  }

  /**
   * Changes a limit, for all callers at once and in every thread that shares the gate.
   *
   * Every caller keeps its debt, but never more than the new limit can express; nobody gets tokens by
   * it, except those by which a burst is larger. What a rate limit was charged before is not given back
   * on a cancellation any more. More calls in flight than a new limit allows end as they would have; an
   * open breaker stays open until it was to be. A caller's window stays what it is; another time zone is followed from its next
   * midnight on.
   *
   * `limit` is OFF, or one of the limit's kind; a concurrency limit keeps its lease. `limits` shows
   * the change in this thread only, and a time zone is followed by threads that know of it: change
   * that in each. Throws CallError where there is no such limit, and ConfigError where it can't
   * become what is asked for.
   */
  reconfigure(name: string, limit: Limit, clock: Pick<Clock, "nowNs"> = NO_CALL): void {
    const { config } = this.#engine;
    const index = config.indexOf("name", name);
    if (!isLimit(limit)) throw new TypeError(`limit must be ${KINDS_TEXT}, not ${kindOf(limit)}`);
    config.checkChange(name, limit);
    this.#engine.writeClock(clock.nowNs, undefined);
    this.#engine.reconfigure(index, engineLimit(limit), config.describeLimit(name, limit));
    config.replace(name, limit);
    this.#engine.followZones();
  }

  /**
   * Tells a quota what a ledger knows to have been used in the present window: once for each caller
   * and window, after a restart. Returns false where it had been told; nothing is done then.
   * `Seeder` does this by itself.
   *
   * `caller` is whose state it is, null where the scope has no caller. `used` are units, 0 to
   * 2^64-1: they are added to what was used since the restart. `tool` is the tool, where the scope
   * has one. `scope`: the state is the one that the policies keep under it; needed where they use
   * the quota with several.
   *
   * Throws CallError where there is no such quota, and where the table has no place for the caller.
   */
  seed(
    limit: string,
    caller: Identity | null | undefined,
    used: Integer,
    options: Clock & { readonly tool?: Identity | null | undefined; readonly scope?: Scope | undefined } = NO_CALL,
  ): boolean {
    const engine = this.#engine;
    const { tool, scope, nowNs, unixNs } = options;
    const index = engine.config.indexOf("limit", limit, Quota);
    const keptBy = engine.config.scopeOf(limit, scope);
    const units = callInteger("used", used, "0 to 2^64-1 units");
    engine.writeIdentities(caller, tool);
    engine.writeClock(nowNs, unixNs);
    const { words } = engine;
    words[Word.Scope] = keptBy;
    put(words, Word.Used, units);
    const status = engine.cross(() => {
      words[Word.Index] = index; // setting windows writes to it, too
      engine.seat.seed();
    });
    if (status === Status.AlreadySeeded) return false;
    if (status !== Status.Ok) engine.fail(status);
    return true;
  }

  /**
   * What a concurrency limit and its breakers look like: for metrics, since it walks the table.
   * Throws CallError where there is no such limit, or it is none of that kind.
   */
  guards(limit: string, clock: Pick<Clock, "nowNs"> = NO_CALL): Guards {
    return guardsOf(this.#engine, limit, clock);
  }

  /** The same of all concurrency limits, by name, also of those that are switched off. */
  allGuards(clock: Pick<Clock, "nowNs"> = NO_CALL): Map<string, Guards> {
    const names = this.#engine.config.namesOf(ConcurrencyLimit);
    return new Map(names.map((name) => [name, this.guards(name, clock)]));
  }

  /** What the table holds and what was decided: for metrics, since it walks the table. */
  stats(clock: Clock = NO_CALL): Stats {
    return statsOf(this.#engine, clock);
  }

  /**
   * All of that as OpenMetrics text, which ends with "# EOF". No label holds an identity. Served by
   * `metricsHandler`, and to prom-client by `CallgateCollector` of `callgate/prometheus`.
   */
  metrics(clock: Clock = NO_CALL): string {
    const text = metricsOf(this.#engine, clock);
    return text.slice(0, -END.length) + textOf([internalErrorsOf(this)]);
  }

  /** How many failures of the limiter itself middleware has counted here, on this Gate. */
  get internalErrors(): number {
    return this.#internalErrors;
  }

  /** For middleware: the limiter itself failed, and a call was decided without it. */
  countInternalError(): void {
    this.#internalErrors += 1;
  }

  /**
   * Gives the memory back, once all threads that share it have closed it. Whatever is asked of the
   * gate or settled afterwards is a CallError; closing it again does nothing.
   */
  close(): void {
    this.#engine.close();
  }

  /** As `close`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** For people. */
  toString(): string {
    const { limits, policies, capacity } = this.#engine.config;
    const what = `${limits.size} limits, ${policies.size} policies, capacity ${capacity}`;
    return `<callgate.Gate of ${what}${this.#engine.isClosed ? ", closed" : ""}>`;
  }

  /** As `toString`. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

/** The permit of a decision. Throws Refused where it has none. */
export function admitted(decision: Decision): Permit {
  const { permit } = decision;
  if (permit === null) throw new Refused(decision);
  return permit;
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === "AbortError";
}

function checkedSecret(secret: unknown): Uint8Array {
  if (!isUint8Array(secret)) {
    throw new TypeError(`secret must be 16 bytes, a Uint8Array, not ${kindOf(secret)}`);
  }
  const copy = new Uint8Array(secret);
  if (copy.length === 16) return copy;
  throw new ConfigError("secret must be 16 random bytes, not all zero", "secret");
}
