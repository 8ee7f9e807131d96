/** Engine: what one thread has of a gate's engine, and the only place that crosses into it. */
import { addon, type EngineLimit, type Seat } from "./addon.js";
import type { GateConfig } from "./config.js";
import { CallError, callError, ConfigError, configError } from "./errors.js";
import { put, putSmall, Size, Status, Timing, Word } from "./exchange.js";
import { Identities } from "./identities.js";
import { callInteger } from "./integers.js";
import { kindOf, listed, quoted } from "./text.js";
import type { Integer } from "./vocabulary.js";
import { AHEAD_S, type Zone } from "./zones.js";
import type { Call, Clock } from "./call.js";

/** What a call asked for beside one token by the system's clock, for its settlement. */
export interface Terms extends Clock {
  readonly reserve: Integer;
}

export class Engine {
  readonly words: Int32Array;
  readonly bytes: Uint8Array;
  readonly policyIndex = new Map<string, number>();
  readonly limitNames: readonly string[];
  readonly identities: Identities;
  isClosed = false;
  #zones: readonly [number, Zone][] = [];

  constructor(
    readonly seat: Seat,
    readonly config: GateConfig,
  ) {
    this.words = new Int32Array(seat.memory);
    this.bytes = new Uint8Array(seat.memory);
    this.limitNames = [...config.limits.keys()];
    for (const name of config.policies.keys()) this.policyIndex.set(name, this.policyIndex.size);
    this.identities = new Identities(this);
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
    const index = this.policyIndex.get(policy);
    if (index === undefined) throw this.#unknownPolicy(policy);
    if (typeof call !== "object" || call === null) {
      throw new TypeError(`the call must be an object, not ${kindOf(call)}`);
    }
    const { caller, tool, cost, reserve, nowNs, unixNs } = call;
    this.identities.write(caller, tool);
    const words = this.words;
    words[Word.Policy] = index;
    putSmall(words, Word.Cost, 1);
    putSmall(words, Word.Reserve, 0);
    words[Word.Timing] = Timing.System;
    // Most calls have none of these.
    if (cost === undefined && reserve === undefined && nowNs === undefined && unixNs === undefined) {
      return null;
    }
    if (cost !== undefined) put(words, Word.Cost, callInteger("cost", cost, "0 to 2^64-1 tokens"));
    const reserves = callInteger("reserve", reserve ?? 0, "0 to 2^64-1 units");
    put(words, Word.Reserve, reserves);
    this.writeClock(nowNs, unixNs);
    return { reserve: reserves, nowNs, unixNs };
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
    this.#setWindows(Number(this.#figure(Word.Start)));
    run();
    return this.words[Word.Status] as Status;
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
    this.#zones = this.config.zones();
    this.seat.useZones(this.#zones.length > 0);
  }

  /** Sets the day of every zone, for calls at that second: once a day. */
  #setWindows(unixS: number): void {
    const { words, seat } = this;
    let [fromS, untilS] = [0, Number.MAX_SAFE_INTEGER];
    for (const [index, zone] of this.#zones) {
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

  #figure(at: number): bigint {
    return new BigUint64Array(this.seat.memory, at * 4, 1)[0] as bigint;
  }

  /** The first numbers of a report. */
  figures(count: number): number[] {
    return Array.from(new BigUint64Array(this.seat.memory, Word.Figures * 4, count), Number);
  }

  #unknownPolicy(policy: unknown): Error {
    if (typeof policy !== "string") return new TypeError(`policy must be a string, not ${kindOf(policy)}`);
    const text = `this gate has ${listed(this.policyIndex.keys())}`;
    return new CallError(`policy ${quoted(policy)} is unknown: ${text}`, "policy");
  }

  /** Writes a permit back to where the engine finds it. */
  writePermit(words: readonly number[]): void {
    const count = words.length - Size.DecisionWords;
    for (let n = 0; n < count; n++) {
      this.words[Word.Permit + n] = words[Size.DecisionWords + n] as number;
    }
    this.words.fill(0, Word.Permit + count, Word.Permit + Size.PermitWords);
  }
}

function closed(): CallError {
  return new CallError("the gate is closed", "gate");
}
