/** What the middlewares have in common: charge a call once, settle it once, never be the outage. */

import { ConfigError, type Decision, type Gate, Key, type Outcome, type Permit, Quota } from "../index.js";
import { callInteger } from "../integers.js";
import type { Seeder } from "../seeder.js";
import { kindOf, shown } from "../text.js";
import { type Caller, CallerResolver, type RequestFacts } from "./callers.js";
import { Charge, type Hold, type Share } from "./charge.js";
import { type Charged, PolicyChooser } from "./choice.js";
import { currentContext, Running, within } from "./context.js";
import { defaultGate } from "./env.js";
import { logger } from "./log.js";
import type { Entry } from "./message.js";
import type { MeterOptions, Observation } from "./options.js";
import { usagesWith } from "./usage.js";

const LOG_INTERVAL_MS = 60_000;

/** When failures are logged again. By gate: servers without sessions make a meter for each request. */
const nextLogMs = new WeakMap<Gate, number>();

/** The answer for one message, and the charge to settle when the call is over. */
export interface Verdict {
  readonly hold: Hold;
  readonly isRefused: boolean;
  /** The policy that refused, or the last one charged. */
  readonly policy: string;
  /** How many calls `decision` is about. */
  readonly cost: number;
  /** Undefined where an internal error decided instead of the gate, or nothing was asked of it. */
  readonly decision: Decision | undefined;
}

interface Times {
  readonly nowNs?: number | bigint;
  readonly unixNs?: number | bigint;
}

/** One gate as a middleware uses it; `MeterOptions` says what the options are. */
export class Meter<Source = never> {
  readonly gate: Gate;
  readonly usageMeta: string | undefined;
  readonly #options: MeterOptions<Source>;
  readonly #reserve: bigint;
  readonly #resolver: CallerResolver;
  readonly #chooser: PolicyChooser;
  readonly #withQuota: ReadonlySet<string>;

  /** `gate` is by default the process's gate from the environment. Throws a `ConfigError` or `TypeError`
   * that names the option. */
  constructor(gate: Gate | undefined, options: MeterOptions<Source>) {
    const { onError = "admit", reserve = 0, clock, wallClock } = options;
    if (onError !== "admit" && onError !== "refuse") {
      throw new ConfigError(`onError must be 'admit' or 'refuse', not ${shown(onError)}`, "onError");
    }
    if ((typeof reserve !== "bigint" && !Number.isSafeInteger(reserve)) || reserve < 0 || reserve >= 2n ** 64n) {
      throw new ConfigError(`reserve must be a whole number of 0 to 2^64-1 units, not ${shown(reserve)}`, "reserve");
    }
    if (wallClock !== undefined && clock === undefined) {
      throw new TypeError("wallClock goes with a clock: a call has both times from one source");
    }
    checkFunctions(options);
    this.gate = gate ?? defaultGate();
    this.usageMeta = options.usageMeta;
    this.#options = options;
    this.#reserve = BigInt(reserve);
    this.#resolver = new CallerResolver(this.gate, options.caller);
    this.#chooser = new PolicyChooser(this.gate, options);
    this.#withQuota = withQuota(this.gate);
  }

  /** The metered methods: `tools/call`, and those with a policy of their own. */
  get methods(): ReadonlySet<string> {
    return this.#chooser.methods;
  }

  /** Charges one message of these entries, all of them or none. Never rejects. `spentNs` is time of
   * callgate's that was spent on the message before, for the observation. */
  async decide(
    entries: readonly Entry[],
    source: Source,
    facts: RequestFacts | undefined,
    spentNs = 0n,
  ): Promise<Verdict> {
    const startedNs = process.hrtime.bigint();
    let verdict: Verdict;
    try {
      const caller = await this.#resolver.resolve(source, facts);
      verdict = await this.#admit(caller, entries);
    } catch (error) {
      return this.failed(error);
    }
    if (this.#options.observe !== undefined && verdict.decision !== undefined) {
      const gateNs = Number(spentNs + process.hrtime.bigint() - startedNs);
      const { policy, decision } = verdict;
      this.#report({ policy, cost: entries.length, decision, gateNs, source });
    }
    return verdict;
  }

  /** The verdict after an internal error: it is counted, and logged once in a while. */
  failed(error: unknown): Verdict {
    this.#countError(error);
    const hold = new Charge(() => undefined).hold();
    const isRefused = this.#options.onError === "refuse";
    return { hold, isRefused, policy: "", cost: 0, decision: undefined };
  }

  /** The limits of a policy, by name and in order, as a refusal shows them. */
  policyLimits(policy: string): Map<string, unknown> {
    const { limits, policies } = this.gate;
    return new Map((policies.get(policy) ?? []).map(([name]) => [name, limits.get(name)]));
  }

  /** Whether the server makes this call itself, in the course of one charged here already. */
  isWithinChargedCall(): boolean {
    for (let running = currentContext().running; running !== undefined; running = running.outer) {
      if (running.gate === this.gate && !running.isOver) return true;
    }
    return false;
  }

  /** Whether an outer middleware on the same gate has charged so many calls of this request. */
  isChargedOutside(calls: number): boolean {
    return currentContext().receipts.some(({ gate, left }) => gate === this.gate && left >= calls);
  }

  /** A hold on what an outer middleware on the same gate has charged for this call already. */
  takeReceipt(): Hold | undefined {
    for (const receipt of currentContext().receipts) {
      const hold = receipt.gate === this.gate ? receipt.take() : undefined;
      if (hold !== undefined) return hold;
    }
    return undefined;
  }

  /** Runs a charged call: calls that the server makes within it are part of it. */
  async chargedCall<Result>(charge: Charge, call: () => Result): Promise<Awaited<Result>> {
    const running = new Running(this.gate, currentContext().running);
    try {
      return await within({ running, usages: usagesWith(charge.usage) }, call);
    } finally {
      running.isOver = true;
    }
  }

  async #admit(caller: Caller, entries: readonly Entry[]): Promise<Verdict> {
    // Every limit is charged for its own calls, and a batch under one policy takes one place.
    const times = this.#times();
    const shares: Share[] = [];
    let last: Pick<Verdict, "policy" | "cost" | "decision"> = {
      policy: caller.policy,
      cost: 0,
      decision: undefined,
    };
    try {
      for (const [charged, cost] of this.#chooser.charged(entries, caller)) {
        const reserve = BigInt(cost) * this.#reserve;
        const decision = await this.#tryAdmit(charged, cost, reserve, times);
        last = { policy: charged.policy, cost, decision };
        if (!decision.admitted) break;
        if (decision.permit !== null) {
          shares.push({ permit: decision.permit, reserve, hasQuota: this.#withQuota.has(charged.policy) });
        }
      }
    } catch (error) {
      this.#takeBack(shares);
      throw error;
    }
    const isRefused = last.decision !== undefined && !last.decision.admitted;
    if (isRefused) this.#takeBack(shares);
    const charge = new Charge(this.#settle, isRefused ? [] : shares);
    return { hold: charge.hold(), isRefused, ...last };
  }

  #tryAdmit({ policy, caller, tool }: Charged, cost: number, reserve: bigint, times: Times) {
    const { seeder } = this.#options;
    // A ledger can't be asked about a key.
    if (seeder === undefined || caller instanceof Key) {
      return this.gate.tryAdmit(policy, { caller, tool, cost, reserve, ...times });
    }
    return seeder.tryAdmit(policy, { caller, tool, cost, reserve, ...times });
  }

  #takeBack(shares: readonly Share[]): void {
    for (const { permit } of shares) this.#settle(permit, "cancelled", 0n);
  }

  readonly #settle = (permit: Permit, outcome: Outcome, used: bigint): void => {
    try {
      this.gate.settle(permit, { outcome, used, ...this.#times() });
    } catch (error) {
      this.#countError(error);
    }
  };

  /** Nothing, where the engine is to read its own clocks. */
  #times(): Times {
    const { clock, wallClock } = this.#options;
    if (clock === undefined) return {};
    return { nowNs: clock(), unixNs: wallClock?.() ?? BigInt(Date.now()) * 1_000_000n };
  }

  #report(observation: Observation<Source>): void {
    try {
      this.#options.observe?.(observation);
    } catch (error) {
      this.#countError(error);
    }
  }

  #countError(error: unknown): void {
    this.gate.countInternalError();
    const nowMs = performance.now();
    if (nowMs < (nextLogMs.get(this.gate) ?? 0)) return;
    nextLogMs.set(this.gate, nowMs + LOG_INTERVAL_MS);
    // The type and the place, not the message: messages quote values, and values may be identities.
    const name = error instanceof Error ? error.constructor.name : typeof error;
    const place = (error instanceof Error && /^ +at (.+)$/m.exec(error.stack ?? "")?.[1]) || "unknown";
    const answer = this.#options.onError === "refuse" ? "refused" : "admitted";
    logger.error(
      `the call limiter failed (${name} at ${place}); the call is ${answer}; ` +
        `${this.gate.internalErrors} failures so far`,
    );
  }
}

/** What is wrong in an option shows when the middleware is made: in a call it would be a failure of the
 * limiter, and let the call through. */
function checkFunctions({ clock, wallClock, observe, seeder }: MeterOptions<never>): void {
  for (const [name, value] of Object.entries({ clock, wallClock, observe })) {
    if (value !== undefined && typeof value !== "function") {
      throw new TypeError(`${name} must be a function, not ${kindOf(value)}`);
    }
  }
  if (clock !== undefined) callInteger("clock", clock(), "0 to 2^61-1 ns");
  if (wallClock !== undefined) callInteger("wallClock", wallClock(), "0 to 2^64-1 ns");
  if (seeder !== undefined && typeof (seeder as Partial<Seeder> | null)?.tryAdmit !== "function") {
    throw new TypeError(`seeder must be a Seeder, not ${kindOf(seeder)}`);
  }
}

/** The policies that have a quota. */
function withQuota({ limits, policies }: Gate): Set<string> {
  const found = new Set<string>();
  for (const [policy, rules] of policies) {
    if (rules.some(([name]) => limits.get(name) instanceof Quota)) found.add(policy);
  }
  return found;
}
