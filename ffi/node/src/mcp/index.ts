/**
 * callgate in front of an MCP server: only `tools/call` is metered, caller by caller.
 *
 *     import { protect } from "callgate/mcp";
 *     const handler = protect(createMcpHandler(() => makeServer()));   // the limits come from the environment
 *
 * - `protect`: handlers that answer a fetch `Request`, such as those of SDK 2.x.
 * - `expressMiddleware`, `fastifyPlugin`, `honoMiddleware`: the routes of a web framework.
 * - `protectNode`: node's own HTTP server.
 * - `protectServer`: a server of the official SDKs, 1.x and 2.x, on any transport, stdio too.
 *
 * Importing this module needs neither an SDK nor a framework.
 */

export { APIKeys, type APIKeysOptions } from "./api-keys.js";
export {
  ANONYMOUS,
  AUTHENTICATED,
  CALLER,
  Caller,
  type CallerFunction,
  callerOfRequest,
  FORWARDED_BEARER,
  type Identity,
  type RequestFacts,
  tokenIdentity,
} from "./callers.js";
export type { PolicyChoice } from "./choice.js";
export { currentCaller } from "./context.js";
export { defaultGate, type Environment, gateFromEnv } from "./env.js";
export { type FastifyPlugin, fastifyPlugin, type FastifyRequest } from "./fastify.js";
export { type FetchFunction, type FetchHandler, protect } from "./fetch.js";
export { type HonoContext, type HonoMiddleware, honoMiddleware } from "./hono.js";
export { DEFAULT_MAX_BODY_BYTES, type HttpOptions } from "./http.js";
export { logger } from "./log.js";
export {
  type ExpressMiddleware,
  expressMiddleware,
  type NodeHandler,
  type NodeRequest,
  protectNode,
} from "./node.js";
export type { Clock, MeterOptions, Observation } from "./options.js";
export { DEFAULT_ERROR_CODE } from "./refusal.js";
export { protectServer, type ServerContext, type ServerOptions } from "./server.js";
export { reportUsage, usage } from "./usage.js";
