/**
 * The memory through which a thread and its seat pass arguments and results: csrc/engine.h says the
 * same of its bytes.
 */

/** Offsets in words of 32 bits. */
export const enum Word {
  Policy = 1,
  Caller = 2,
  Tool = 6,
  Cost = 10,
  Reserve = 12,
  NowNs = 18,
  UnixNs = 20,
  Timing = 22,
  CallerSize = 23,
  ToolSize = 24,
  Status = 25,
  Decision = 26,
  Permit = 38,
  Used = 78,
  Outcome = 80,
  Index = 81,
  Scope = 82,
  Count = 83,
  Start = 84,
  End = 86,
  Figures = 88,
}

/** Offsets in words from the head of a decision. */
export const enum InDecision {
  Reason = 1,
  By = 2,
  RetryAfterNs = 4,
  Limit = 6,
  Remaining = 8,
  ResetAfterNs = 10,
  Words = 12,
}

/** Offsets in words from the head of a call; also those of the exchange, which begins with one. */
export const enum Size {
  CallWords = 18,
  DecisionWords = 12,
  PermitWords = 40,
  CallerText = 872,
  ToolText = 1128,
  TextBytes = 256,
}

/** What a function of a seat leaves in `Status`, apart from the engine's. */
export const enum Status {
  NeedsUnixNs = -3,
  NeedsWindows = -2,
  Closed = -1,
  Ok = 0,
  AlreadySettled = 1,
  Lapsed = 2,
  AlreadySeeded = 3,
  MissingCaller = 24,
  MissingTool = 25,
  FirstOfConfig = 64,
}

/** Bits of `Timing`: which clocks are the caller's. */
export const enum Timing {
  System = 0,
  Now = 1,
  Both = 3,
}

/** The index of no limit, as a signed word. */
export const NO_LIMIT = -1;

const isLittleEndian = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;
/** Where the lower half of a 64-bit number is, and where the upper. */
const LOW = isLittleEndian ? 0 : 1;
const HIGH = 1 - LOW;

/** Writes a number of 0 to 2^64-1. */
export function put(words: Int32Array, at: number, value: number | bigint): void {
  if (typeof value === "number") {
    words[at + LOW] = value | 0;
    words[at + HIGH] = (value / 0x1_0000_0000) | 0;
  } else {
    words[at + LOW] = Number(BigInt.asIntN(32, value));
    words[at + HIGH] = Number(BigInt.asIntN(32, value >> 32n));
  }
}

/** The number of two words as they lie in memory, exactly. */
export function bigintOf(first: number, second: number): bigint {
  const [low, high] = isLittleEndian ? [first >>> 0, second >>> 0] : [second >>> 0, first >>> 0];
  if (high < 0x20_0000) return BigInt(high * 0x1_0000_0000 + low);
  return (BigInt(high) << 32n) | BigInt(low);
}

/** The number of two words, where it is below 2^53; else something above that. */
export function numberOf(first: number, second: number): number {
  const [low, high] = isLittleEndian ? [first, second] : [second, first];
  return (high >>> 0) * 0x1_0000_0000 + (low >>> 0);
}

/** Copies words. */
export function copy(from: Int32Array, fromAt: number, to: Int32Array, toAt: number, count: number): void {
  for (let n = 0; n < count; n++) to[toAt + n] = from[fromAt + n] as number;
}
