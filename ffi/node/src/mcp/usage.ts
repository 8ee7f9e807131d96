/** What a call has used up: reported by the tool itself, or read from its result's `_meta`. */

import { CallError } from "../index.js";
import { kindOf } from "../text.js";
import { currentContext } from "./context.js";

/** As much as the engine takes: more is counted as this many. */
const MAX_UNITS = 2n ** 64n - 1n;

/** How much of a response is searched for the units that it states. */
export const MAX_READ_CHARS = 4 * 1024 * 1024;

/** The units that the calls of one message have used, as far as anybody has said. What a result
 * states is the whole of it, and is taken in place of what the tool reported. */
export class Usage {
  /** The calls have been settled: what is said from now on counts no more. */
  isOver = false;
  #reported: bigint | undefined;
  #stated: bigint | undefined;

  report(units: bigint): void {
    this.#reported = (this.#reported ?? 0n) + units;
  }

  /** What one result states; a batch has several, which add up. */
  state(units: bigint): void {
    this.#stated = (this.#stated ?? 0n) + units;
  }

  /** What all results of the message state together, whoever has read some of them before. */
  stateAll(units: bigint): void {
    this.#stated = units;
  }

  get reported(): bigint {
    return this.#reported ?? 0n;
  }

  /** Undefined where nobody has said anything. */
  get total(): bigint | undefined {
    const units = this.#stated ?? this.#reported;
    return units !== undefined && units > MAX_UNITS ? MAX_UNITS : units;
  }
}

/** The usages of the present context and this one, which is not noted there twice. */
export function usagesWith(usage: Usage): readonly Usage[] {
  const { usages } = currentContext();
  return usages.includes(usage) ? usages : [...usages, usage];
}

/**
 * Says, from within a tool, that its call has used up so many units more of its quotas: a safe integer
 * or bigint, 0 or more.
 *
 * It counts when the call ends; until then the call has set aside its `reserve`, which is also what
 * it costs where nothing is said. Works in the tool and in whatever it awaits or starts.
 *
 * Returns whether it counts: false outside of a metered call, and where that has ended already. For a
 * middleware alone in front of HTTP, it has once the client is gone: `protectServer` on the same gate
 * goes on until the tool has ended.
 */
export function reportUsage(units: number | bigint): boolean {
  if (typeof units !== "bigint" && typeof units !== "number") {
    throw new TypeError(`units must be a number or bigint, not ${kindOf(units)}`);
  }
  if ((typeof units === "number" && !Number.isSafeInteger(units)) || units < 0) {
    throw new CallError(`units must be a whole number of 0 or more, not ${units}`, "units");
  }
  const usages = currentContext().usages.filter((usage) => !usage.isOver);
  for (const usage of usages) usage.report(BigInt(units));
  return usages.length > 0;
}

/** The units that were reported so far in the present call; 0 outside of one. */
export function usage(): bigint {
  return currentContext().usages.at(-1)?.reported ?? 0n;
}

/** The units that a result states under `key` of its `_meta`. Undefined where it states none, or
 * anything but a whole number from zero on. */
export function statedUnits(result: unknown, key: string): bigint | undefined {
  const meta = member(result, "_meta");
  const units = member(meta, key);
  return typeof units === "number" && Number.isInteger(units) && units >= 0 ? BigInt(units) : undefined;
}

function member(value: unknown, name: string): unknown {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
  return (value as Record<string, unknown>)[name];
}

/** Finds, in a response that passes by, the units that its results state. Reads JSON and event
 * streams, and of each at most `MAX_READ_CHARS` at a time; it changes nothing. */
export class ResponseReader {
  readonly #key: string;
  readonly #isStream: boolean;
  readonly #decoder = new TextDecoder();
  #isReadable: boolean;
  #pending = "";
  #units: bigint | undefined;

  constructor(key: string, contentType: string) {
    const kind = contentType.split(";", 1)[0]!.trim().toLowerCase();
    this.#key = key;
    this.#isStream = kind === "text/event-stream";
    this.#isReadable = this.#isStream || kind === "application/json";
  }

  /** What the results so far state together. */
  get units(): bigint | undefined {
    return this.#units;
  }

  /** Takes in a part of the body. */
  read(chunk: Uint8Array | string): void {
    if (!this.#isReadable) return;
    this.#pending += typeof chunk === "string" ? chunk : this.#decoder.decode(chunk, { stream: true });
    if (this.#isStream) {
      const lines = this.#pending.split(/[\r\n]/);
      this.#pending = lines.pop()!;
      for (const line of lines) if (line.startsWith("data:")) this.#take(line.slice(5));
    }
    if (this.#pending.length > MAX_READ_CHARS) {
      this.#isReadable = false;
      this.#pending = "";
    }
  }

  /** The body is complete. */
  end(): void {
    if (this.#isReadable && !this.#isStream) this.#take(this.#pending);
    this.#isReadable = false;
  }

  #take(text: string): void {
    if (!text.includes("_meta")) return;
    let message: unknown;
    try {
      message = JSON.parse(text);
    } catch {
      return;
    }
    for (const entry of Array.isArray(message) ? (message as unknown[]) : [message]) {
      const units = statedUnits(member(entry, "result"), this.#key);
      if (units !== undefined) this.#units = (this.#units ?? 0n) + units;
    }
  }
}
