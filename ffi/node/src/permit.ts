/** Permit: what an admitted call holds until it is settled. */
import type { Settlement } from "./call.js";
import type { Decision } from "./decision.js";
import type { Engine } from "./engine.js";
import { CallError } from "./errors.js";
import { put, Status, Word } from "./exchange.js";
import { callInteger } from "./integers.js";
import { putPermit, type Ruling } from "./ruling.js";
import { kindOf, listed } from "./text.js";
import { type Integer, type Outcome, OUTCOMES, type Settled } from "./vocabulary.js";

/** What is left of a permit when nobody refers to it any more. */
interface Held {
  readonly ruling: Ruling;
  used: Integer;
  isSettled: boolean;
}

/** Calls that nobody settles: their places are given back, and they keep what they were charged. */
const forgotten = new FinalizationRegistry<Held>((held) => end(held, "abandoned"));

/**
 * What an admitted call holds until it is settled, once: later settlements do nothing.
 *
 *     const permit = gate.admit("authenticated", { caller });    // throws Refused
 *     try {
 *       permit.used(await work());
 *       permit.settle();
 *     } catch (error) {
 *       permit.settle("failure");
 *       throw error;
 *     }
 *
 * `gate.run` does all of that. With `using permit = gate.admit(…)` the end of the block settles as
 * "success", also where an exception leaves it, since a disposal can't see that: say
 * `permit.settle("failure")` before, or take `gate.run`.
 *
 * One of `gate.admit` that is never settled is settled as "abandoned" when the garbage collector
 * finds it. A permit stays in its thread; it keeps its gate's memory.
 */
export class Permit {
  readonly #held: Held;
  readonly #decision: Decision;

  /** @internal */
  constructor(decision: Decision, ruling: Ruling) {
    this.#decision = decision;
    this.#held = { ruling, used: ruling.terms?.reserve ?? 0, isSettled: false };
  }

  /** What was decided: admitted, and what is left. */
  get decision(): Decision {
    return this.#decision;
  }

  /** Whether it has been settled here. */
  get isSettled(): boolean {
    return this.#held.isSettled;
  }

  /**
   * Before it is settled: how many units the call uses up of its quotas, 0 to 2^64-1.
   *
   * In place of what was reserved, and of what was said before. Where a call never says it, its
   * reserve is taken for what it used.
   */
  used(units: Integer): void {
    this.#held.used = callInteger("units", units, "0 to 2^64-1");
  }

  /**
   * Ends the call now. Returns "already_settled" where that was done before, and "lapsed" where its
   * lease was over.
   *
   * `used` defaults to what `used()` said, or else to what was reserved. Where the call was admitted
   * at a time of yours and none is given here, that time is taken. Throws CallError where the gate
   * is closed, or something is out of its range.
   */
  settle(outcome: Outcome = "success", settlement: Settlement = {}): Settled {
    const held = this.#held;
    const { used = held.used, nowNs, unixNs } = checked(settlement);
    if (nowNs !== undefined || unixNs !== undefined) return settle(held, outcome, used, nowNs, unixNs);
    const { terms } = held.ruling;
    return settle(held, outcome, used, terms?.nowNs, terms?.unixNs);
  }

  /** The call never ran: gives back what it was charged, as far as time has not done so. */
  cancel(settlement: Settlement = {}): Settled {
    const { nowNs, unixNs } = checked(settlement);
    return this.settle("cancelled", { used: 0, nowNs, unixNs });
  }

  /** Settles as "success" where that was not done before, and the gate is open. */
  [Symbol.dispose](): void {
    end(this.#held, "success");
  }

  /**
   * Settles where that was not done before, and the gate is open.
   * @internal
   */
  end(outcome: Outcome): void {
    end(this.#held, outcome);
  }

  /**
   * Settles it as abandoned when it is forgotten.
   * @internal
   */
  watch(): this {
    forgotten.register(this, this.#held);
    return this;
  }

  /**
   * For `gate.settle`.
   * @internal
   */
  static settle(permit: unknown, engine: Engine, outcome: Outcome, settlement: Settlement): Settled {
    if (!(permit instanceof Permit)) {
      throw new TypeError(`permit must be a Permit (a refused call has none), not ${kindOf(permit)}`);
    }
    const held = permit.#held;
    if (held.ruling.engine !== engine) throw new CallError("the permit is one of another gate", "permit");
    const { used = 0, nowNs, unixNs } = settlement;
    return settle(held, outcome, used, nowNs, unixNs);
  }

  /** For people. */
  toString(): string {
    return `<callgate.Permit${this.isSettled ? ", settled" : ""}>`;
  }

  /** As `toString`. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }
}

function checked(settlement: Settlement): Settlement {
  if (typeof settlement === "object" && settlement !== null) return settlement;
  throw new TypeError(`the settlement must be an object, not ${kindOf(settlement)}`);
}

function end(held: Held, outcome: Outcome): void {
  const { engine, terms } = held.ruling;
  if (held.isSettled || engine.isClosed) return;
  settle(held, outcome, held.used, terms?.nowNs, terms?.unixNs);
}

function settle(
  held: Held,
  outcome: unknown,
  used: unknown,
  nowNs: Integer | undefined,
  unixNs: Integer | undefined,
): Settled {
  const { engine } = held.ruling;
  const { words } = engine;
  const index = OUTCOMES.indexOf(outcome as Outcome);
  if (index < 0) throw badOutcome(outcome);
  const units = callInteger("used", used, "0 to 2^64-1 units");
  engine.writeClock(nowNs, unixNs);
  if (held.isSettled) return "already_settled";
  putPermit(held.ruling);
  words[Word.Outcome] = index + 1;
  put(words, Word.Used, units);
  engine.seat.settle();
  const status = words[Word.Status] as Status;
  if (status < Status.Ok || status > Status.Lapsed) engine.fail(status);
  held.isSettled = true;
  if (status === Status.Ok) return "ok";
  return status === Status.Lapsed ? "lapsed" : "already_settled";
}

function badOutcome(outcome: unknown): Error {
  if (typeof outcome !== "string") {
    return new TypeError(`outcome must be a string, not ${kindOf(outcome)}`);
  }
  return new CallError(`outcome must be one of ${listed(OUTCOMES)}`, "outcome");
}
