/** One refusal, three renderings: an HTTP response, a JSON-RPC error, a sentence for a model. */

import { ConfigError, type Decision, RateLimit } from "../index.js";
import { shown } from "../text.js";
import type { RequestId } from "./message.js";

/** The JSON-RPC code of a refusal: outside the ranges that JSON-RPC and MCP reserve. */
export const DEFAULT_ERROR_CODE = -31004;

/** Throws a `ConfigError` for anything but an integer. */
export function checkErrorCode(errorCode: number): void {
  if (!Number.isSafeInteger(errorCode)) {
    throw new ConfigError(`errorCode must be an integer, not ${shown(errorCode)}`, "errorCode");
  }
}

const INTERNAL_ERROR = -32603;
const NS_PER_MS = 1_000_000n;
const NS_PER_S = 1_000_000_000n;

/** The largest integer that HTTP structured fields can carry (RFC 9651, section 3.3.1). */
const MAX_FIELD_INTEGER = 999_999_999_999_999n;

/** Refusals that are about the server, not about this caller's own use: 503 instead of 429. */
const UNAVAILABLE_REASONS: ReadonlySet<unknown> = new Set(["concurrency", "breaker_open", "unseeded"]);

/** What a refusal is rendered from: a `Decision`, or whatever has its fields. */
export type Refusal = Pick<Decision, "reason" | "by" | "retryAfterNs" | "limit" | "remaining">;

/** A complete HTTP response: its status, header fields with lower-case names, and body. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** The `error` member of a JSON-RPC response. */
export interface JsonRpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

/** What is answered after an internal error where `onError` is `"refuse"`. */
export const UNAVAILABLE: JsonRpcError = {
  code: INTERNAL_ERROR,
  message: "The call limiter failed, and this server refuses calls then.",
};

/**
 * The HTTP response for a refused call or batch of `cost` calls. `policyLimits` are the limits of the
 * policy that was applied, by name and in order. The id is echoed with its type, and omitted where
 * there is none to echo.
 */
export function httpRefusal(
  decision: Refusal,
  options: {
    cost: number;
    requestId: RequestId | undefined;
    policyLimits: ReadonlyMap<string, unknown>;
    errorCode: number;
  },
): HttpResponse {
  const waitS = retryAfterS(decision);
  const error = jsonRpcRefusal(decision, options.cost, options.errorCode);
  const id = options.requestId === undefined ? "" : `"id":${json(options.requestId)},`;
  return response(
    UNAVAILABLE_REASONS.has(decision.reason) ? 503 : 429,
    `{"jsonrpc":"2.0",${id}"error":${json(error)}}`,
    {
      ...(waitS !== undefined && { "retry-after": String(waitS) }),
      ...rateLimitFields(decision, options.policyLimits, waitS),
    },
  );
}

/** The HTTP response for a message that the gate was never asked about: unreadable, too large, …
 * Without an id it says `"id":null`, as JSON-RPC 2.0 wants of a message whose id could not be read. */
export function httpError(
  status: number,
  error: JsonRpcError,
  headers: Readonly<Record<string, string>> = {},
  requestId?: RequestId,
): HttpResponse {
  return response(status, `{"jsonrpc":"2.0","id":${json(requestId ?? null)},"error":${json(error)}}`, headers);
}

/** The JSON-RPC error of a refusal. `data.retryAfterMs` is null where no wait is known. */
export function jsonRpcRefusal(decision: Refusal, cost = 1, errorCode = DEFAULT_ERROR_CODE): JsonRpcError {
  return { code: errorCode, message: sentence(decision, cost), data: refusalData(decision) };
}

/** The `data` of a refusal: the reason, the limit, and the wait in milliseconds or null. */
export function refusalData(decision: Refusal): Record<string, unknown> {
  return {
    reason: decision.reason,
    limit: decision.by,
    retryAfterMs: retryAfterMs(decision) ?? null,
  };
}

/** One or two sentences that a model can pass on or act upon. They never name the caller. */
export function sentence(decision: Refusal, cost = 1): string {
  const by = quoted(decision.by ?? "");
  if (decision.reason === "never" && cost <= decision.limit) {
    return (
      `This request sets aside more of the allowance ${by} than it ever holds, ${decision.limit}. ` +
      "No retry can help."
    );
  }
  if (decision.reason === "never") {
    return (
      `This request holds ${cost} tool calls, and the limit ${by} never lets more than ` +
      `${decision.limit} through at once. Send fewer calls at a time.`
    );
  }
  const waitMs = retryAfterMs(decision);
  const wait = waitMs === undefined ? "Try again in a moment." : `Try again in ${spoken(waitMs)}.`;
  return `${what(decision, by)} ${wait}`;
}

function what(decision: Refusal, by: string): string {
  switch (decision.reason) {
    case "concurrency":
      return `The server is busy: it runs ${decision.limit} tool calls at once, and no more.`;
    case "breaker_open":
      return "The server is overloaded and takes no tool calls right now.";
    case "quota":
      return `The allowance ${by} is used up.`;
    case "unseeded":
      return `The server does not know yet what is left of the allowance ${by}.`;
    case "table_full":
      return "The server is keeping track of as many callers as it can.";
    default:
      return `Too many tool calls: the limit ${by} is reached.`;
  }
}

/** Milliseconds until a retry can be admitted, rounded up; undefined where no time is known. */
export function retryAfterMs(decision: Refusal): number | undefined {
  const waitNs = BigInt(decision.retryAfterNs);
  if (decision.reason === "never" || waitNs <= 0n) return undefined;
  return Number(ceilDiv(waitNs, NS_PER_MS));
}

/** `Retry-After`: whole seconds, rounded up, at least 1; undefined where no retry can succeed. */
export function retryAfterS(decision: Refusal): bigint | undefined {
  if (decision.reason === "never") return undefined;
  return clamp(ceilDiv(BigInt(decision.retryAfterNs), NS_PER_S), 1n);
}

/**
 * `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-10).
 *
 * The policy field lists the rate limits of the policy: `q` is the burst, and `w` the seconds in
 * which an empty bucket fills, since that many calls in that many seconds is what the limit amounts
 * to.
 */
function rateLimitFields(
  decision: Refusal,
  policyLimits: ReadonlyMap<string, unknown>,
  waitS: bigint | undefined,
): Record<string, string> {
  const fields: Record<string, string> = {};
  if (policyLimits.get(decision.by ?? "") instanceof RateLimit) {
    const reset = waitS === undefined ? "" : `;t=${waitS}`;
    fields.ratelimit = `${fieldString(decision.by ?? "")};r=${clamp(BigInt(decision.remaining), 0n)}${reset}`;
  }
  const items: string[] = [];
  for (const [name, limit] of policyLimits) {
    if (!(limit instanceof RateLimit)) continue;
    items.push(`${fieldString(name)};q=${clamp(BigInt(limit.burst), 0n)};w=${windowS(limit)}`);
  }
  if (items.length > 0) fields["ratelimit-policy"] = items.join(", ");
  return fields;
}

function windowS(limit: RateLimit): bigint {
  const fillNs = ceilDiv(BigInt(limit.burst) * BigInt(limit.periodNs), BigInt(limit.count));
  return clamp(ceilDiv(fillNs, NS_PER_S), 1n);
}

function ceilDiv(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

function clamp(value: bigint, least: bigint): bigint {
  if (value < least) return least;
  return value > MAX_FIELD_INTEGER ? MAX_FIELD_INTEGER : value;
}

/** `name` as a structured-field string: printable ASCII, the rest replaced. */
function fieldString(name: string): string {
  const printable = name.replace(/[^ -~]/gu, "?");
  return `"${printable.replace(/[\\"]/g, "\\$&")}"`;
}

/** `name` in single quotes, or in double ones where it has a single one itself. */
function quoted(name: string): string {
  const mark = name.includes("'") && !name.includes('"') ? '"' : "'";
  const escaped = name.replace(/[\\\n\r\t]/g, (c) => JSON.stringify(c).slice(1, -1));
  return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark;
}

function spoken(waitMs: number): string {
  if (waitMs < 1_000) return `${waitMs} milliseconds`;
  if (waitMs < 120_000) return `${(Math.ceil(waitMs / 100) / 10).toFixed(1)} seconds`;
  const minutes = Math.ceil(waitMs / 60_000);
  return minutes < 120 ? `${minutes} minutes` : `${Math.ceil(minutes / 60)} hours`;
}

/** JSON in ASCII, so that its length in bytes is its length. */
function json(value: unknown): string {
  if (typeof value === "bigint") return String(value);
  return JSON.stringify(value).replace(
    /[\u007f-\uffff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function response(status: number, body: string, headers: Readonly<Record<string, string>>): HttpResponse {
  const fixed = {
    "content-type": "application/json",
    "content-length": String(body.length),
    // A refusal is about this instant and this caller: no cache may answer the next call with it.
    "cache-control": "no-store",
  };
  return { status, headers: { ...fixed, ...headers }, body };
}
