// Real MCP servers of both SDKs, behind each of the middlewares, on real sockets.

import { createAdaptorServer } from "@hono/node-server";
import { createMcpExpressApp } from "@modelcontextprotocol/express";
import { createMcpFastifyApp } from "@modelcontextprotocol/fastify";
import { createMcpHonoApp } from "@modelcontextprotocol/hono";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer as McpServer1 } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createMcpHandler, McpServer as McpServer2 } from "@modelcontextprotocol/server";
import express from "express";

import {
  expressMiddleware,
  fastifyPlugin,
  honoMiddleware,
  protect,
  protectNode,
  reportUsage,
} from "../../dist/mcp/index.js";
import { JSON_FIELDS, listen, META, MODERN_VERSION, send } from "./support.mjs";

const INFO = { name: "test", version: "1" };

/** In place of a gate: no middleware in front. */
export const UNGUARDED = Symbol("unguarded");

/** By name, what makes a handler or server of node's of a function that adds the tools to a server.
 * `options.mark` gets each request before the middleware does, as an authentication would. */
const KINDS = {
  "1.x, node": (build, gate, options, mark) =>
    guardedNode((request, response, body) => serve1(build, request, response, body), gate, options, mark),
  "1.x, node, streamed": (build, gate, options, mark) =>
    guardedNode((request, response, body) => serve1(build, request, response, body, false), gate, options, mark),
  "1.x, node, read by the SDK": (build, gate, options, mark) =>
    guardedNode((request, response) => serve1(build, request, response, undefined), gate, options, mark),
  "1.x, express": (build, gate, options, mark) => serveExpress1(build, gate, options, mark, {}),
  "1.x, express, parsed before": (build, gate, options, mark) => serveExpress1(build, gate, options, mark, { before: true }),
  "1.x, express, parsed after": (build, gate, options, mark) => serveExpress1(build, gate, options, mark, { after: true }),
  "2.x, fetch": serveFetch,
  "2.x, fetch, modern": serveFetch,
  "2.x, node, modern": (build, gate, options, mark) => guardedNode(toNodeHandler(handler2(build)), gate, options, mark),
  "2.x, express, modern": (build, gate, options, mark) => {
    const app = createMcpExpressApp();
    const node = toNodeHandler(handler2(build));
    if (gate !== UNGUARDED) app.use("/mcp", marking(mark), expressMiddleware(gate, options));
    app.all("/mcp", (request, response) => node(request, response, request.body));
    return app;
  },
  "2.x, hono": serveHono,
  "2.x, hono, modern": serveHono,
  "2.x, fastify, modern": async (build, gate, options, mark) => {
    const app = createMcpFastifyApp();
    const node = toNodeHandler(handler2(build));
    app.addHook("onRequest", async (request) => mark(request));
    if (gate !== UNGUARDED) await app.register(fastifyPlugin(gate, options));
    app.all("/mcp", (request, reply) => {
      reply.hijack();
      return node(request.raw, reply.raw, request.body);
    });
    await app.ready();
    return app.server;
  },
};

export const SERVERS = Object.keys(KINDS);

/** An `McpServer` of the SDK with that number. */
export function makeServer(sdk) {
  return sdk === 1 ? new McpServer1(INFO) : new McpServer2(INFO);
}

/**
 * One of `SERVERS`, with a tool `work` that notes that it ran, reports that it has used `used` units,
 * awaits `work(context)`, and has `meta` in its result. `inner` gets each server before it is used.
 */
export async function serve(t, name, gate, options = {}, given = {}) {
  const { handler, ...served } = await make(name, gate, options, given);
  const url = `${await listen(t, handler)}/mcp`;
  return { url, ...served, post: (content, changes = {}) => send(url, content, { ...served.headers, ...changes }) };
}

/** The same without a socket: `handler` is a handler of node's HTTP server, or such a server. */
export async function make(name, gate, options = {}, { used = 0, meta, inner = (it) => it, work, mark } = {}) {
  const ran = [];
  const build = (server) => {
    server.registerTool("work", { description: "Works." }, async (context) => {
      ran.push("work");
      if (used > 0) reportUsage(used);
      await work?.(context);
      return { content: [{ type: "text", text: "done" }], ...(meta && { _meta: meta }) };
    });
    return inner(server);
  };
  const handler = await KINDS[name](build, gate, { apiKeys: null, ...options }, mark ?? (() => undefined));
  const isModern = name.endsWith("modern");
  const modern = { "mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call", "mcp-name": "work" };
  const headers = { ...JSON_FIELDS, ...(isModern && modern) };
  const params = isModern ? { _meta: META } : {};
  return {
    handler,
    ran,
    headers,
    params,
    message: (id = 1) => ({
      jsonrpc: "2.0",
      id,
      method: "tools/call",
      params: { name: "work", arguments: {}, ...params },
    }),
  };
}

function guardedNode(handler, gate, options, mark) {
  if (gate === UNGUARDED) return (request, response) => handler(request, response);
  const guarded = protectNode(handler, gate, options);
  return (request, response) => {
    mark(request);
    return guarded(request, response);
  };
}

/** A middleware of express that marks. */
const marking = (mark) => (request, _response, next) => {
  mark(request);
  next();
};

/** A server and a transport for each request: without sessions. */
async function serve1(build, request, response, body, enableJsonResponse = true) {
  const server = build(new McpServer1(INFO));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse });
  response.on("close", () => void server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, body);
}

function serveExpress1(build, gate, options, mark, { before, after }) {
  const app = express();
  if (before) app.use(express.json());
  if (gate !== UNGUARDED) app.use("/mcp", marking(mark), expressMiddleware(gate, options));
  if (after) app.use(express.json());
  app.all("/mcp", (request, response) => serve1(build, request, response, request.body));
  return app;
}

function handler2(build) {
  return createMcpHandler(() => build(new McpServer2(INFO)));
}

function serveFetch(build, gate, options, mark) {
  const handler = handler2(build);
  if (gate === UNGUARDED) return toNodeHandler(handler);
  const guarded = protect(handler, gate, options);
  return toNodeHandler({
    fetch: (request, given) => {
      mark(request);
      return guarded.fetch(request, given);
    },
  });
}

function serveHono(build, gate, options, mark) {
  const app = createMcpHonoApp();
  const handler = handler2(build);
  app.use("/mcp", (context, next) => {
    mark(context);
    return next();
  });
  if (gate !== UNGUARDED) app.use("/mcp", honoMiddleware(gate, options));
  app.all("/mcp", (context) => handler.fetch(context.req.raw, { parsedBody: context.get("parsedBody") }));
  return createAdaptorServer(app);
}
