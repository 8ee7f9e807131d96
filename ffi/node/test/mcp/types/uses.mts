// Uses of callgate/mcp that must compile, with the types of the SDKs and frameworks themselves, and some
// that must not.

import { createServer } from "node:http";

import { createMcpHonoApp } from "@modelcontextprotocol/hono";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { Server as Server1 } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer as McpServer1 } from "@modelcontextprotocol/sdk/server/mcp.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import type { OAuthTokenVerifier } from "@modelcontextprotocol/sdk/server/auth/provider.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { createMcpHandler, McpServer as McpServer2, Server as Server2 } from "@modelcontextprotocol/server";
import { Gate, type Key, RateLimit } from "callgate";
import {
  APIKeys,
  CALLER,
  Caller,
  currentCaller,
  expressMiddleware,
  fastifyPlugin,
  gateFromEnv,
  honoMiddleware,
  type HttpOptions,
  type Observation,
  protect,
  protectNode,
  protectServer,
  reportUsage,
  tokenIdentity,
  usage,
} from "callgate/mcp";
import express, { type Request as ExpressRequest } from "express";
import Fastify, { type FastifyRequest } from "fastify";
import { type Context, Hono } from "hono";

declare const transport: StreamableHTTPServerTransport;
declare const verifier: OAuthTokenVerifier;
const gate: Gate = gateFromEnv({ MCP_RATE_LIMIT: "7" }, { capacity: 100 });

// node's own server, and what follows a parsed body
createServer(protectNode((request, response, body) => transport.handleRequest(request, response, body), gate));

// express
const app = express();
app.post(
  "/mcp",
  requireBearerAuth({ verifier }),
  expressMiddleware<ExpressRequest>(gate, {
    caller: (request) => request.auth?.clientId,
    tools: { search: "expensive", other: { authenticated: "expensive" } },
    observe: ({ gateNs, source }: Observation<ExpressRequest>) => console.log(gateNs + 1, source.path),
  }),
  (request, response) => transport.handleRequest(request, response, request.body),
);

// fastify
const fastify = Fastify();
await fastify.register(fastifyPlugin<FastifyRequest>(gate, { caller: async (request) => request.ip }));

// hono
const hono = new Hono();
hono.use("/mcp", honoMiddleware<Context>(gate, { caller: (context) => context.req.header("x-user") ?? null }));
createMcpHonoApp().use("*", honoMiddleware());

// fetch: what comes out is what went in
const handler = createMcpHandler(() => protectServer(new McpServer2({ name: "a", version: "1" }), gate));
const guarded: typeof handler = protect(handler, gate, { caller: (request) => request.headers.get("x-user") });
createServer(toNodeHandler(guarded));
const answer: (request: Request) => Promise<Response> = protect(async (request: Request) => new Response(request.url));
const withEnvironment = protect((_request: Request, environment: { name: string }) => new Response(environment.name));
void withEnvironment(new Request("http://x/"), { name: "x" });
void answer(new Request("http://x/"));

// servers
const one: McpServer1 = protectServer(new McpServer1({ name: "a", version: "1" }), gate, { refuseWith: "result" });
const low: Server1 = protectServer(new Server1({ name: "a", version: "1" }), gate, { caller: ({ authInfo }) => tokenIdentity(authInfo) });
const two: Server2 = protectServer(new Server2({ name: "a", version: "1" }));

// callers and keys
const keys = new APIKeys({ k: "ann" }, { failures: new RateLimit(1, { per: "1m" }) });
const options: HttpOptions = { apiKeys: keys, maxBodyBytes: 1, errorCode: -1, reserve: 3n, usageMeta: "u", onError: "refuse" };
const identity: string | Uint8Array | Key | undefined = currentCaller()?.identity;
const marked: { [CALLER]?: Caller } = { [CALLER]: new Caller("polling") };
const isMetered: boolean = reportUsage(1);
const units: bigint = usage();

// --- what must not compile

// @ts-expect-error: a choice is a policy's name, or an object of them
protect(answer, gate, { tools: { search: 7 } });
// @ts-expect-error: admit or refuse
protect(answer, gate, { onError: "ignore" });
// @ts-expect-error: not a key in the clear
protect(answer, gate, { apiKeys: "k" });
// @ts-expect-error: a caller is no number
protectServer(one, gate, { caller: () => 7 });
// @ts-expect-error: error or result
protectServer(one, gate, { refuseWith: "text" });
// @ts-expect-error: units are numbers
reportUsage("1");
// @ts-expect-error: a handler answers a Response
protect(async () => "text");
// @ts-expect-error: options are known by name
expressMiddleware(gate, { rate: 7 });

export { identity, isMetered, low, marked, options, two, units };
