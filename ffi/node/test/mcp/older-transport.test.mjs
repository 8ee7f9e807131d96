// HTTP+SSE, where a POST is answered with 202 before the tool runs: the handler has the place.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import express from "express";

import { expressMiddleware, protectServer } from "../../dist/mcp/index.js";
import { handover } from "../../dist/mcp/charge.js";
import { front } from "./fronts.mjs";
import { makeServer } from "./servers.mjs";
import { callMessage, charged, guardedGate, inFlight, JSON_FIELDS, listen, makeClock, makeGate, options, send, until } from "./support.mjs";

/** A server of the older transport: its URL, what ran, and the end of the calls that run. */
async function serveOlder(t, gate, { clock, inner = true, readBySDK = false } = {}) {
  const [ran, ends, transports] = [[], [], new Map()];
  const app = express();
  app.get("/sse", async (_request, response) => {
    const transport = new SSEServerTransport("/messages", response);
    transports.set(transport.sessionId, transport);
    const server = makeServer(1);
    server.registerTool("work", {}, async () => {
      ran.push("work");
      await new Promise((resolve) => ends.push(resolve));
      return { content: [] };
    });
    await (inner ? protectServer(server, gate, { clock }) : server).connect(transport);
  });
  app.use("/messages", expressMiddleware(gate, { clock, apiKeys: null }));
  app.post("/messages", (request, response) =>
    transports.get(request.query.sessionId).handlePostMessage(request, response, readBySDK ? undefined : request.body),
  );
  const url = await listen(t, app);
  const client = new Client({ name: "test", version: "1" });
  const transport = new SSEClientTransport(new URL(`${url}/sse`));
  await client.connect(transport);
  t.after(() => client.close());
  const post = (body, headers) => send(`${url}/messages?sessionId=${[...transports.keys()][0]}`, body, { ...JSON_FIELDS, ...headers });
  return { client, ran, ends, post };
}

test("a place is held while the handler runs", options, async (t) => {
  const gate = guardedGate({ places: 1 });
  const { client, ends } = await serveOlder(t, gate);
  for (let n = 0; n < 2; n += 1) {
    const call = client.callTool({ name: "work", arguments: {} });
    await until(() => ends.length === 1);
    // The POST has been answered when another is.
    await client.listTools();
    assert.equal(inFlight(gate), 1);
    assert.equal(gate.tryAdmit("anonymous").reason, "concurrency");
    ends.pop()();
    await call;
    await until(() => inFlight(gate) === 0);
  }
});

test("a handler that never comes keeps no place for ever", options, async (t) => {
  const before = handover.ms;
  t.after(() => (handover.ms = before));
  const gate = guardedGate();
  protectServer(makeServer(1), gate);
  const url = await front(t, "node", (_request, response) => response.writeHead(202).end(), gate);
  handover.ms = 3_600_000;
  await send(url, callMessage(), JSON_FIELDS);
  // The first answer has been seen to end when another is.
  await send(url, { jsonrpc: "2.0", id: 1, method: "ping" }, JSON_FIELDS);
  assert.equal(inFlight(gate), 1);
  handover.ms = 1;
  await send(url, callMessage(), JSON_FIELDS);
  await until(() => inFlight(gate) === 1);
});

test("without a handler to expect, and for notifications, nothing is held", options, async (t) => {
  const gate = guardedGate();
  const url = await front(t, "node", (_request, response) => response.writeHead(202).end(), gate);
  await send(url, callMessage(), JSON_FIELDS);
  await until(() => inFlight(gate) === 0);
  protectServer(makeServer(1), gate);
  const { id: _, ...notification } = callMessage();
  await send(url, notification, JSON_FIELDS);
  await until(() => inFlight(gate) === 0);
});

const TEXT = JSON.stringify(callMessage());
for (const [name, body, type] of [
  ["a string that holds the call", JSON.stringify(TEXT), "application/json"],
  ["UTF-7 by its charset", TEXT.replace("tools/call", "+AHQ-ools+AC8-call"), "application/json; charset=utf-7"],
  ["a charset in which a quote is escaped otherwise", TEXT.replace('"id"', '"x":"\u20ac\\\\","id"'), "application/json; charset=gbk"],
]) {
  for (const readBySDK of [false, true]) {
    test(`no more runs than was charged: ${name}${readBySDK ? ", read by the SDK" : ""}`, options, async (t) => {
      const [gate, clock] = [makeGate(), makeClock()];
      const { ran, ends, post } = await serveOlder(t, gate, { clock, inner: false, readBySDK });
      await Promise.race([post(Buffer.from(body), { "content-type": type }), until(() => ran.length > 0)]);
      // What was sent after it has been run, so has it.
      void post(callMessage("work", 2));
      await until(() => ran.length > 0 && ends.length === ran.length);
      assert.ok(ran.length <= charged(gate, clock), `${ran.length} ran`);
      for (const end of ends) end();
    });
  }
}

