/** In front of the routes of Hono. */

import type { Gate } from "../index.js";
import { CALLER } from "./callers.js";
import { within } from "./context.js";
import { admitFetch, fetchFacts, identify, runFetch } from "./fetch.js";
import { type HttpFacts, HttpGuard, type HttpOptions } from "./http.js";

/** What is used of Hono's context. */
export interface HonoContext {
  req: { raw: Request; arrayBuffer(): Promise<ArrayBuffer> };
  res: Response;
  get(name: string): unknown;
  set(name: string, value: unknown): void;
}

/** A middleware of Hono, for contexts of every kind. */
export type HonoMiddleware = (context: any, next: () => Promise<void>) => Promise<Response | void>;

/**
 * Meters `tools/call` at the routes of Hono that it is used for, after their authentication:
 *
 *     app.use("/mcp", honoMiddleware());
 *     app.all("/mcp", (c) => handler.fetch(c.req.raw, { parsedBody: c.get("parsedBody") }));
 *
 * A verified token's `AuthInfo` is taken from the context's variable `authInfo`, else `auth`; the `caller`
 * function gets the context. The variable `parsedBody`, which `createMcpHonoApp` sets, is counted where
 * it is there, and is set where it is not. Otherwise like `protect`.
 */
export function honoMiddleware<Context extends HonoContext = HonoContext>(
  gate?: Gate,
  options: HttpOptions<Context> = {},
): HonoMiddleware {
  const guard = new HttpGuard<Context>(gate, options);
  return async (context: Context, next) => {
    const authInfo = context.get("authInfo") ?? context.get("auth");
    const known = (context as { [CALLER]?: unknown })[CALLER];
    const identified = identify(guard, context.req.raw, fetchFacts(context.req.raw, authInfo, known));
    if (identified instanceof Response) return identified;
    const { request, facts, caller } = identified;
    context.req.raw = request;
    const meter = () => meterHono(guard, context, next, facts);
    return caller === undefined ? meter() : within({ caller }, meter);
  };
}

async function meterHono<Context extends HonoContext>(
  guard: HttpGuard<Context>,
  context: Context,
  next: () => Promise<void>,
  facts: HttpFacts,
): Promise<Response | void> {
  const request = context.req.raw;
  const parsedBody = context.get("parsedBody") ?? (await readBefore(context));
  const admission = await admitFetch(guard, request, context, facts, parsedBody, (message) => {
    context.set("parsedBody", message);
  });
  if (admission === undefined) return next();
  if (admission instanceof Response) return admission;
  const response = await runFetch(admission, request.signal, async () => {
    await next();
    return context.res;
  });
  context.res = undefined as never;
  context.res = response;
  return undefined;
}

/** What Hono keeps of a body that a middleware before has read: the text. */
async function readBefore({ req }: HonoContext): Promise<string | undefined> {
  if (!req.raw.bodyUsed) return undefined;
  return Buffer.from(await req.arrayBuffer()).toString();
}
