// A metered server on stdio, for the tests: node stdio-server.mjs SDK REFUSE_WITH.

import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

import { protectServer } from "../../dist/mcp/index.js";
import { makeServer } from "./servers.mjs";
import { makeGate } from "./support.mjs";

const [, , sdk, refuseWith] = process.argv;
const gate = makeGate({ anonymous: 2 });

function build() {
  const server = makeServer(Number(sdk));
  server.registerTool("work", { description: "Works." }, () => ({ content: [{ type: "text", text: "done" }] }));
  return protectServer(server, gate, { refuseWith });
}

if (sdk === "1") await build().connect(new StdioServerTransport());
else serveStdio(build);
