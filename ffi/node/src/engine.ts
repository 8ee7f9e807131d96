/** Engine: what one thread has of a gate's engine, and the only place that crosses into it. */
import { addon, type EngineLimit, type Seat } from "./addon.js";
import type { GateConfig } from "./config.js";
import { CallError, callError, ConfigError, configError } from "./errors.js";
import { put, Status, Timing, Word } from "./exchange.js";
import { Identities } from "./identities.js";
import { callInteger } from "./integers.js";
import { kindOf, listed, quoted } from "./text.js";
import type { Integer } from "./vocabulary.js";
import { AHEAD_S, type Zone } from "./zones.js";
import type { Call, Clock } from "./call.js";

/**
 * What a call asked for. There are none, null, where that is what is usual: one token, no reserve, no
 * tool, the system's clock.
 */
export interface Terms extends Clock {
  readonly cost: Integer;
  readonly reserve: Integer;
}

/** What is asked for by a call that does not say. */
export const USUAL: Terms = { cost: 1, reserve: 0 };

// No private fields of the language here and in Identities: V8 tracks no types for those.
export class Engine {
  readonly words: Int32Array;
  readonly bytes: Uint8Array;
  readonly policyIndex = new Map<string, number>();
  readonly limitNames: readonly string[];
  /** Of each policy how many rules it has. */
  readonly ruleCounts: readonly number[];
  readonly callers: Identities;
  readonly tools: Identities;
  isClosed = false;
  /** The policy of the last call, which mostly is the next one's, too. */
  private lastPolicy: string;
  private lastIndex = 0;
  /** Whether what the exchange has, apart from policy and caller, is what a call without terms asks for. */
  private isUsual = false;
  private zones: readonly [number, Zone][] = [];

  constructor(
    readonly seat: Seat,
    readonly config: GateConfig,
  ) {
    this.words = new Int32Array(seat.memory);
    this.bytes = new Uint8Array(seat.memory);
    this.limitNames = [...config.limits.keys()];
    this.ruleCounts = Array.from(config.policies.values(), (rules) => rules.length);
    const policies = [...config.policies.keys()];
    policies.forEach((name, index) => this.policyIndex.set(name, index));
    this.lastPolicy = policies[0] as string;
    this.callers = new Identities(this, "caller");
    this.tools = new Identities(this, "tool");
    this.followZones();
  }

  /** Makes the memory of a gate. Throws ConfigError where the engine finds something wrong. */
  static open(config: GateConfig, secret: Uint8Array, id: Uint8Array): Engine {
    const limits = [...config.limits.keys()];
    const policies = [...config.policies.keys()];
    const made = addon.open(
      limits,
      config.engineLimits(),
      policies,
      config.engineRules(),
      config.capacity,
      secret,
      id,
      config.describe(),
    );
    if (typeof made === "number") {
      const text = `a gate of capacity ${config.capacity} needs ${made} bytes of memory, which there are not`;
      throw new ConfigError(`capacity: ${text}`, "capacity");
    }
    if (!Array.isArray(made)) return new Engine(made, config);
    const [field, sentence, limit, policy] = made;
    throw configError(field, sentence, { limit: limits[limit] ?? null, policy: policies[policy] ?? null });
  }

  close(): void {
    this.isClosed = true;
    this.seat.close();
  }

  /** Throws CallError where the gate is closed. */
  checkOpen(): void {
    if (this.isClosed) throw closed();
  }

  /**
   * Writes a call to the exchange, and returns what its settlement needs to know of it. Code of the
   * caller's, such as getters, runs before anything is written, so that it may use the gate itself.
   */
  prepare(policy: string, call: Call): Terms | null {
    const index = policy === this.lastPolicy ? this.lastIndex : this.find(policy);
    if (typeof call !== "object" || call === null) throw notACall(call);
    const { caller, tool, cost, reserve, nowNs, unixNs } = call;
    this.words[Word.Policy] = index;
    // Most calls have none of these, and follow one that had none.
    if (
      tool == null &&
      cost === undefined &&
      reserve === undefined &&
      nowNs === undefined &&
      unixNs === undefined
    ) {
      if (!this.isUsual) this.writeUsual();
      this.callers.write(caller);
      return null;
    }
    this.writeIdentities(caller, tool);
    return this.writeTerms(cost, reserve, nowNs, unixNs);
  }

  /** Writes the identities of a call; none is absent. */
  writeIdentities(caller: unknown, tool: unknown): void {
    this.isUsual = false;
    this.tools.write(tool);
    this.callers.write(caller);
  }

  /** Makes keys of those that were written as text. */
  makeKeys(): void {
    const { words } = this;
    if (words[Word.CallerSize] === 0 && words[Word.ToolSize] === 0) return;
    this.seat.texts();
    const status = words[Word.Status] as Status;
    if (status !== Status.Ok) this.fail(status);
  }

  private writeUsual(): void {
    put(this.words, Word.Cost, USUAL.cost);
    put(this.words, Word.Reserve, USUAL.reserve);
    this.words[Word.Timing] = Timing.System;
    this.tools.write(null);
    this.isUsual = true;
  }

  private writeTerms(
    cost: Call["cost"],
    reserve: Call["reserve"] | null,
    nowNs: Call["nowNs"],
    unixNs: Call["unixNs"],
  ): Terms {
    const tokens = callInteger("cost", cost === undefined ? USUAL.cost : cost, "0 to 2^64-1 tokens");
    const units = callInteger("reserve", reserve ?? USUAL.reserve, "0 to 2^64-1 units");
    put(this.words, Word.Cost, tokens);
    put(this.words, Word.Reserve, units);
    this.writeClock(nowNs, unixNs);
    return { cost: tokens, reserve: units, nowNs, unixNs };
  }

  private find(policy: string): number {
    const index = this.policyIndex.get(policy);
    if (index === undefined) throw this.unknownPolicy(policy);
    this.lastPolicy = policy;
    this.lastIndex = index;
    return index;
  }

  /** Writes the time of a call: both clocks are the system's, or the caller's. */
  writeClock(nowNs: Integer | null | undefined, unixNs: Integer | null | undefined): void {
    const words = this.words;
    if (nowNs === undefined || nowNs === null) {
      words[Word.Timing] = Timing.System;
      if (unixNs === undefined || unixNs === null) return;
      const text = "either the system's clock is read, or the time is yours";
      throw new CallError(`unixNs goes with nowNs: ${text}`, "unixNs");
    }
    this.isUsual = false;
    put(words, Word.NowNs, callInteger("nowNs", nowNs, "0 to 2^61-1 ns"));
    if (unixNs === undefined || unixNs === null) {
      words[Word.Timing] = Timing.Now;
      return;
    }
    put(words, Word.UnixNs, callInteger("unixNs", unixNs, "0 to 2^64-1 ns"));
    words[Word.Timing] = Timing.Both;
  }

  /** Runs a function of the seat, and again where today's windows had to be set first. */
  cross(run: () => void): Status {
    run();
    const status = this.words[Word.Status] as Status;
    if (status !== Status.NeedsWindows) return status;
    this.setWindows(Number(this.figure(Word.Start)));
    run();
    return this.words[Word.Status] as Status;
  }

  /** As `cross`; throws what a status other than Ok stands for. */
  ask(run: () => void, policy?: string): void {
    const status = this.cross(run);
    if (status !== Status.Ok) this.fail(status, policy);
  }

  /** For a call that was not decided: where that was for want of today's windows, it is now. */
  admitAgain(policy: string): void {
    this.ask(this.seat.admit, policy);
  }

  /** Throws what a status other than Ok stands for. */
  fail(status: Status, policy?: string): never {
    throw this.fault(status, policy);
  }

  /** What a status other than Ok stands for. */
  fault(status: Status, policy?: string): CallError {
    if (status === Status.Closed) return closed();
    if (status === Status.NeedsUnixNs) {
      const text = "this gate has a quota, which is kept by the calendar, so that nowNs goes with unixNs";
      return new CallError(`unixNs is missing: ${text}`, "unixNs");
    }
    if (policy !== undefined && (status === Status.MissingCaller || status === Status.MissingTool)) {
      const field = status === Status.MissingCaller ? "caller" : "tool";
      const text = `a limit of the policy ${quoted(policy)} is kept by ${field}`;
      return new CallError(`${field} is missing, but ${text}: pass ${field}, 1 or more bytes`, field);
    }
    const [field, sentence] = addon.errorText(status);
    return callError(field, sentence);
  }

  /** Changes a limit. */
  reconfigure(index: number, limit: EngineLimit, description: string): void {
    this.words[Word.Index] = index;
    this.seat.reconfigure(limit, description);
    const status = this.words[Word.Status] as Status;
    if (status === Status.Ok) return;
    if (status < Status.FirstOfConfig) this.fail(status);
    const [field, sentence] = addon.errorText(status);
    throw configError(field, sentence, { limit: this.limitNames[index] ?? null });
  }

  /** Looks at which quotas have a time zone. */
  followZones(): void {
    this.zones = this.config.zones();
    this.seat.useZones(this.zones.length > 0);
  }

  /** Sets the day of every zone, for calls at that second: once a day. */
  private setWindows(unixS: number): void {
    const { words, seat } = this;
    let [fromS, untilS] = [0, Number.MAX_SAFE_INTEGER];
    for (const [index, zone] of this.zones) {
      const [startS, endS] = zone.dayOf(unixS + AHEAD_S);
      words[Word.Index] = index;
      put(words, Word.Start, startS);
      put(words, Word.End, endS);
      seat.window();
      if (words[Word.Status] !== Status.Ok) this.fail(words[Word.Status] as Status);
      [fromS, untilS] = [Math.max(fromS, startS - AHEAD_S), Math.min(untilS, endS - AHEAD_S)];
    }
    put(words, Word.Start, fromS);
    put(words, Word.End, Math.max(0, untilS));
    seat.windowsHold();
  }

  private figure(at: number): bigint {
    return new BigUint64Array(this.seat.memory, at * 4, 1)[0] as bigint;
  }

  /** The first numbers of a report. */
  figures(count: number): number[] {
    return Array.from(new BigUint64Array(this.seat.memory, Word.Figures * 4, count), Number);
  }

  private unknownPolicy(policy: unknown): Error {
    if (typeof policy !== "string") return new TypeError(`policy must be a string, not ${kindOf(policy)}`);
    const text = `this gate has ${listed(this.policyIndex.keys())}`;
    return new CallError(`policy ${quoted(policy)} is unknown: ${text}`, "policy");
  }
}

function notACall(call: unknown): TypeError {
  return new TypeError(`the call must be an object, not ${kindOf(call)}`);
}

function closed(): CallError {
  return new CallError("the gate is closed", "gate");
}
