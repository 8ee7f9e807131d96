/** Batch: many calls decided in one crossing into the engine. */
import type { BatchCall, Clock } from "./call.js";
import { Decision } from "./decision.js";
import { type Engine, type Terms, USUAL } from "./engine.js";
import { CallError } from "./errors.js";
import { copy, Size, Status } from "./exchange.js";
import { putDecided, takeRuling } from "./ruling.js";
import { kindOf } from "./text.js";

const CALLS_MAX = 4096;
const CALL_BYTES = 4 * (Size.CallWords + Size.DecisionWords + Size.PermitWords);

const NONE: Words = new Int32Array(0);

type Words = Int32Array<ArrayBuffer>;

export class Batch {
  readonly #engine: Engine;
  /** Grows to what the largest batch needed. */
  #words = NONE;

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  tryAdmit(calls: readonly BatchCall[], clock: Clock): Decision[] {
    if (!Array.isArray(calls)) throw new TypeError(`calls must be an array, not ${kindOf(calls)}`);
    const engine = this.#engine;
    const { nowNs, unixNs } = clock;
    const count = calls.length;
    if (!(Number.isInteger(count) && count >= 0 && count <= CALLS_MAX)) {
      throw new CallError(`calls must be 0 to ${CALLS_MAX}, not ${count}`, "calls");
    }
    // Taken away meanwhile: code of the callers', such as getters, may come here, too.
    const words = this.#take(count);
    const terms: (Terms | null)[] = [];
    for (let n = 0; n < count; n++) {
      const call = calls[n] as BatchCall;
      if (typeof call !== "object" || call === null) {
        throw new TypeError(`a call must be an object, not ${kindOf(call)}`);
      }
      const own = engine.prepare(call.policy, call);
      engine.makeKeys();
      copy(engine.words, 0, words, n * Size.CallWords, Size.CallWords);
      const { cost, reserve } = own ?? USUAL;
      terms.push(own === null && nowNs === undefined ? null : { cost, reserve, nowNs, unixNs });
    }
    engine.writeClock(nowNs, unixNs);
    const status = engine.cross(() => engine.seat.admitMany(words.buffer, count));
    if (status !== Status.Ok) throw this.#fault(status, calls);
    const decisionsAt = count * Size.CallWords;
    const permitsAt = decisionsAt + count * Size.DecisionWords;
    const decisions = terms.map((held, n) => {
      putDecided(engine, words, decisionsAt + n * Size.DecisionWords, permitsAt + n * Size.PermitWords);
      return new Decision(takeRuling(engine, held));
    });
    this.#words = words;
    return decisions;
  }

  /** Memory for so many calls: what an earlier batch has left, where that will do. */
  #take(count: number): Words {
    const words = this.#words;
    this.#words = NONE;
    return words.byteLength < count * CALL_BYTES ? new Int32Array((count * CALL_BYTES) / 4) : words;
  }

  /** The engine does not say which call is at fault: the first that peeking finds so. */
  #fault(status: Status, calls: readonly BatchCall[]): Error {
    const engine = this.#engine;
    const isOfOne = status === Status.MissingCaller || status === Status.MissingTool;
    const at = calls.find(({ policy, caller, tool }) => {
      engine.prepare(policy, { caller, tool, nowNs: 0, unixNs: 0 });
      return isOfOne && engine.cross(engine.seat.peek) === status;
    });
    return engine.fault(status, at?.policy);
  }
}
