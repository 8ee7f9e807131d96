/** Runs one tool call under a gate, inside a server. */

import type { Outcome } from "../index.js";
import type { RequestFacts } from "./callers.js";
import type { Entry } from "./message.js";
import type { Meter, Verdict } from "./meter.js";
import { type JsonRpcError, jsonRpcRefusal, UNAVAILABLE } from "./refusal.js";
import { statedUnits } from "./usage.js";

export interface ServerCall<Source, Result> {
  readonly entry: Entry;
  readonly source: Source;
  readonly facts: RequestFacts | undefined;
  readonly signal: AbortSignal | undefined;
  readonly errorCode: number;
  readonly call: () => Result | Promise<Result>;
  /** Answers in place of the call, or throws. */
  readonly refuse: (error: JsonRpcError) => Result;
  /** Whether an error is about what the client sent: bad arguments, an unknown tool. */
  readonly isClientFault: (error: unknown) => boolean;
  /** What a result says of how the call went. */
  readonly outcomeOf: (result: Result) => Outcome;
}

/**
 * Charges and runs one call, or refuses it.
 *
 * A call that the server makes in the course of one it was charged for costs nothing, and so does one
 * that an outer middleware on the same gate has charged: it keeps that one's places until it has
 * ended, too. It has ended when its handler has: one that ignores its signal keeps its place, since
 * otherwise a client could have any number of them run by cancelling each.
 */
export async function runCall<Source, Result>(
  meter: Meter<Source>,
  request: ServerCall<Source, Result>,
): Promise<Result> {
  if (meter.isWithinChargedCall()) return request.call();
  let hold = meter.takeReceipt();
  if (hold === undefined) {
    const verdict = await meter.decide([request.entry], request.source, request.facts);
    if (verdict.isRefused) return request.refuse(errorOf(verdict, request.errorCode));
    hold = verdict.hold;
  }
  let outcome: Outcome = "failure";
  try {
    const result = await meter.chargedCall(hold.charge, request.call);
    outcome = request.outcomeOf(result as Result);
    if (meter.usageMeta !== undefined) {
      const units = statedUnits(result, meter.usageMeta);
      if (units !== undefined) hold.charge.usage.state(units);
    }
    return result as Result;
  } catch (error) {
    // Bad arguments and unknown tools say nothing about the server's health, and no caller should be
    // able to open its breaker with them. The call stays charged.
    if (request.isClientFault(error)) outcome = "abandoned";
    throw error;
  } finally {
    hold.settle(request.signal?.aborted ? "abandoned" : outcome);
  }
}

function errorOf({ decision, cost }: Verdict, errorCode: number): JsonRpcError {
  return decision === undefined ? UNAVAILABLE : jsonRpcRefusal(decision, cost, errorCode);
}
