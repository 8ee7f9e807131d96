// Policies of tools, methods and continuations, and limits that are kept by tool.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConfigError, Gate, RateLimit } from "../../dist/index.js";
import { Caller, protect } from "../../dist/mcp/index.js";
import { Meter } from "../../dist/mcp/meter.js";
import { callMessage, charged, JSON_FIELDS, makeClock, noting, options } from "./support.mjs";

function makeGate() {
  const hourly = (burst) => new RateLimit(1, { per: "1h", burst });
  return new Gate({
    limits: { caller: hourly(9), anonymous: hourly(9), expensive: hourly(2), polling: hourly(4), tool: hourly(2) },
    policies: {
      authenticated: [["caller", "caller"]],
      anonymous: [["anonymous", "shared"]],
      "forwarded-bearer": [["anonymous", "shared"], ["caller", "caller"]],
      expensive: [["expensive", "caller"]],
      polling: [["polling", "shared"]],
      "by-tool": [["tool", "tool"]],
    },
    capacity: 1_000,
  });
}

/** A middleware, and `post(message, fields)`, which answers with its response. */
function metered(changes) {
  const [gate, clock] = [makeGate(), makeClock()];
  const handler = protect(async () => new Response(), gate, { clock, ...changes });
  const post = (message, headers = {}) =>
    handler(new Request("http://x/", { method: "POST", headers: { ...JSON_FIELDS, ...headers }, body: JSON.stringify(message) }));
  const statuses = async (...messages) => {
    const found = [];
    for (const message of messages) found.push((await post(message)).status);
    return found;
  };
  return { gate, clock, post, statuses, charged: (...of) => charged(gate, clock, ...of), live: () => gate.stats({ nowNs: clock() }).live };
}

const search = callMessage("search");
const work = callMessage("work");
const poll = { jsonrpc: "2.0", id: 1, method: "tasks/get", params: { taskId: "t" } };
const ann = { caller: () => "ann" };

test("a tool's policy replaces that of the class for this tool alone", options, async () => {
  const { statuses, charged } = metered({ ...ann, tools: { search: "expensive" } });
  assert.deepEqual(await statuses(search, search, search, work), [200, 200, 429, 200]);
  assert.deepEqual([charged("authenticated", "ann"), charged("expensive", "ann")], [1, 2]);
});

test("each caller has its own allowance of an expensive tool", options, async () => {
  const { post } = metered({ caller: ({ headers }) => headers.get("x-user"), tools: { search: "expensive" } });
  for (const user of ["ann", "bob"]) {
    const found = [];
    for (let n = 0; n < 3; n += 1) found.push((await post(search, { "x-user": user })).status);
    assert.deepEqual(found, [200, 200, 429]);
  }
});

test("callers whom nobody verified share one allowance of an expensive tool", options, async () => {
  const { post, live } = metered({ tools: { search: "expensive" } });
  const found = [];
  for (let n = 0; n < 4; n += 1) found.push((await post(search, n % 2 ? {} : { authorization: `Bearer ${n}` })).status);
  assert.deepEqual([found, live()], [[200, 200, 429, 429], 1]);
});

test("a tool's policy may be chosen by class, and by a caller function's own class", options, async () => {
  const byClass = metered({ caller: ({ headers }) => headers.get("x-user"), tools: { search: { authenticated: "expensive" } } });
  const found = [];
  for (let n = 0; n < 3; n += 1) found.push((await byClass.post(search, { "x-user": "ann" })).status);
  assert.deepEqual(found, [200, 200, 429]);
  assert.deepEqual(await byClass.statuses(search, search, search), [200, 200, 200]);
  assert.equal(byClass.charged("anonymous"), 3);
  const own = metered({ caller: () => new Caller("polling", "ann"), tools: { search: { polling: "expensive" } } });
  assert.deepEqual(await own.statuses(search, search, search), [200, 200, 429]);
  assert.equal(own.charged("polling"), 0);
});

test("a batch over several policies is all or nothing", options, async () => {
  const { statuses, charged } = metered({ ...ann, tools: { search: "expensive" } });
  const batch = [work, search, work];
  assert.deepEqual(await statuses(search, batch, batch), [200, 200, 429]);
  assert.deepEqual([charged("authenticated", "ann"), charged("expensive", "ann")], [2, 2]);
});

test("a batch that can never pass one policy says so of that policy's calls", options, async () => {
  const { post, charged } = metered({ ...ann, tools: { search: "expensive" } });
  const answer = await post([work, search, search, search]);
  const { error } = await answer.json();
  assert.deepEqual([answer.status, error.data.reason], [429, "never"]);
  assert.match(error.message, /^This request holds 3 tool calls/);
  assert.equal(charged("authenticated", "ann"), 0);
});

test("where a policy keeps state by tool, each tool is charged for itself", options, async () => {
  const fetch = callMessage("fetch");
  const { statuses } = metered({ tools: { search: "by-tool", fetch: "by-tool" } });
  assert.deepEqual(await statuses([search, fetch], [search, fetch], fetch), [200, 200, 429]);
  const unnamed = { ...callMessage(), params: {} };
  const byTool = metered({ caller: () => new Caller("by-tool") });
  assert.deepEqual(await byTool.statuses(unnamed, unnamed, unnamed, work), [200, 200, 429, 200]);
});

test("other methods cost nothing unless they have a policy, and nothing for classes it leaves out", options, async () => {
  const free = metered({});
  assert.deepEqual(await free.statuses(...new Array(20).fill(poll)), new Array(20).fill(200));
  assert.equal(free.live(), 0);
  const priced = metered({ methods: { "tasks/get": "polling" } });
  assert.deepEqual(await priced.statuses(poll, poll, poll, poll, poll, work), [200, 200, 200, 200, 429, 200]);
  assert.equal(priced.charged("anonymous"), 1);
  const byClass = metered({ methods: { "tasks/get": { authenticated: "polling" } } });
  assert.deepEqual(await byClass.statuses(...new Array(9).fill(poll)), new Array(9).fill(200));
  assert.equal(byClass.live(), 0);
});

test("a continuation costs like any call unless it has a policy", options, async () => {
  const again = callMessage("search", 1, { inputResponses: { q: { action: "accept" } }, requestState: "s" });
  const like = metered({ ...ann, tools: { search: "expensive" } });
  assert.deepEqual(await like.statuses(again, again, again), [200, 200, 429]);
  const own = metered({ ...ann, tools: { search: "expensive" }, continuations: "polling" });
  assert.deepEqual(await own.statuses(search, again, again, search), [200, 200, 200, 200]);
  assert.deepEqual([own.charged("expensive", "ann"), own.charged("polling")], [2, 2]);
});

test("names that every object has are no tools and no classes", options, async () => {
  const { statuses, charged } = metered({ tools: { search: { authenticated: "expensive" } } });
  assert.deepEqual(await statuses(callMessage("toString"), callMessage("__proto__"), callMessage("constructor")), [200, 200, 200]);
  assert.equal(charged("anonymous"), 3);
});

test("what was admitted before an internal error is taken back", options, async () => {
  const real = makeGate();
  const gate = noting(real, {
    tryAdmit(policy, call) {
      if (call.tool === "b") throw new Error("broken");
      return real.tryAdmit(policy, call);
    },
  });
  const [clock, errors] = [makeClock(), []];
  const meter = new Meter(gate, { clock, caller: () => new Caller("by-tool") });
  const entry = (tool) => ({ method: "tools/call", tool, isContinuation: false });
  const verdict = await meter.decide([entry("a"), entry("b")], undefined, undefined);
  assert.deepEqual([verdict.isRefused, gate.outcomes, errors], [false, ["cancelled"], []]);
  assert.equal(real.peek("by-tool", { tool: "a", cost: 0, nowNs: clock() })[0].remaining, 2);
});

for (const [option, value] of [
  ["tools", { search: "unknown" }],
  ["tools", { search: { authenticated: "unknown" } }],
  ["tools", { search: { unknown: "expensive" } }],
  ["methods", { "tasks/get": "unknown" }],
  ["methods", { "tools/call": "polling" }],
  ["continuations", "unknown"],
  ["reserve", -1],
  ["reserve", 0.5],
]) {
  test(`${option} can't be ${JSON.stringify(value)}`, () => {
    assert.throws(() => metered({ [option]: value }), (error) => error instanceof ConfigError && error.field === option);
  });
}
