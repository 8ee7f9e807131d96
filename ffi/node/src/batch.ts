/** Batch: many calls decided in one crossing into the engine. */
import type { BatchCall, Clock } from "./call.js";
import { Decision, decisionWords } from "./decision.js";
import type { Engine, Terms } from "./engine.js";
import { CallError } from "./errors.js";
import { Size, Status } from "./exchange.js";
import { kindOf } from "./text.js";

const CALLS_MAX = 4096;
const CALL_BYTES = 4 * (Size.CallWords + Size.DecisionWords + Size.PermitWords);

export class Batch {
  readonly #engine: Engine;
  /** Grows to what the largest batch needed. */
  #words = new Int32Array(0);

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  tryAdmit(calls: readonly BatchCall[], clock: Clock): Decision[] {
    if (!Array.isArray(calls)) throw new TypeError(`calls must be an array, not ${kindOf(calls)}`);
    if (calls.length > CALLS_MAX) {
      throw new CallError(`calls must be 0 to ${CALLS_MAX}, not ${calls.length}`, "calls");
    }
    const engine = this.#engine;
    const { nowNs, unixNs } = clock;
    // Code of the callers', such as getters, may run here: it must not meet a batch half written.
    const asked = Array.from(calls as readonly BatchCall[], (call) => {
      if (typeof call !== "object" || call === null) {
        throw new TypeError(`a call must be an object, not ${kindOf(call)}`);
      }
      const { policy, caller, tool, cost, reserve } = call;
      return { policy, caller, tool, cost, reserve };
    });
    const count = asked.length;
    if (this.#words.byteLength < count * CALL_BYTES) this.#words = new Int32Array((count * CALL_BYTES) / 4);
    const words = this.#words;
    const terms = asked.map((call, n): Terms | null => {
      const { reserve } = engine.prepare(call.policy, call) ?? {};
      engine.identities.finish();
      words.set(engine.words.subarray(0, Size.CallWords), n * Size.CallWords);
      if (reserve === undefined && nowNs === undefined) return null;
      return { reserve: reserve ?? 0, nowNs, unixNs };
    });
    engine.writeClock(nowNs, unixNs);
    const status = engine.cross(() => engine.seat.admitMany(words.buffer as ArrayBuffer, count));
    if (status !== Status.Ok) throw this.#fault(status, asked);
    const decisionsAt = count * Size.CallWords;
    const permitsAt = decisionsAt + count * Size.DecisionWords;
    return terms.map((held, n) => {
      const at = decisionsAt + n * Size.DecisionWords;
      return new Decision(engine, decisionWords(words, at, permitsAt + n * Size.PermitWords), held);
    });
  }

  /** The engine does not say which call is at fault: the first that peeking finds so. */
  #fault(status: Status, asked: readonly BatchCall[]): Error {
    const engine = this.#engine;
    const isOfOne = status === Status.MissingCaller || status === Status.MissingTool;
    const at = asked.find(({ policy, caller, tool }) => {
      engine.prepare(policy, { caller, tool, nowNs: 0, unixNs: 0 });
      return isOfOne && engine.cross(engine.seat.peek) === status;
    });
    return engine.fault(status, at?.policy);
  }
}
