// A real MCP server behind callgate: the packages of SDK 2.x. README.md of the folder above says what it does.

import { getRequestListener } from "@hono/node-server";
import { createMcpHandler, McpServer, OAuthError, OAuthErrorCode, requireBearerAuth } from "@modelcontextprotocol/server";
import { currentCaller, protect, protectServer } from "callgate/mcp";

import { addGuardedTools, Guarded, userOf } from "./guarded.mjs";
import { run, statsOf } from "./process.mjs";
import { addTools, authOf, makeGate, Record, verifierOf } from "./public.mjs";

const INFO = { name: "callgate-e2e", version: "1" };
const OPTIONS = { capabilities: { prompts: {} } };
const signalOf = (last) => last.mcpReq.signal;

const gate = makeGate();
const guarded = new Guarded();
const record = new Record();

// Behind the middleware in front of HTTP as well: a call that passes both must be charged once.
const tools = createMcpHandler(({ authInfo }) => {
  const server = addTools(new McpServer(INFO, OPTIONS), record, authInfo?.clientId ?? "-", signalOf);
  return protectServer(server, gate);
});
const guardedTools = createMcpHandler(() => {
  const server = addGuardedTools(new McpServer(INFO, OPTIONS), guarded, record, currentCaller()?.identity, signalOf);
  return protectServer(server, guarded.gate, guarded.options);
});

const nameOf = (request) => authOf(request.headers.get("authorization"))?.clientId;
const metered = protect(tools, gate, {
  apiKeys: null,
  observe: ({ source, policy, gateNs }) => record.spentFor(nameOf(source) ?? policy, gateNs),
});
const meteredByKey = protect(guardedTools, guarded.gate, {
  ...guarded.options,
  apiKeys: guarded.apiKeys,
  observe: ({ source, gateNs }) => record.spentFor(userOf(source), gateNs),
});

const verifier = verifierOf(class extends OAuthError {
  constructor() {
    super(OAuthErrorCode.InvalidToken, "The token is not valid");
  }
});
const demandToken = requireBearerAuth({ verifier });

async function answer(request) {
  const { pathname, searchParams } = new URL(request.url);
  switch (pathname) {
    case "/stats":
      return Response.json(statsOf(gate, guarded, record));
    case "/guarded/advance":
      guarded.advance(searchParams.get("seconds"));
      return Response.json({});
    case "/guarded/release":
      guarded.release();
      return Response.json({});
    case "/guarded/mcp":
      return meteredByKey.fetch(request);
    case "/mcp":
      return metered.fetch(request, { authInfo: authOf(request.headers.get("authorization")) });
    case "/private/mcp": {
      const authInfo = await demandToken(request);
      return authInfo instanceof Response ? authInfo : metered.fetch(request, { authInfo });
    }
    default:
      return new Response(null, { status: 404 });
  }
}

run(getRequestListener(answer));
