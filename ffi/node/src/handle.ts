/** Handles: how a worker thread finds a gate of its process. */
import { addon, type Seat } from "./addon.js";
import { CallError } from "./errors.js";
import { kindOf } from "./text.js";

/** What a thread attaches to: plain data, from `gate.handle()`. It works within one process. */
export interface GateHandle {
  /** The gate's, in this process: 32 hexadecimal digits. */
  readonly callgate: string;
}

/** The handle of the gate of that id. */
export function handleOf(id: Uint8Array): GateHandle {
  return Object.freeze({ callgate: Buffer.from(id).toString("hex") });
}

/** A seat at the gate of a handle, which may be anything. */
export function seatOf(handle: unknown): {
  seat: Seat;
  descriptions: readonly [string, ...(string | null)[]];
  known: GateHandle;
} {
  const given = typeof handle === "object" && handle !== null ? handle : {};
  const { callgate: digits } = given as { callgate?: unknown };
  if (typeof digits !== "string" || !/^[0-9a-f]{32}$/.test(digits)) {
    throw new TypeError(`handle must be what gate.handle() returns, not ${kindOf(handle)}`);
  }
  const id = Uint8Array.from(Buffer.from(digits, "hex"));
  const found = addon.attach(id);
  if (found !== null) return { seat: found[0], descriptions: found[1], known: handleOf(id) };
  const text = "this process has no such gate: all its threads have closed it, or it is another process's";
  throw new CallError(`handle: ${text}`, "handle");
}
