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

const SHOWN_UNITS = ["d", "h", "m", "s", "ms", "us"] as const;

/** A duration to be read by people: three digits and the unit that suits them. Rounded up, so that who
 * waits for so long has not waited too short. */
export function durationText(ns: bigint): string {
  const first = unitOf(ns);
  if (first === undefined) return `${ns} ns`;
  const roundedNs = roundedUp(ns, UNITS_NS[first] as bigint);
  // 999.9 ms are 1000 ms, and that is 1 s.
  const unit = unitOf(roundedNs) as string;
  const unitNs = UNITS_NS[unit] as bigint;
  const whole = roundedNs / unitNs;
  const decimals = decimalsBehind(whole);
  const part = ((roundedNs % unitNs) * 10n ** BigInt(decimals)) / unitNs;
  const digits = String(part).padStart(decimals, "0").replace(/0+$/, "");
  return `${whole}${part === 0n ? "" : `.${digits}`} ${unit}`;
}

function unitOf(ns: bigint): string | undefined {
  return SHOWN_UNITS.find((unit) => ns >= (UNITS_NS[unit] as bigint));
}

function roundedUp(ns: bigint, unitNs: bigint): bigint {
  const whole = ns / unitNs;
  const tooMany = Math.max(0, String(whole).length - 3);
  const stepNs = (unitNs / 10n ** BigInt(decimalsBehind(whole))) * 10n ** BigInt(tooMany);
  return ((ns + stepNs - 1n) / stepNs) * stepNs;
}

/** So many digits stand behind so many units, to have three. */
function decimalsBehind(whole: bigint): number {
  return Math.max(0, 3 - String(whole).length);
}
