/** In front of node's own HTTP server, and of express: both speak in node's requests and responses. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";

import type { Gate } from "../index.js";
import { CALLER } from "./callers.js";
import { within } from "./context.js";
import { Admission, type Body, HttpGuard, type HttpFacts, type HttpOptions, mayBeJson, namesAnotherCharset } from "./http.js";
import { INVALID_REQUEST } from "./message.js";
import { BodyTooLarge, ClientGone, readBody } from "./node-body.js";
import { httpError, type HttpResponse } from "./refusal.js";

/** A request of node's HTTP server, with what middlewares leave on it. */
export interface NodeRequest extends IncomingMessage {
  /** The parsed body. */
  body?: unknown;
  /** The SDKs' `AuthInfo` of a verified access token. */
  auth?: unknown;
  originalUrl?: string;
  query?: unknown;
  [CALLER]?: unknown;
}

/** What answers a request; `parsedBody` is the message that was counted, for the SDKs' transports. */
export type NodeHandler<Request extends IncomingMessage = IncomingMessage> = (
  request: Request,
  response: ServerResponse,
  parsedBody: unknown,
) => unknown;

/** A middleware in the manner of express and connect. */
export type ExpressMiddleware = (
  request: IncomingMessage,
  response: ServerResponse,
  next: (error?: unknown) => void,
) => void;

/**
 * Meters `tools/call` in front of a handler of node's HTTP server:
 *
 *     createServer(protectNode((req, res, parsedBody) => transport.handleRequest(req, res, parsedBody)))
 *
 * An admitted call is settled when the response ends: as `failure` where it is a 5xx or breaks off, or
 * where the handler throws; as `abandoned` where the client left first; else as `success`.
 *
 * Authentication belongs before it, and leaves its `AuthInfo` in `request.auth`; or `caller` gets the
 * request. `gate` is by default the process's gate from the environment (`defaultGate`). It needs a
 * policy `anonymous`, and `authenticated` unless `caller` is given; `forwarded-bearer` is used where it
 * exists. Throws a `ConfigError` or `TypeError` that names an option that is out of its range.
 */
export function protectNode<Request extends IncomingMessage = IncomingMessage>(
  handler: NodeHandler<Request>,
  gate?: Gate,
  options: HttpOptions<Request> = {},
): (request: Request, response: ServerResponse) => Promise<void> {
  const guard = new HttpGuard<Request>(gate, options);
  return (request, response) =>
    guardNode(guard, request, response, (parsedBody) => handler(request, response, parsedBody));
}

/**
 * The same as a middleware of express, at the route of the MCP endpoint and after its authentication:
 *
 *     app.post("/mcp", requireBearerAuth(…), expressMiddleware(), (req, res) =>
 *       transport.handleRequest(req, res, req.body));
 *
 * It leaves the message that it has counted in `req.body`. Where `express.json()` comes before it, what
 * that has parsed is counted.
 */
export function expressMiddleware<Request extends IncomingMessage = IncomingMessage>(
  gate?: Gate,
  options: HttpOptions<Request> = {},
): ExpressMiddleware {
  const guard = new HttpGuard<Request>(gate, options);
  return (request, response, next) => {
    guardNode(guard, request as Request, response, () => next()).catch(next);
  };
}

async function guardNode<Request extends NodeRequest>(
  guard: HttpGuard<Request>,
  request: Request,
  response: ServerResponse,
  proceed: (parsedBody: unknown) => unknown,
): Promise<void> {
  const identified = guard.authenticate(nodeFacts(request), request.originalUrl ?? request.url ?? "/");
  if ("status" in identified) return send(response, identified);
  const { caller, url } = identified;
  if (caller === undefined) return meterNode(guard, request, response, proceed);
  request[CALLER] = caller;
  hideKey(request, url);
  return within({ caller }, () => meterNode(guard, request, response, proceed));
}

async function meterNode<Request extends NodeRequest>(
  guard: HttpGuard<Request>,
  request: Request,
  response: ServerResponse,
  proceed: (parsedBody: unknown) => unknown,
): Promise<void> {
  if (!isPost(request)) return void (await proceed(request.body));
  const facts = nodeFacts(request);
  const body = await bodyOf(request, facts, guard);
  if (body === undefined) return;
  if ("status" in body) return send(response, body);
  const found = guard.read(body, facts);
  if ("status" in found) return send(response, found);
  if (found.message !== undefined) request.body = found.message.value;
  const admission = await guard.admit(found, request, facts);
  if (admission === undefined) return void (await proceed(request.body));
  if (!(admission instanceof Admission)) return send(response, admission);
  if (isGone(response)) return admission.end("cancelled");
  watch(response, admission);
  try {
    await admission.run(() => proceed(request.body));
  } catch (error) {
    admission.end("failure");
    throw error;
  }
}

export function nodeFacts(request: NodeRequest, authInfo = request.auth, caller = request[CALLER]): HttpFacts {
  const { headers, headersDistinct } = request as Partial<IncomingMessage>;
  const fields = (name: string) => headersDistinct?.[name] ?? [headers?.[name] ?? []].flat();
  return {
    header: (name) => fields(name)[0],
    all: (name) => fields(name).join(","),
    authInfo,
    caller,
  };
}

/** The request's body, as its handler will see it; what to answer where nobody can say; undefined where
 * the client has gone. */
async function bodyOf<Request extends NodeRequest>(
  request: Request,
  facts: HttpFacts,
  guard: HttpGuard<Request>,
): Promise<Body | HttpResponse | undefined> {
  if (request.readableDidRead || request.readableEnded) {
    if (request.body instanceof Uint8Array) return { bytes: request.body };
    if (request.body !== undefined || !mayBeJson(facts)) return { value: request.body };
    const message = "Invalid request: the body was read before it could be counted";
    return httpError(400, { code: INVALID_REQUEST, message });
  }
  try {
    // A reader that comes later and goes by the charset finds nothing but what was counted here.
    const isPutBack = !(mayBeJson(facts) && namesAnotherCharset(facts));
    return { bytes: await readBody(request, guard.maxBodyBytes, isPutBack) };
  } catch (error) {
    if (error instanceof BodyTooLarge) return guard.tooLarge();
    if (error instanceof ClientGone) return undefined;
    throw error;
  }
}

/** Takes the key out of the query, wherever the URL is kept. */
function hideKey(request: NodeRequest, url: string): void {
  const whole = request.originalUrl;
  if (whole === undefined || whole === request.url) request.url = url;
  else request.url = withoutQuery(request.url ?? "/") + url.slice(withoutQuery(url).length);
  if (whole !== undefined) request.originalUrl = url;
  // express 4 has parsed it before.
  if (Object.hasOwn(request, "query")) withoutKeyOf(request.query);
}

/** Takes the key out of a query that was parsed. */
export function withoutKeyOf(query: unknown): void {
  if (typeof query === "object" && query !== null) delete (query as { key?: unknown }).key;
}

function withoutQuery(url: string): string {
  return url.split("?", 1)[0]!;
}

/** Whether a request is one that can carry a message. HTTP/2 does not know how a method is spelled, and
 * what makes a fetch request of it does not mind. */
export function isPost({ method }: { readonly method?: string | undefined }): boolean {
  return method?.toUpperCase() === "POST";
}

/** Ends the admission with the response. */
export function watch<Source>(response: ServerResponse, admission: Admission<Source>): void {
  if (admission.readsResponse) readWrites(response, admission);
  response.once("finish", () => admission.complete(response.statusCode));
  response.once("close", () => admission.end(response.errored ? "failure" : "abandoned"));
  if (isQueued(response)) {
    const forget = atEndOf(response.req.socket, () => admission.end("abandoned"));
    response.once("finish", forget);
    response.once("close", forget);
  }
}

/** Whether the client has gone: there is nobody to answer. */
export function isGone(response: ServerResponse): boolean {
  return response.destroyed || (isQueued(response) && response.req.socket.destroyed);
}

/** Whether the response waits behind others on its connection. Until it is its turn, nothing tells it
 * that the connection has ended. */
function isQueued(response: ServerResponse): boolean {
  return response.socket === null && (response.req as IncomingMessage | undefined)?.socket instanceof Socket;
}

/** What waits for the end of a connection: by one listener, since requests can be sent by the thousand. */
const waiting = new WeakMap<Socket, Set<() => void>>();

/** Has `gone` called when the connection ends; returns what forgets that. */
function atEndOf(socket: Socket, gone: () => void): () => void {
  let all = waiting.get(socket);
  if (all === undefined) {
    const those = (all = new Set());
    waiting.set(socket, those);
    socket.once("close", () => those.forEach((each) => each()));
  }
  all.add(gone);
  return () => void waiting.get(socket)?.delete(gone);
}

/** Shows the admission what is written, and passes it on. */
function readWrites<Source>(response: ServerResponse, admission: Admission<Source>): void {
  const { writeHead, write, end } = response;
  let contentType = "";
  function see(chunk: unknown): void {
    const type = contentType || String(response.getHeader("content-type") ?? "");
    if (typeof chunk === "string" || chunk instanceof Uint8Array) admission.see(chunk, type);
  }
  response.writeHead = function (this: ServerResponse, ...args: unknown[]) {
    contentType = typeOf(args.at(-1)) ?? contentType;
    return writeHead.apply(this, args as never);
  } as typeof writeHead;
  response.write = function (this: ServerResponse, ...args: unknown[]) {
    see(args[0]);
    return write.apply(this, args as never);
  } as typeof write;
  response.end = function (this: ServerResponse, ...args: unknown[]) {
    see(args[0]);
    return end.apply(this, args as never);
  } as typeof end;
}

/** The content type among the headers that `writeHead` was given: an object, a list of both, or pairs. */
function typeOf(headers: unknown): string | undefined {
  if (typeof headers !== "object" || headers === null) return undefined;
  const list: unknown[] = Array.isArray(headers) ? headers.flat() : Object.entries(headers).flat();
  const at = list.findIndex((name, index) => index % 2 === 0 && String(name).toLowerCase() === "content-type");
  return at < 0 ? undefined : String(list[at + 1]);
}

/** Answers with a response of callgate's own. */
function send(response: ServerResponse, { status, headers, body }: HttpResponse): void {
  if (response.destroyed) return;
  response.writeHead(status, headers);
  response.end(body);
}
