/** What callgate throws, apart from TypeError where a value is of a wrong type. */
import type { Decision } from "./decision.js";
import { durationText } from "./durations.js";
import { quoted } from "./text.js";
import type { Reason } from "./vocabulary.js";

/** The base of what callgate throws. */
export class CallgateError extends Error {
  static {
    this.prototype.name = "CallgateError";
  }
}

/** A gate can't be made, or a limit can't be changed so. The message says what is allowed. */
export class ConfigError extends CallgateError {
  static {
    this.prototype.name = "ConfigError";
  }
  /** The field to blame: "count", "periodNs", "burst", "scope", "capacity", … */
  readonly field: string;
  /** The name of the limit that it belongs to, or null. */
  readonly limit: string | null;
  /** The name of the policy that it belongs to, or null. */
  readonly policy: string | null;

  constructor(
    message: string,
    field: string,
    where: { limit?: string | null; policy?: string | null } = {},
  ) {
    super(message);
    this.field = field;
    this.limit = where.limit ?? null;
    this.policy = where.policy ?? null;
  }
}

/** A call can't be decided or settled; nothing was charged. The message says what is allowed. */
export class CallError extends CallgateError {
  static {
    this.prototype.name = "CallError";
  }
  /** The argument to blame: "policy", "caller", "cost", "nowNs", …, or null. */
  readonly field: string | null;

  constructor(message: string, field: string | null = null) {
    super(message);
    this.field = field;
  }
}

/** `Gate.admit` refuses the call. `decision` says why, and when to come back. */
export class Refused extends CallgateError {
  static {
    this.prototype.name = "Refused";
  }
  /** What was decided. */
  readonly decision: Decision;

  constructor(decision: Decision) {
    super(refusalText(decision));
    this.decision = decision;
    // With it, a log would print what the message says already.
    Object.defineProperty(this, "decision", { enumerable: false });
  }

  /** Why: "rate", "table_full", … */
  get reason(): Reason {
    return this.decision.reason as Reason;
  }

  /** The name of the limit that refused. */
  get by(): string {
    return this.decision.by as string;
  }

  /** The limit that refused would admit the call in exactly so many nanoseconds; 0 where no time is known. */
  get retryAfterNs(): bigint {
    return this.decision.retryAfterNs;
  }

  /** What the limit holds when nobody has charged it: tokens, places or units. */
  get limit(): number | bigint {
    return this.decision.limit;
  }

  /** What is left of that. */
  get remaining(): number | bigint {
    return this.decision.remaining;
  }

  /** All of it is back in so many nanoseconds. */
  get resetAfterNs(): bigint {
    return this.decision.resetAfterNs;
  }
}

function refusalText(decision: Decision): string {
  const head = `refused by limit ${quoted(decision.by ?? "")} (${decision.reason})`;
  if (decision.reason === "never") {
    return `${head}: the call asks for more than the ${decision.limit} that it can ever hold`;
  }
  if (decision.reason === "concurrency") {
    return `${head}: all of its ${decision.limit} places are taken`;
  }
  if (decision.reason === "unseeded") return `${head}: it waits to be told what was used before`;
  if (decision.retryAfterNs === 0n) return `${head}: try again later`;
  return `${head}: retry in ${durationText(decision.retryAfterNs)}`;
}

/** What the engine calls its fields, where a program sees them under another name. */
const FIELDS: Readonly<Record<string, string>> = {
  limit_count: "limits",
  policy_count: "policies",
  rule_count: "rules",
};

function nameOf(field: string): string {
  return FIELDS[field] ?? field.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function sentenceOf(sentence: string): string {
  return sentence.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, nameOf);
}

/** The engine's verdict on a configuration, in the words of this package. */
export function configError(
  field: string | null,
  sentence: string,
  where: { limit?: string | null; policy?: string | null } = {},
): ConfigError {
  const blamed = [];
  if (where.limit != null) blamed.push(`limit ${quoted(where.limit)}`);
  if (where.policy != null) blamed.push(`policy ${quoted(where.policy)}`);
  const text = [...blamed, sentenceOf(sentence)].join(": ");
  return new ConfigError(text, nameOf(field ?? ""), where);
}

/** What the engine has against a call, the argument named first. */
export function callError(field: string | null, sentence: string): CallError {
  const name = field === null ? null : nameOf(field);
  const text = sentenceOf(sentence);
  return new CallError(name === null || text.startsWith(name) ? text : `${name}: ${text}`, name);
}
