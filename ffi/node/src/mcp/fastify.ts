/** In front of the routes of fastify. */

import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";

import type { Gate } from "../index.js";
import { CALLER } from "./callers.js";
import { within } from "./context.js";
import { Admission, type Found, HttpGuard, type HttpFacts, type HttpOptions } from "./http.js";
import { isGone, isPost, nodeFacts, watch, withoutKeyOf } from "./node.js";
import { BodyTooLarge, ClientGone, readBody, type RequestStream } from "./node-body.js";
import type { HttpResponse } from "./refusal.js";

/** What is used of fastify's request. */
export interface FastifyRequest {
  readonly raw: IncomingMessage;
  readonly method: string;
  body?: unknown;
  query?: unknown;
}

interface FastifyReply {
  readonly raw: ServerResponse;
  code(status: number): FastifyReply;
  headers(fields: Readonly<Record<string, string>>): FastifyReply;
  send(body: Buffer): unknown;
}

type Done = (error?: Error) => void;
type PayloadDone = (error?: Error | null, payload?: Readable) => void;

interface FastifyInstance {
  addHook(name: string, hook: (...args: never[]) => unknown): unknown;
}

/** A plugin for `register`, of instances of every kind. */
export type FastifyPlugin = (instance: any, options: unknown, done: Done) => void;

/**
 * Meters `tools/call` at the routes of the scope in which it is registered, after the hooks
 * `onRequest`, and `preHandler` hooks that were added before it:
 *
 *     app.register(async (scope) => {
 *       scope.register(fastifyPlugin());
 *       scope.post("/mcp", (request, reply) => { reply.hijack(); … node(request.raw, reply.raw, request.body) });
 *     });
 *
 * A verified token's `AuthInfo` is taken from `request.raw.auth`, else `request.auth`; the `caller` function
 * gets fastify's request. It leaves the message that it has counted in `request.body`. Otherwise like
 * `protectNode`.
 */
export function fastifyPlugin<Request extends FastifyRequest = FastifyRequest>(
  gate?: Gate,
  options: HttpOptions<Request> = {},
): FastifyPlugin {
  const guard = new HttpGuard<Request>(gate, options);
  const founds = new WeakMap<object, Found>();

  function demandKey(request: Request, reply: FastifyReply, done: Done): void {
    const identified = guard.authenticate(factsOf(request), request.raw.url ?? "/");
    if ("status" in identified) return send(reply, identified);
    if (identified.caller !== undefined) {
      (request as { [CALLER]?: unknown })[CALLER] = identified.caller;
      request.raw.url = identified.url;
      withoutKeyOf(request.query);
      return within({ caller: identified.caller }, done);
    }
    done();
  }

  /** Before fastify's own parser, which is the less strict one. */
  function read(request: Request, reply: FastifyReply, payload: RequestStream, done: PayloadDone): void {
    if (!isPost(request)) return done();
    readBody(payload, guard.maxBodyBytes, false).then(
      (bytes) => {
        const found = guard.read({ bytes }, factsOf(request));
        if ("status" in found) return send(reply, found);
        founds.set(request, found);
        done(null, Readable.from([bytes]));
      },
      (error: unknown) => {
        if (error instanceof BodyTooLarge) send(reply, guard.tooLarge());
        else if (!(error instanceof ClientGone)) done(error as Error);
      },
    );
  }

  async function admit(request: Request, reply: FastifyReply, done: Done): Promise<void> {
    const found = founds.get(request);
    if (found === undefined) return done();
    if (found.message !== undefined) request.body = found.message.value;
    const admission = await guard.admit(found, request, factsOf(request));
    if (admission === undefined) return done();
    if (!(admission instanceof Admission)) return send(reply, admission);
    if (isGone(reply.raw)) return admission.end("cancelled");
    watch(reply.raw, admission);
    admission.run(done);
  }

  function plugin(instance: FastifyInstance, _options: unknown, done: Done): void {
    instance.addHook("onRequest", demandKey);
    instance.addHook("preParsing", read);
    instance.addHook("preHandler", (request: Request, reply: FastifyReply, next: Done) => {
      admit(request, reply, next).catch(next);
    });
    done();
  }
  // Hooks of a plugin are for its own routes otherwise.
  return Object.assign(plugin, { [Symbol.for("skip-override")]: true });
}

function factsOf(request: FastifyRequest): HttpFacts {
  const { auth, [CALLER]: caller } = request as { auth?: unknown; [CALLER]?: unknown };
  const raw = request.raw as IncomingMessage & { auth?: unknown };
  return nodeFacts(raw, raw.auth ?? auth, caller);
}

function send(reply: FastifyReply, { status, headers, body }: HttpResponse): void {
  reply.code(status).headers(headers).send(Buffer.from(body));
}
