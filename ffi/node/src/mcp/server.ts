/** Around the handlers of a server of the official SDKs, 1.x and 2.x, on every transport, stdio too. */

import { ConfigError, type Gate, type Outcome } from "../index.js";
import { shown } from "../text.js";
import { runCall } from "./call.js";
import type { RequestFacts } from "./callers.js";
import { expectHandlers } from "./charge.js";
import { currentContext } from "./context.js";
import { entryOf, METERED_METHOD } from "./message.js";
import { Meter } from "./meter.js";
import type { MeterOptions } from "./options.js";
import { checkErrorCode, DEFAULT_ERROR_CODE, type JsonRpcError } from "./refusal.js";

/** Invalid request, method not found, invalid parameters; headers that say something else, a capability
 * or a version that the client lacks, a page that its user is to visit first. */
const CLIENT_FAULTS: readonly unknown[] = [-32600, -32601, -32602, -32020, -32021, -32022, -32042];

/** How the SDKs' own checks begin the text of a result that is an error. */
const CLIENT_FAULT_TEXT =
  /^(MCP error -3260[012]: (?!Output validation error)|(Input validation error: )?Invalid arguments for tool )/;

/** What the SDKs' handlers get beside the request: `extra` of 1.x, `ctx` of 2.x, as far as it is used. */
export interface ServerContext {
  readonly signal?: AbortSignal;
  readonly authInfo?: unknown;
  readonly requestInfo?: { readonly headers?: unknown };
  readonly mcpReq?: { readonly signal?: AbortSignal };
  readonly http?: { readonly authInfo?: unknown; readonly req?: { readonly headers?: unknown } };
}

export interface ServerOptions extends MeterOptions<ServerContext> {
  /** How a refusal leaves: as a JSON-RPC `"error"` (the default), or as a tool `"result"` with
   * `isError: true` whose text a model reads. */
  readonly refuseWith?: "error" | "result";
  /** The JSON-RPC code of a refusal, an integer; -31004 by default. */
  readonly errorCode?: number;
}

type Handler = (request: { method: string; params?: unknown }, context: ServerContext) => unknown;

interface LowLevelServer {
  _requestHandlers?: Map<string, Handler>;
  fallbackRequestHandler?: Handler;
}

/**
 * Meters `tools/call` of an `McpServer` or a low-level `Server` of the SDK, 1.x or 2.x. Returns it.
 *
 *     const server = protectServer(new McpServer({ name: "name", version: "1" }));
 *
 * It may have its tools before or after. `gate` is by default the process's gate from the environment
 * (`defaultGate`). The `caller` function gets the handler's context.
 *
 * A call that a middleware in front of HTTP has let through on the same gate is not charged again. A
 * call has ended when its handler has: a tool should end when its `signal` is aborted, since it keeps its
 * place until then.
 *
 * Throws a `TypeError` where `server` is neither, and a `ConfigError` or `TypeError` that names an option
 * that is out of its range.
 */
export function protectServer<Server extends object>(
  server: Server,
  gate?: Gate,
  options: ServerOptions = {},
): Server {
  const { refuseWith = "error", errorCode = DEFAULT_ERROR_CODE } = options;
  if (refuseWith !== "error" && refuseWith !== "result") {
    throw new ConfigError(`refuseWith must be 'error' or 'result', not ${shown(refuseWith)}`, "refuseWith");
  }
  checkErrorCode(errorCode);
  const lowLevel = ((server as { server?: unknown }).server ?? server) as LowLevelServer;
  const handlers = lowLevel._requestHandlers;
  if (!(handlers instanceof Map)) {
    throw new TypeError("server must be an McpServer or a Server of the official SDK, 1.x or 2.x");
  }
  const meter = new Meter<ServerContext>(gate, options);
  expectHandlers(meter.gate);

  function refuse(method: string, error: JsonRpcError): unknown {
    if (refuseWith === "error" || method !== METERED_METHOD) throw new RefusedCall(error);
    return { content: [{ type: "text", text: error.message }], isError: true };
  }

  // Where the SDK looks a handler up, so that it does not matter when which is set.
  const find = handlers.get.bind(handlers);
  handlers.get = (method) => {
    if (!meter.methods.has(method)) return find(method);
    const handler = find(method) ?? lowLevel.fallbackRequestHandler;
    if (handler === undefined) return undefined;
    return (request, context) =>
      runCall(meter, {
        entry: entryOf(method, request.params),
        source: context,
        facts: factsOf(context),
        signal: context.signal ?? context.mcpReq?.signal,
        errorCode,
        call: () => handler(request, context),
        refuse: (error) => refuse(method, error),
        isClientFault: (error) => CLIENT_FAULTS.includes((error as { code?: unknown } | null)?.code),
        outcomeOf,
      });
  };
  return server;
}

/** What the SDK makes the JSON-RPC error of a refusal from. */
class RefusedCall extends Error {
  readonly code: number;
  readonly data: JsonRpcError["data"];

  constructor({ code, message, data }: JsonRpcError) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

function factsOf(context: ServerContext): RequestFacts {
  const headers = context.requestInfo?.headers ?? context.http?.req?.headers;
  return {
    header: (name) => fieldOf(headers, name),
    authInfo: context.authInfo ?? context.http?.authInfo,
    caller: currentContext().caller,
  };
}

/** The first field of that name, of a fetch `Headers` or of an object. */
function fieldOf(headers: unknown, name: string): string | undefined {
  if (typeof (headers as Partial<Headers> | undefined)?.get === "function") {
    return (headers as Headers).get(name) ?? undefined;
  }
  const value = (headers as Record<string, unknown> | undefined)?.[name];
  const [first] = Array.isArray(value) ? (value as unknown[]) : [value];
  return typeof first === "string" ? first : undefined;
}

/** The SDKs turn what a tool throws into results, and what is wrong with its arguments, too. */
function outcomeOf(result: unknown): Outcome {
  const { isError, content } = (result ?? {}) as { isError?: unknown; content?: { text?: unknown }[] };
  if (!isError) return "success";
  const text = Array.isArray(content) ? content[0]?.text : undefined;
  return typeof text === "string" && CLIENT_FAULT_TEXT.test(text) ? "abandoned" : "failure";
}
