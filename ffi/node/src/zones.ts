/** Calendar days in time zones: where the windows of a quota with a `tz` begin and end. */
import { ConfigError } from "./errors.js";
import { kindOf, quoted } from "./text.js";

/**
 * A day is set that long before it begins. Until then the engine's windows have its length, but end
 * when it begins, as they should.
 */
export const AHEAD_S = 60;

const DAY_S = 86_400;

/** A time zone, by its IANA name. */
export class Zone {
  readonly #format: Intl.DateTimeFormat;

  /** Throws ConfigError where there is no zone of that name, TypeError where it is no name. */
  constructor(readonly name: string) {
    if (typeof name !== "string") {
      throw new TypeError(`tz must be an IANA name such as 'Europe/Berlin', not ${kindOf(name)}`);
    }
    const format = /^[A-Za-z]/.test(name) ? formatOf(name) : null; // no offsets such as "+08:00"
    if (format === null) {
      throw new ConfigError(
        `tz: ${quoted(name)} is not a time zone known here; it must be an IANA name such as` +
          " 'Europe/Berlin'",
        "tz",
      );
    }
    this.#format = format;
  }

  /** When the calendar day of that second begins and ends, in seconds since the Unix epoch. */
  dayOf(unixS: number): [start: number, end: number] {
    const wallS = unixS + this.#offsetS(unixS);
    const midnightS = wallS - (((wallS % DAY_S) + DAY_S) % DAY_S);
    return [Math.max(0, this.#first(midnightS)), this.#first(midnightS + DAY_S)];
  }

  /**
   * When clocks first show a midnight, given as if the zone were UTC: of two the first, of one that
   * is skipped the instant at which the clock jumps over it.
   */
  #first(midnightS: number): number {
    const before = midnightS - this.#offsetS(midnightS - DAY_S);
    const after = midnightS - this.#offsetS(midnightS + DAY_S);
    const isShown = (s: number): boolean => s + this.#offsetS(s) === midnightS;
    return isShown(before) || !isShown(after) ? before : after;
  }

  /** How far the zone's clocks are ahead of UTC at a second. */
  #offsetS(unixS: number): number {
    const parts: Record<string, number> = {};
    for (const { type, value } of this.#format.formatToParts(unixS * 1000)) {
      parts[type] = Number(value);
    }
    const { year, month, day, hour, minute, second } = parts as Record<string, number>;
    const wall = new Date(0);
    wall.setUTCFullYear(year as number, (month as number) - 1, day);
    wall.setUTCHours(hour as number, minute, second);
    return wall.getTime() / 1000 - unixS;
  }
}

/** One costs as much memory as a small gate, and a process has few zones. */
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(name: string): Intl.DateTimeFormat | null {
  const known = formats.get(name);
  if (known !== undefined) return known;
  try {
    const format = new Intl.DateTimeFormat("en-US", {
      timeZone: name,
      calendar: "iso8601",
      numberingSystem: "latn",
      hourCycle: "h23",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
    formats.set(name, format);
    return format;
  } catch {
    return null;
  }
}
