/** In front of handlers that answer a fetch `Request`: the SDK's `createMcpHandler`, and Hono's. */

import type { Gate } from "../index.js";
import { CALLER, type Caller } from "./callers.js";
import { within } from "./context.js";
import { Admission, type Body, type HttpFacts, HttpGuard, type HttpOptions, mayBeJson } from "./http.js";
import { INVALID_REQUEST } from "./message.js";
import { httpError, type HttpResponse } from "./refusal.js";

/** A function that answers a request; the rest of its arguments is passed on. */
export type FetchFunction<Rest extends unknown[] = never[]> = (
  request: Request,
  ...rest: Rest
) => Response | Promise<Response>;

/** Something that answers requests by a method `fetch`. */
export interface FetchHandler {
  fetch: FetchFunction;
}

/**
 * Meters `tools/call` in front of a handler: a function of a `Request`, or whatever has a `fetch`, such
 * as what the SDK's `createMcpHandler` returns. Returns the same with the same properties.
 *
 *     const handler = protect(createMcpHandler(() => makeServer()));
 *     createServer(toNodeHandler(handler));
 *
 * A second argument may be what the SDK's handlers take: `authInfo` of a verified access token, and
 * `parsedBody`, which is counted where it is given. The `caller` function gets the `Request`.
 *
 * An admitted call is settled when the body of the response has been read: as `failure` where it is a
 * 5xx or breaks off, or where the handler throws; as `abandoned` where it is cancelled, never read, or
 * the request is aborted; else as `success`. Otherwise like `protectNode`.
 */
export function protect<Handler extends FetchFunction | FetchHandler>(
  handler: Handler,
  gate?: Gate,
  options: HttpOptions<Request> = {},
): Handler {
  const guard = new HttpGuard<Request>(gate, options);
  const guarded = (answer: FetchFunction<unknown[]>) =>
    ((request: Request, ...rest: unknown[]) =>
      guardFetch(guard, request, rest, answer)) as unknown as FetchFunction;
  if (typeof handler === "function") {
    const answer = guarded(handler as FetchFunction<unknown[]>);
    return new Proxy(handler, { apply: (_target, _this, given) => answer(...(given as [never])) });
  }
  const answer = guarded((request, ...rest) => handler.fetch(request, ...(rest as never[])));
  // A proxy of what is frozen may not have another `fetch`; one of a copy may.
  const seen = Object.isFrozen(handler)
    ? Object.assign(Object.create(Object.getPrototypeOf(handler) as object | null) as Handler, handler)
    : handler;
  return new Proxy(seen, {
    get(_seen, name) {
      if (name === "fetch") return answer;
      const value: unknown = Reflect.get(handler, name, handler);
      return typeof value === "function" ? (value.bind(handler) as unknown) : value;
    },
  });
}

async function guardFetch(
  guard: HttpGuard<Request>,
  original: Request,
  rest: unknown[],
  answer: FetchFunction<unknown[]>,
): Promise<Response> {
  const { authInfo, parsedBody } = (rest[0] ?? {}) as { authInfo?: unknown; parsedBody?: unknown };
  const identified = identify(guard, original, fetchFacts(original, authInfo));
  if (identified instanceof Response) return identified;
  const { request, facts, caller } = identified;
  const meter = async () => {
    const admission = await admitFetch(guard, request, request, facts, parsedBody);
    if (admission instanceof Response) return admission;
    if (admission === undefined) return answer(request, ...rest);
    return runFetch(admission, request.signal, () => answer(request, ...rest));
  };
  return caller === undefined ? meter() : within({ caller }, meter);
}

/** The request without the API key in its URL, and its caller; or what to answer without a known key. */
export function identify<Source>(
  guard: HttpGuard<Source>,
  request: Request,
  facts: HttpFacts,
): Response | { request: Request; facts: HttpFacts; caller: Caller | undefined } {
  const identified = guard.authenticate(facts, request.url);
  if ("status" in identified) return responseOf(identified);
  const { caller, url } = identified;
  if (caller === undefined) return { request, facts, caller };
  const withoutKey: Request & { [CALLER]?: unknown } = url === request.url ? request : new Request(url, request);
  withoutKey[CALLER] = caller;
  return { request: withoutKey, facts: { ...facts, caller }, caller };
}

/** Charges the calls of a request: what to answer where they are refused, else how they run. Undefined
 * where there is nothing to charge. `handOver` is told the message that was counted. */
export async function admitFetch<Source>(
  guard: HttpGuard<Source>,
  request: Request,
  source: Source,
  facts: HttpFacts,
  parsedBody: unknown,
  handOver: (message: unknown) => void = () => undefined,
): Promise<Admission<Source> | Response | undefined> {
  if (request.method !== "POST") return undefined;
  const body = parsedBody === undefined ? await bodyOf(request, facts, guard) : { value: parsedBody };
  if ("status" in body) return responseOf(body);
  const found = guard.read(body, facts);
  if ("status" in found) return responseOf(found);
  if (found.message !== undefined) handOver(found.message.value);
  const admission = await guard.admit(found, source, facts);
  return admission === undefined || admission instanceof Admission ? admission : responseOf(admission);
}

export function fetchFacts(request: Request, authInfo: unknown, caller?: unknown): HttpFacts {
  const field = (name: string) => request.headers.get(name) ?? undefined;
  return {
    header: field,
    all: (name) => field(name) ?? "",
    authInfo,
    caller: caller ?? (request as { [CALLER]?: unknown })[CALLER],
  };
}

/** The body of a request that stays readable, within the bound. */
async function bodyOf<Source>(
  request: Request,
  facts: HttpFacts,
  guard: HttpGuard<Source>,
): Promise<Body | HttpResponse> {
  if (request.bodyUsed) {
    if (!mayBeJson(facts)) return { value: undefined };
    const message = "Invalid request: the body was read before it could be counted";
    return httpError(400, { code: INVALID_REQUEST, message });
  }
  const declared = facts.header("content-length") ?? "";
  if (/^\d+$/.test(declared) && Number(declared) > guard.maxBodyBytes) return guard.tooLarge();
  const reader = request.clone().body?.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  while (reader !== undefined) {
    const { done, value } = await reader.read();
    if (done) break;
    length += value.byteLength;
    if (length > guard.maxBodyBytes) {
      // Both branches, or neither ends.
      void Promise.allSettled([reader.cancel(), request.body?.cancel()]);
      return guard.tooLarge();
    }
    chunks.push(value);
  }
  return { bytes: Buffer.concat(chunks, length) };
}

/** What servers note where there is nobody to answer. */
const CLIENT_CLOSED_REQUEST = 499;

/** Runs the application, and ends the admission with its response. */
export async function runFetch<Source>(
  admission: Admission<Source>,
  signal: AbortSignal,
  application: () => Response | Promise<Response>,
): Promise<Response> {
  if (signal.aborted) {
    admission.end("cancelled");
    return new Response(null, { status: CLIENT_CLOSED_REQUEST });
  }
  const onAbort = () => admission.end("abandoned");
  signal.addEventListener("abort", onAbort, { once: true });
  const end = (settle: () => void) => {
    signal.removeEventListener("abort", onAbort);
    settle();
  };
  try {
    const response = await admission.run(application);
    if (response.body === null) {
      end(() => admission.complete(response.status));
      return response;
    }
    const body = watched(response, admission, end);
    const { status, statusText, headers } = response;
    return new Response(body, { status, statusText, headers });
  } catch (error) {
    end(() => admission.end("failure"));
    throw error;
  }
}

/** The body of a response, which ends the admission on whichever way out it takes. */
function watched<Source>(
  response: Response,
  admission: Admission<Source>,
  end: (settle: () => void) => void,
): ReadableStream<Uint8Array> {
  const type = response.headers.get("content-type") ?? "";
  const reader = response.body!.getReader();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) {
            end(() => admission.complete(response.status));
            controller.close();
          } else {
            admission.see(value, type);
            controller.enqueue(value);
          }
        } catch (error) {
          end(() => admission.end("failure"));
          controller.error(error);
        }
      },
      cancel(reason) {
        end(() => admission.end("abandoned"));
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  // Nobody may ever read it, and then nobody says so.
  unread.register(body, () => {
    end(() => admission.end("abandoned"));
    reader.cancel().catch(() => undefined);
  });
  return body;
}

const unread = new FinalizationRegistry<() => void>((drop) => drop());

function responseOf({ status, headers, body }: HttpResponse): Response {
  return new Response(body, { status, headers: { ...headers } });
}
