// Servers of both SDKs, metered themselves, and driven by the SDKs' own clients.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Client as Client2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";
import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { InMemoryTransport as InMemory1 } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server as Server1 } from "@modelcontextprotocol/sdk/server/index.js";
import { CallToolRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { InMemoryTransport as InMemory2, Server as Server2 } from "@modelcontextprotocol/server";
import { z } from "zod";

import { ConfigError, Gate, OFF, Quota, RateLimit, Seeder } from "../../dist/index.js";
import { CALLER, Caller, currentCaller, logger, protectServer, reportUsage, usage } from "../../dist/mcp/index.js";
import { makeServer, serve, SERVERS } from "./servers.mjs";
import {
  begin, broken, charged, drain, guardedGate, inFlight, makeClock, makeGate, noteLog, noting, options, until,
} from "./support.mjs";

const INFO = { name: "test", version: "1" };
const SDKS = [1, 2];
const KEY = "callgate/used";
const done = (extra = {}) => ({ content: [{ type: "text", text: "done" }], ...extra });

async function connect(t, sdk, server) {
  const [near, far] = (sdk === 1 ? InMemory1 : InMemory2).createLinkedPair();
  await server.connect(far);
  const client = new (sdk === 1 ? Client1 : Client2)(INFO);
  await client.connect(near);
  t.after(() => client.close());
  return client;
}

/** A server with tools, what ran, and a client: `call(tool, arguments)`. */
async function start(t, sdk, gate = makeGate(), changes = {}) {
  const clock = makeClock();
  const ran = [];
  const server = makeServer(sdk);
  const add = (name, run, config = {}) =>
    server.registerTool(name, { description: name, ...config }, (...args) => {
      ran.push(name);
      return run(...args);
    });
  add("work", () => done());
  protectServer(server, gate, { clock, ...changes });
  // After it, too.
  add("fail", () => {
    throw new Error("the tool is broken");
  });
  add("strict", () => done(), { inputSchema: z.object({ count: z.number() }) });
  const client = await connect(t, sdk, server);
  const call = (name, args = {}, requestOptions = undefined) =>
    sdk === 1
      ? client.callTool({ name, arguments: args }, undefined, requestOptions)
      : client.callTool({ name, arguments: args }, requestOptions);
  return { gate, clock, ran, server, add, client, call, charged: () => charged(gate, clock) };
}

const isRefused = (wanted) => (error) => {
  assert.equal(error.code, wanted.code ?? -31004);
  if (wanted.data) assert.deepEqual(error.data, wanted.data);
  return true;
};

for (const sdk of SDKS) {
  test(`${sdk}.x: a refusal is a JSON-RPC error with reason, limit and wait`, options, async (t) => {
    const tools = await start(t, sdk);
    for (let n = 0; n < 3; n += 1) assert.ok(!(await tools.call("work")).isError);
    await assert.rejects(
      tools.call("work"),
      isRefused({ data: { reason: "rate", limit: "anonymous", retryAfterMs: 3_600_000 } }),
    );
    assert.deepEqual(tools.ran, ["work", "work", "work"]);
    assert.equal((await tools.client.listTools()).tools.length, 3);
  });

  test(`${sdk}.x: a refusal may be a result that a model can pass on`, options, async (t) => {
    const tools = await start(t, sdk, makeGate(), { refuseWith: "result" });
    drain(tools.gate, tools.clock);
    const { isError, content } = await tools.call("work");
    assert.ok(isError);
    assert.equal(content[0].text, "Too many tool calls: the limit 'anonymous' is reached. Try again in 60 minutes.");
    assert.deepEqual(tools.ran, []);
  });

  test(`${sdk}.x: the error code is configurable`, options, async (t) => {
    const tools = await start(t, sdk, makeGate(), { errorCode: -32099 });
    drain(tools.gate, tools.clock);
    await assert.rejects(tools.call("work"), isRefused({ code: -32099 }));
  });

  for (const refuseWith of ["error", "result"]) {
    test(`${sdk}.x: stdio is metered as anonymous, refusing with ${refuseWith}`, options, async (t) => {
      const args = [fileURLToPath(new URL("stdio-server.mjs", import.meta.url)), String(sdk), refuseWith];
      const client = new (sdk === 1 ? Client1 : Client2)(INFO);
      await client.connect(new (sdk === 1 ? Stdio1 : Stdio2)({ command: process.execPath, args }));
      t.after(() => client.close());
      for (let n = 0; n < 2; n += 1) assert.ok(!(await client.callTool({ name: "work", arguments: {} })).isError);
      assert.equal((await client.listTools()).tools.length, 1);
      const call = client.callTool({ name: "work", arguments: {} });
      if (refuseWith === "error") await assert.rejects(call, (error) => error.data.limit === "anonymous");
      else assert.match((await call).content[0].text, /'anonymous'/);
    });
  }

  test(`${sdk}.x: a function names the caller`, options, async (t) => {
    const callers = ["user:1", "user:1", "user:1", "user:1", "user:2"];
    const tools = await start(t, sdk, makeGate(), { caller: () => callers.shift() });
    for (let n = 0; n < 3; n += 1) await tools.call("work");
    await assert.rejects(tools.call("work"), isRefused({}));
    await tools.call("work");
    assert.equal(charged(tools.gate, tools.clock, "authenticated", "user:1"), 3);
    assert.equal(charged(tools.gate, tools.clock, "authenticated", "user:2"), 1);
  });

  test(`${sdk}.x: a call that returns is a success, one that throws a failure`, options, async (t) => {
    const tools = await start(t, sdk, noting(makeGate()));
    await tools.call("work");
    assert.ok((await tools.call("fail")).isError);
    assert.deepEqual([tools.gate.outcomes, tools.charged()], [["success", "failure"], 2]);
  });

  test(`${sdk}.x: bad arguments and unknown tools are charged, and don't count against the server`, options, async (t) => {
    const gate = noting(guardedGate({ failureTrip: 2 }));
    const tools = await start(t, sdk, gate);
    for (let n = 0; n < 3; n += 1) {
      assert.ok((await tools.call("strict", { count: "many" })).isError);
      // 1.x makes a result of it, 2.x an error.
      await tools.call("unknown").then(({ isError }) => assert.ok(isError), isRefused({ code: -32602 }));
    }
    assert.deepEqual([gate.outcomes, tools.charged()], [new Array(6).fill("abandoned"), 6]);
    for (let n = 0; n < 2; n += 1) await tools.call("fail");
    await assert.rejects(tools.call("work"), (error) => error.data.reason === "breaker_open");
  });

  test(`${sdk}.x: a call that its client cancels is abandoned when its handler has ended, and stays charged`, options, async (t) => {
    const tools = await start(t, sdk, noting(guardedGate()));
    let signal;
    let end;
    tools.add("wait", async (context) => {
      signal = context.signal ?? context.mcpReq.signal;
      await new Promise((resolve) => (end = resolve));
      throw new Error("too late");
    });
    const abort = new AbortController();
    const call = tools.call("wait", {}, { signal: abort.signal });
    await until(() => signal !== undefined);
    abort.abort("enough");
    await assert.rejects(call);
    await until(() => signal.aborted);
    // Else a client could have any number of calls run by cancelling each.
    assert.equal(inFlight(tools.gate, tools.clock), 1);
    end();
    await until(() => tools.gate.outcomes.length > 0);
    assert.deepEqual([tools.gate.outcomes, inFlight(tools.gate, tools.clock)], [["abandoned"], 0]);
    assert.equal(tools.charged(), 1);
  });

  test(`${sdk}.x: a handler that ends by its signal gives its place back`, options, async (t) => {
    const tools = await start(t, sdk, noting(guardedGate()));
    tools.add("wait", (context) => {
      const signal = context.signal ?? context.mcpReq.signal;
      return new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
    });
    const abort = new AbortController();
    const call = tools.call("wait", {}, { signal: abort.signal });
    await until(() => tools.ran.includes("wait"));
    abort.abort();
    await assert.rejects(call);
    await until(() => tools.gate.outcomes.length > 0);
    assert.deepEqual([tools.gate.outcomes, inFlight(tools.gate, tools.clock)], [["abandoned"], 0]);
    // So does one whose transport is closed.
    tools.call("wait").catch(() => undefined);
    await until(() => inFlight(tools.gate, tools.clock) === 1);
    await tools.client.close();
    await until(() => inFlight(tools.gate, tools.clock) === 0);
    assert.deepEqual(tools.gate.outcomes, ["abandoned", "abandoned"]);
  });

  test(`${sdk}.x: an internal error admits, or refuses where that is configured`, options, async (t) => {
    noteLog(t, logger);
    const gate = makeGate();
    assert.ok(!(await (await start(t, sdk, broken(gate))).call("work")).isError);
    const refusing = await start(t, sdk, broken(gate), { onError: "refuse" });
    await assert.rejects(refusing.call("work"), isRefused({ code: -32603 }));
    assert.deepEqual([gate.internalErrors, refusing.ran], [2, []]);
  });

  test(`${sdk}.x: servers that are made for each request log failures once in a while all the same`, options, async (t) => {
    const log = noteLog(t, logger);
    const gate = broken(makeGate());
    for (let n = 0; n < 3; n += 1) await (await start(t, sdk, gate)).call("work");
    assert.equal(log.error.length, 1);
  });

  test(`${sdk}.x: each decision is observed once`, options, async (t) => {
    const seen = [];
    const tools = await start(t, sdk, makeGate(), { observe: (each) => seen.push(each) });
    for (let n = 0; n < 3; n += 1) await tools.call("work");
    await assert.rejects(tools.call("work"));
    assert.deepEqual(seen.map(({ decision }) => decision.admitted), [true, true, true, false]);
    assert.ok(seen.every(({ gateNs }) => gateNs > 0));
  });

  test(`${sdk}.x: a tool reports what it used, its result may state it, else the estimate stands`, options, async (t) => {
    const tools = await start(t, sdk, noting(makeGate({ anonymous: 9 })), { reserve: 100, usageMeta: KEY });
    tools.add("reports", async () => {
      assert.ok(reportUsage(20));
      await new Promise((resolve) => setImmediate(resolve));
      assert.ok(reportUsage(300n));
      assert.equal(usage(), 320n);
      return done();
    });
    tools.add("states", () => {
      reportUsage(1);
      return done({ _meta: { [KEY]: 55 } });
    });
    for (const tool of ["reports", "states", "work"]) assert.ok(!(await tools.call(tool)).isError, tool);
    assert.deepEqual(tools.gate.used, [320n, 55n, 100n]);
  });

  test(`${sdk}.x: a tool and a method may have a policy of their own`, options, async (t) => {
    const gate = new Gate({
      limits: {
        all: new RateLimit(1, { per: "1h", burst: 9 }),
        expensive: new RateLimit(1, { per: "1h", burst: 1 }),
        polling: new RateLimit(1, { per: "1h", burst: 1 }),
      },
      policies: {
        authenticated: [["all", "caller"]],
        anonymous: [["all", "shared"]],
        expensive: [["expensive", "caller"]],
        polling: [["polling", "shared"]],
      },
    });
    const tools = await start(t, sdk, gate, { tools: { work: "expensive" }, methods: { "tools/list": "polling" } });
    await tools.call("work");
    await assert.rejects(tools.call("work"), (error) => error.data.limit === "expensive");
    await tools.call("strict", { count: 1 });
    await tools.client.listTools();
    await assert.rejects(tools.client.listTools(), (error) => error.data.limit === "polling");
    assert.equal(charged(gate, tools.clock), 1);
  });

  test(`${sdk}.x: a quota asks its ledger, once for each caller`, options, async (t) => {
    const gate = new Gate({
      limits: { tokens: new Quota(1_000, { mustSeed: true }), open: OFF },
      policies: { authenticated: [["tokens", "caller"]], anonymous: [["open", "shared"]] },
    });
    const asked = [];
    const seeder = new Seeder(gate, "tokens", async (caller) => {
      asked.push(caller);
      return caller === "ben" ? 1_000 : 0;
    });
    const callers = ["ann", "ann", "ben"];
    const tools = await start(t, sdk, gate, { seeder, caller: () => callers.shift() });
    for (let n = 0; n < 2; n += 1) assert.ok(!(await tools.call("work")).isError);
    await assert.rejects(tools.call("work"), (error) => error.data.reason === "quota");
    assert.deepEqual(asked, ["ann", "ben"]);
  });

  test(`${sdk}.x: calls that a tool makes itself are part of its own, those it leaves behind are not`, options, async (t) => {
    const tools = await start(t, sdk);
    let goOn;
    let left;
    tools.add("outer", async () => {
      for (let n = 0; n < 5; n += 1) await tools.call("work");
      left = new Promise((resolve) => (goOn = resolve)).then(() => tools.call("work"));
      return done();
    });
    await tools.call("outer");
    assert.deepEqual([tools.ran.length, tools.charged()], [6, 1]);
    goOn();
    await left;
    assert.deepEqual([tools.ran.length, tools.charged()], [7, 2]);
  });

  test(`${sdk}.x: bad options are refused at start`, options, () => {
    for (const [option, value] of [["refuseWith", "text"], ["onError", "ignore"], ["errorCode", "x"], ["continuations", "unknown"]]) {
      assert.throws(
        () => protectServer(makeServer(sdk), makeGate(), { [option]: value }),
        (error) => error instanceof ConfigError && error.field === option,
      );
    }
    assert.throws(() => protectServer({}, makeGate()), TypeError);
  });
}

for (const [name, low, setHandler] of [
  ["1.x", () => new Server1(INFO, { capabilities: { tools: {} } }), (server, run) => server.setRequestHandler(CallToolRequestSchema, run)],
  ["2.x", () => new Server2(INFO, { capabilities: { tools: {} } }), (server, run) => server.setRequestHandler("tools/call", run)],
  ["1.x, fallback", () => new Server1(INFO, { capabilities: { tools: {} } }), (server, run) => (server.fallbackRequestHandler = run)],
]) {
  test(`a low-level server is metered too: ${name}`, options, async (t) => {
    const [gate, clock] = [makeGate({ anonymous: 1 }), makeClock()];
    const server = protectServer(low(), gate, { clock });
    setHandler(server, async () => done());
    const client = await connect(t, name.startsWith("1") ? 1 : 2, server);
    assert.ok(!(await client.callTool({ name: "work", arguments: {} })).isError);
    await assert.rejects(client.callTool({ name: "work", arguments: {} }), isRefused({}));
  });
}

// --- behind HTTP ---------------------------------------------------------------------------------

for (const name of SERVERS) {
  test(`${name}: behind a middleware on one gate a call is charged once`, options, async (t) => {
    const [gate, clock] = [makeGate(), makeClock()];
    const inner = (server) => protectServer(server, gate, { clock });
    const served = await serve(t, name, gate, { clock }, { inner });
    const statuses = [];
    for (let n = 0; n < 5; n += 1) statuses.push((await served.post(served.message())).status);
    assert.deepEqual(statuses, [200, 200, 200, 429, 429]);
    assert.deepEqual([served.ran.length, charged(gate, clock)], [3, 3]);
  });

  test(`${name}: whom the server's own authentication has marked is the caller, inside too`, options, async (t) => {
    const [outer, innerGate, clock] = [makeGate(), makeGate(), makeClock()];
    const seen = [];
    const inner = (server) => protectServer(server, innerGate, { clock });
    const work = () => void seen.push(currentCaller().identity);
    const mark = (request) => (request[CALLER] = new Caller("authenticated", "ann"));
    const served = await serve(t, name, outer, { clock }, { inner, work, mark });
    assert.equal((await served.post(served.message())).status, 200);
    assert.deepEqual(seen, ["ann"]);
    for (const gate of [outer, innerGate]) assert.equal(charged(gate, clock, "authenticated", "ann"), 1);
  });

  test(`${name}: behind a middleware on another gate it is charged at both`, options, async (t) => {
    const [outer, innerGate, clock] = [makeGate({ anonymous: 9 }), makeGate({ anonymous: 2 }), makeClock()];
    const inner = (server) => protectServer(server, innerGate, { clock });
    const served = await serve(t, name, outer, { clock }, { inner });
    for (let n = 0; n < 4; n += 1) await served.post(served.message());
    assert.deepEqual([served.ran.length, charged(outer, clock), charged(innerGate, clock)], [2, 4, 2]);
  });

  test(`${name}: a tool reports through the middleware, and its response is read`, options, async (t) => {
    const gate = noting(makeGate());
    const reporting = await serve(t, name, gate, {}, { used: 41 });
    assert.equal((await reporting.post(reporting.message())).status, 200);
    const stating = await serve(t, name, gate, { usageMeta: KEY }, { used: 41, meta: { [KEY]: 9 } });
    const response = await stating.post(stating.message());
    assert.ok(response.status === 200 && response.text.includes(KEY));
    await until(() => gate.used.length === 2);
    assert.deepEqual(gate.used, [41n, 9n]);
  });

  test(`${name}: a place is free when both the client has left and the handler has ended`, options, async (t) => {
    const gate = noting(guardedGate());
    const ends = [];
    const work = () => new Promise((resolve) => ends.push(resolve));
    const inner = (server) => protectServer(server, gate);
    const served = await serve(t, name, gate, {}, { inner, work });
    const request = begin(served.url, served.message(), served.headers);
    await until(() => ends.length === 1);
    assert.equal(inFlight(gate), 1);
    request.destroy();
    // The server has seen it go when it has answered another.
    const ping = { jsonrpc: "2.0", id: 1, method: "tools/list", params: served.params };
    await served.post(ping, { "mcp-method": "tools/list", "mcp-name": null });
    assert.equal(inFlight(gate), 1);
    ends[0]();
    await until(() => inFlight(gate) === 0);
    assert.deepEqual(gate.outcomes, ["abandoned"]);
  });
}

for (const [code, outcome] of [[-32602, "abandoned"], [-32021, "abandoned"], [-32042, "abandoned"], [-32603, "failure"], [undefined, "failure"]]) {
  test(`a handler that throws an error of code ${code} is a call that was ${outcome}`, options, async () => {
    const gate = noting(guardedGate());
    const handlers = new Map([["tools/call", () => Promise.reject(Object.assign(new Error("no"), { code }))]]);
    protectServer({ _requestHandlers: handlers }, gate);
    await assert.rejects(handlers.get("tools/call")({ method: "tools/call", params: { name: "work" } }, {}));
    assert.deepEqual(gate.outcomes, [outcome]);
  });
}
