/** Whole numbers as arguments. */
import { CallError, ConfigError } from "./errors.js";
import { kindOf, shown } from "./text.js";
import type { Integer } from "./vocabulary.js";

export const U64_MAX = 2n ** 64n - 1n;
const WHOLE = "a whole number (up to 2^53-1, or a bigint)";

/** A number of a configuration. Its range is looked at elsewhere. */
export function configInteger(name: string, value: unknown, wanted = WHOLE): bigint {
  if (typeof value === "bigint") return value;
  if (typeof value !== "number") throw new TypeError(`${name} must be ${wanted}, not ${kindOf(value)}`);
  if (Number.isSafeInteger(value)) return BigInt(value);
  throw new ConfigError(`${name} must be ${wanted}, not ${value}`, name);
}

/** A number of a call, 0 to 2^64-1. `allowed` is said where it is none. */
export function callInteger(name: string, value: unknown, allowed: string): Integer {
  if (typeof value === "number" ? isCount(value) : isU64(value)) return value as Integer;
  if (typeof value !== "number" && typeof value !== "bigint") {
    throw new TypeError(`${name} must be ${WHOLE}, not ${kindOf(value)}`);
  }
  throw new CallError(`${name} must be ${allowed}: ${WHOLE}, not ${shown(value)}`, name);
}

function isCount(value: number): boolean {
  return Number.isSafeInteger(value) && value >= 0;
}

function isU64(value: unknown): boolean {
  return typeof value === "bigint" && value >= 0n && value <= U64_MAX;
}

/** A number where it is one without loss, else a bigint. */
export function narrowed(value: bigint): Integer {
  return value <= BigInt(Number.MAX_SAFE_INTEGER) && value >= BigInt(Number.MIN_SAFE_INTEGER)
    ? Number(value)
    : value;
}
