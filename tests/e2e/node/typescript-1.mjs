// A real MCP server behind callgate: SDK 1.x in express. README.md of the folder above says what it does.

import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { InvalidTokenError } from "@modelcontextprotocol/sdk/server/auth/errors.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { expressMiddleware, protectServer } from "callgate/mcp";
import express from "express";

import { addGuardedTools, Guarded, userOf } from "./guarded.mjs";
import { run, statsOf } from "./process.mjs";
import { addTools, authOf, makeGate, Record, verifierOf } from "./public.mjs";

const INFO = { name: "callgate-e2e", version: "1" };
const OPTIONS = { capabilities: { prompts: {} } };
const signalOf = (last) => last.signal;

const gate = makeGate();
const guarded = new Guarded();
const record = new Record();

/** One server and one transport for each request: without sessions. */
async function serve(server, request, response) {
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  response.on("close", () => void server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
}

// Behind the middleware in front of HTTP as well: a call that passes both must be charged once.
function serveTools(request, response) {
  const server = addTools(new McpServer(INFO, OPTIONS), record, request.auth?.clientId ?? "-", signalOf);
  return serve(protectServer(server, gate), request, response);
}

function serveGuardedTools(request, response) {
  const server = addGuardedTools(new McpServer(INFO, OPTIONS), guarded, record, userOf(request), signalOf);
  return serve(protectServer(server, guarded.gate, guarded.options), request, response);
}

const metered = expressMiddleware(gate, {
  apiKeys: null,
  observe: ({ source, policy, gateNs }) => record.spentFor(source.auth?.clientId ?? policy, gateNs),
});
const meteredByKey = expressMiddleware(guarded.gate, {
  ...guarded.options,
  apiKeys: guarded.apiKeys,
  observe: ({ source, gateNs }) => record.spentFor(userOf(source), gateNs),
});

/** Asks for nothing, and remembers whose token it is. */
function identify(request, _response, next) {
  request.auth = authOf(request.headers.authorization);
  next();
}

const app = express();
app.disable("x-powered-by");
app.get("/stats", (_request, response) => response.json(statsOf(gate, guarded, record)));
app.post("/guarded/advance", (request, response) => {
  guarded.advance(request.query.seconds);
  response.json({});
});
app.post("/guarded/release", (_request, response) => {
  guarded.release();
  response.json({});
});
app.all("/guarded/mcp", meteredByKey, serveGuardedTools);
app.all("/mcp", identify, metered, serveTools);
const verifier = verifierOf(class extends InvalidTokenError {
  constructor() {
    super("The token is not valid");
  }
});
app.all("/private/mcp", requireBearerAuth({ verifier }), metered, serveTools);

run(app);
