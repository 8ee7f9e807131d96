/** Durations: "250ms", or whole nanoseconds. */
import { quoted } from "./text.js";

const UNITS_NS: Readonly<Record<string, bigint>> = {
  ns: 1n,
  us: 1_000n,
  ms: 1_000_000n,
  s: 1_000_000_000n,
  m: 60_000_000_000n,
  h: 3_600_000_000_000n,
  d: 86_400_000_000_000n,
  w: 604_800_000_000_000n,
};

export const SECOND_NS = UNITS_NS.s as bigint;
export const DAY_NS = UNITS_NS.d as bigint;

const DURATION = /^([0-9]{1,20}) ?(ns|us|ms|s|m|h|d|w)$/;

/** The nanoseconds of a duration such as "250ms"; where it is none, what is wrong with it. */
export function parseDuration(text: string): bigint | string {
  const found = DURATION.exec(text);
  if (found === null) {
    return (
      `${quoted(text)} is not a duration: write a whole number and one of the units ` +
      `${Object.keys(UNITS_NS).join(", ")}, as in '250ms', '1s', '5m', '1d'; or whole nanoseconds`
    );
  }
  return BigInt(found[1] as string) * (UNITS_NS[found[2] as string] as bigint);
}

/** A duration to be read by people: three digits and the unit that suits them. */
export function durationText(ns: bigint): string {
  for (const unit of ["d", "h", "m", "s", "ms", "us"]) {
    const unitNs = UNITS_NS[unit] as bigint;
    if (ns >= unitNs) return `${threeDigits(Number(ns) / Number(unitNs))} ${unit}`;
  }
  return `${ns} ns`;
}

/** A number from 1 on with three digits, without zeros at its end; half goes to the even one. */
function threeDigits(number: number): string {
  const places = number < 10 ? 2 : number < 100 ? 1 : 0;
  const scaled = number * 10 ** places;
  const isHalf = number < 1000 && Number.isInteger(number * 8) && scaled % 1 === 0.5;
  const even = isHalf && Math.floor(scaled) % 2 === 0 ? Math.floor(scaled) / 10 ** places : number;
  const [digits, exponent] = even.toPrecision(3).split("e+") as [string, string?];
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return exponent === undefined ? short : `${short}e+${exponent.padStart(2, "0")}`;
}
