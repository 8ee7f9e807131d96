/** What the middlewares of all web frameworks do with a request, whichever way it comes. */

import { ConfigError, type Gate, type Outcome } from "../index.js";
import { APIKeys, authenticated, withoutKey } from "./api-keys.js";
import { Caller, type RequestFacts } from "./callers.js";
import { Receipt } from "./charge.js";
import { currentContext, within } from "./context.js";
import {
  INVALID_REQUEST,
  type Message,
  parse,
  type ToolCalls,
  toolCalls,
  UnreadableMessage,
} from "./message.js";
import { Meter, type Verdict } from "./meter.js";
import type { MeterOptions } from "./options.js";
import { checkErrorCode, DEFAULT_ERROR_CODE, httpError, httpRefusal, type HttpResponse, UNAVAILABLE } from "./refusal.js";
import { ResponseReader, usagesWith } from "./usage.js";

/** 4 MiB: what the MCP SDKs themselves take at most. */
export const DEFAULT_MAX_BODY_BYTES = 4 * 1024 * 1024;

/** What the middlewares in front of HTTP take. */
export interface HttpOptions<Source = unknown> extends MeterOptions<Source> {
  /** Larger bodies are refused with 413. At least 1; 4 MiB by default. */
  readonly maxBodyBytes?: number;
  /** The JSON-RPC code of a refusal, an integer; -31004 by default. */
  readonly errorCode?: number;
  /** Keys that are demanded of every request; null demands none. By default the environment decides:
   * see `APIKeys.fromEnv`. */
  readonly apiKeys?: APIKeys | "env" | null;
}

/** What is known of an HTTP request. `header` has the first field of a name. */
export interface HttpFacts extends RequestFacts {
  /** All fields of that (lower-case) name, as one list. */
  all(name: string): string;
}

/** The body of a request: as it came, or as somebody has parsed it before. */
export type Body = { readonly bytes: Uint8Array | string } | { readonly value: unknown };

/** What was found in a body. `message` is undefined where no MCP server would read it as JSON. */
export interface Found {
  readonly message: Message | undefined;
  readonly calls: ToolCalls | undefined;
  readonly spentNs: bigint;
}

export class HttpGuard<Source = never> {
  readonly meter: Meter<Source>;
  readonly maxBodyBytes: number;
  readonly #errorCode: number;
  readonly #keys: APIKeys | undefined;

  constructor(gate: Gate | undefined, options: HttpOptions<Source>) {
    const { maxBodyBytes = DEFAULT_MAX_BODY_BYTES, errorCode = DEFAULT_ERROR_CODE, apiKeys = "env" } = options;
    if (!Number.isSafeInteger(maxBodyBytes) || maxBodyBytes < 1) {
      throw new ConfigError(`maxBodyBytes must be a whole number of at least 1, not ${maxBodyBytes}`, "maxBodyBytes");
    }
    checkErrorCode(errorCode);
    if (apiKeys !== null && apiKeys !== "env" && !(apiKeys instanceof APIKeys)) {
      throw new TypeError('apiKeys must be an APIKeys, "env" or null');
    }
    this.meter = new Meter(gate, options);
    this.maxBodyBytes = maxBodyBytes;
    this.#errorCode = errorCode;
    this.#keys = apiKeys === "env" ? APIKeys.fromEnv() : (apiKeys ?? undefined);
  }

  /** What to answer without a known API key, else whom it stands for, and the URL without the key. Where
   * none is demanded, the caller is whom somebody else has verified. */
  authenticate(facts: RequestFacts, url: string): HttpResponse | { caller: Caller | undefined; url: string } {
    if (this.#keys === undefined) {
      return { caller: facts.caller instanceof Caller ? facts.caller : undefined, url };
    }
    const inQuery = withoutKey(url);
    const caller = authenticated(this.#keys, facts, inQuery.key);
    return caller instanceof Caller ? { caller, url: inQuery.url } : caller;
  }

  /** The calls in a body, or what to answer instead of running it. */
  read(body: Body, facts: HttpFacts): Found | HttpResponse {
    const startedNs = process.hrtime.bigint();
    let message: Message | undefined;
    let calls: ToolCalls | undefined;
    try {
      if ("value" in body && typeof body.value !== "string") {
        message = { value: body.value };
        calls = toolCalls(message, this.meter.methods);
      } else {
        const isJson = mayBeJson(facts);
        // The SDKs do not decode, but something on the way may: nobody can say what runs.
        if (isJson && !("value" in body) && isEncoded(facts)) return UNSUPPORTED_CODING;
        try {
          message = parse("value" in body ? (body.value as string) : body.bytes);
          calls = toolCalls(message, this.meter.methods);
        } catch (error) {
          if (!(error instanceof UnreadableMessage)) throw error;
          if (isJson) return httpError(400, { code: error.code, message: error.message });
        }
        if (!isJson) message = undefined;
      }
    } catch (error) {
      if (this.meter.failed(error).isRefused) return httpError(503, UNAVAILABLE);
    }
    return { message, calls, spentNs: process.hrtime.bigint() - startedNs };
  }

  /** Charges the calls of a request: what to answer where they are refused, else how they run. Undefined
   * where there is nothing to charge. */
  async admit(found: Found, source: Source, facts: HttpFacts): Promise<Admission<Source> | HttpResponse | undefined> {
    const { calls, spentNs } = found;
    if (calls === undefined || this.meter.isChargedOutside(calls.entries.length)) return undefined;
    const verdict = await this.meter.decide(calls.entries, source, facts, spentNs);
    if (!verdict.isRefused) return new Admission(this.meter, verdict, calls);
    if (verdict.decision === undefined) return httpError(503, UNAVAILABLE, {}, calls.requestId);
    return httpRefusal(verdict.decision, {
      cost: verdict.cost,
      requestId: calls.requestId,
      policyLimits: this.meter.policyLimits(verdict.policy),
      errorCode: this.#errorCode,
    });
  }

  tooLarge(): HttpResponse {
    const message = `Invalid request: the body is larger than ${this.maxBodyBytes} bytes`;
    return httpError(413, { code: INVALID_REQUEST, message });
  }
}

/** The calls of a request that were let through. */
export class Admission<Source = never> {
  readonly #meter: Meter<Source>;
  readonly #verdict: Verdict;
  readonly #receipt: Receipt;
  readonly #hasId: boolean;
  #reader: ResponseReader | undefined;
  #isOver = false;

  constructor(meter: Meter<Source>, verdict: Verdict, calls: ToolCalls) {
    this.#meter = meter;
    this.#verdict = verdict;
    this.#receipt = new Receipt(meter.gate, calls.entries.length, verdict.hold.charge);
    this.#hasId = calls.requestId !== undefined;
  }

  /** Whether the response is to be read for the units that it states. */
  get readsResponse(): boolean {
    return this.#meter.usageMeta !== undefined;
  }

  /** Runs the application, and whatever it starts, as these calls. */
  run<Result>(application: () => Result): Result {
    const receipts = [...currentContext().receipts, this.#receipt];
    const usages = usagesWith(this.#verdict.hold.charge.usage);
    return within({ receipts, usages }, application);
  }

  /** Takes in a part of the response's body, if it is one that is read. */
  see(chunk: Uint8Array | string, contentType: string): void {
    const key = this.#meter.usageMeta;
    if (key === undefined) return;
    try {
      this.#reader ??= new ResponseReader(key, contentType);
      this.#reader.read(chunk);
    } catch (error) {
      this.#meter.failed(error);
    }
  }

  /** The response is complete: how the calls went depends on its status. */
  complete(status: number): void {
    this.#reader?.end();
    this.end(status >= 500 ? "failure" : "success", status);
  }

  /** The request is over, on whichever way out comes first; later ones change nothing. */
  end(outcome: Outcome, status?: number): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { hold } = this.#verdict;
    if (this.#reader?.units !== undefined) hold.charge.usage.stateAll(this.#reader.units);
    const settle = () => hold.settle(outcome);
    // 202 says that the call runs later: on the older transport its answer goes elsewhere.
    const isToCome = status === 202 && this.#hasId;
    if (!(isToCome && this.#receipt.handOver(settle))) settle();
  }
}

/**
 * Whether any MCP server would read a body of this content type as JSON.
 *
 * Looser than the SDKs' own predicates, so that no spelling is JSON to a server and something else here:
 * they want a media type that is that, or, up to 1.29, that it stands somewhere.
 */
export function mayBeJson(facts: HttpFacts): boolean {
  return facts.all("content-type").toLowerCase().includes("application/json");
}

/** Whether the body comes compressed, or in any other content coding. */
function isEncoded(facts: HttpFacts): boolean {
  const codings = facts.all("content-encoding").split(",");
  return codings.some((coding) => !["", "identity"].includes(coding.trim().toLowerCase()));
}

/** Whether a reader that goes by the charset may read something else than UTF-8. */
export function namesAnotherCharset(facts: HttpFacts): boolean {
  const type = facts.all("content-type");
  return /charset/i.test(type) && !/^[^;]*;\s*charset="?utf-?8"?\s*$/i.test(type);
}

const UNSUPPORTED_CODING = httpError(
  415,
  { code: INVALID_REQUEST, message: "Invalid request: send the body without a content coding" },
  { "accept-encoding": "identity" },
);
