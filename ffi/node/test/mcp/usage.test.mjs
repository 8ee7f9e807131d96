// How many units a call has used: reported from within the tool, or stated by its result.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CallError, Gate, Quota } from "../../dist/index.js";
import { protect, reportUsage, usage } from "../../dist/mcp/index.js";
import { logger } from "../../dist/mcp/log.js";
import { MAX_READ_CHARS, ResponseReader, statedUnits } from "../../dist/mcp/usage.js";
import { front, fronts, writing } from "./fronts.mjs";
import { callMessage, JSON_FIELDS, makeClock, makeGate, noteLog, noting, options, send, until } from "./support.mjs";

const KEY = "callgate/used";
const result = (meta) => ({ jsonrpc: "2.0", id: 1, result: { content: [], _meta: meta } });
const calls = (count) => Array.from({ length: count }, (_, id) => callMessage("work", id));

async function post(t, name, answer, gate, changes, content = callMessage()) {
  const url = await front(t, name, writing(name, answer), gate, changes);
  const response = await send(url, content, JSON_FIELDS);
  await until(() => gate.used.length > 0);
  return response;
}

for (const name of fronts) {
  test(`${name}: the results of a batch add up, in JSON and in a stream`, options, async (t) => {
    const messages = [result({ [KEY]: 4 }), result({}), result({ [KEY]: 5 })];
    const text = JSON.stringify(messages);
    const events = messages.map((message) => `event: message\r\ndata: ${JSON.stringify(message)}\r\n\r\n`).join("");
    for (const [type, body] of [["application/json", text], ["text/event-stream; charset=utf-8", events]]) {
      const gate = noting(makeGate());
      const response = await post(t, name, ({ start, write, end }) => {
        start(200, type);
        for (let at = 0; at < body.length; at += 9) write(body.slice(at, at + 9));
        end();
      }, gate, { usageMeta: KEY }, calls(3));
      assert.deepEqual([response.text, gate.used], [body, [9n]]);
    }
  });

  test(`${name}: the units are noted on every gate that the call passed`, options, async (t) => {
    const gate = noting(makeGate());
    const answer = async ({ start, end }) => {
      assert.ok(reportUsage(5));
      await new Promise((resolve) => setImmediate(resolve));
      reportUsage(2n);
      assert.equal(usage(), 7n);
      start(200);
      end();
    };
    await post(t, name, answer, gate, {});
    assert.deepEqual(gate.used, [7n]);
  });

  test(`${name}: where nobody says anything the estimate stands, for each call of a batch`, options, async (t) => {
    const gate = noting(makeGate());
    await post(t, name, ({ start, end }) => (start(200), end()), gate, { reserve: 3, usageMeta: KEY }, calls(2));
    assert.deepEqual(gate.used, [6n]);
  });

  test(`${name}: a response that cannot be read is passed on all the same`, options, async (t) => {
    noteLog(t, logger);
    t.mock.method(ResponseReader.prototype, "read", () => {
      throw new Error("broken");
    });
    const gate = noting(makeGate());
    const text = JSON.stringify(result({ [KEY]: 4 }));
    const answer = ({ start, write, end }) => (start(200), write(text), end());
    const response = await post(t, name, answer, gate, { usageMeta: KEY, reserve: 3 });
    assert.deepEqual([response.text, gate.used], [text, [3n]]);
    assert.ok(gate.internalErrors > 0);
  });
}

for (const meta of [null, [], {}, { [KEY]: -1 }, { [KEY]: "9" }, { [KEY]: 1.5 }, { [KEY]: true }]) {
  test(`${JSON.stringify(meta)} states no number of units`, () => assert.equal(statedUnits({ _meta: meta }, KEY), undefined));
}

test("a name of every object states nothing", () => {
  assert.equal(statedUnits({ _meta: Object.assign(Object.create({ [KEY]: 5 }), {}) }, KEY), undefined);
  assert.equal(statedUnits({ _meta: {} }, "toString"), undefined);
});

test("more units than can be counted are as many as can", options, async () => {
  const gate = noting(makeGate());
  const answer = async () => Response.json(result({ [KEY]: 1e30 }));
  const request = new Request("http://x/", { method: "POST", headers: JSON_FIELDS, body: JSON.stringify(callMessage()) });
  await (await protect(answer, gate, { usageMeta: KEY })(request)).text();
  assert.deepEqual(gate.used, [2n ** 64n - 1n]);
});

test("what is reported after the call is over changes nothing", options, async () => {
  const gate = noting(makeGate());
  let late;
  const answer = async () => {
    reportUsage(2);
    late = new Promise((resolve) => setImmediate(resolve)).then(() => reportUsage(1_000));
    return new Response();
  };
  const request = new Request("http://x/", { method: "POST", headers: JSON_FIELDS, body: JSON.stringify(callMessage()) });
  await protect(answer, gate)(request);
  assert.equal(await late, false);
  assert.deepEqual(gate.used, [2n]);
});

test("outside of a call nothing is noted", () => assert.deepEqual([reportUsage(1), usage()], [false, 0n]));

for (const [units, kind] of [[-1, CallError], [1.5, CallError], [Number.NaN, CallError], [-1n, CallError], [true, TypeError], ["1", TypeError]]) {
  test(`${String(units)} (${typeof units}) are no units`, () => {
    assert.throws(() => reportUsage(units), (error) => error instanceof kind && error.message.includes("units"));
  });
}

test("a response that is too large is passed on unread", () => {
  const reader = new ResponseReader(KEY, "application/json");
  for (let n = 0; n < 3; n += 1) reader.read(" ".repeat(MAX_READ_CHARS / 2));
  reader.read(JSON.stringify(result({ [KEY]: 9 })));
  reader.end();
  assert.equal(reader.units, undefined);
});

test("a quota runs out by what calls report, and returns at midnight", options, async (t) => {
  const gate = new Gate({
    limits: { tokens: new Quota(1_000) },
    policies: { authenticated: [["tokens", "caller"]], anonymous: [["tokens", "shared"]] },
  });
  const dayNs = 86_400n * 1_000_000_000n;
  const [clock, wallClock] = [makeClock(), makeClock(20_000n * dayNs + dayNs - 90n * 1_000_000_000n)];
  const answer = ({ start, end }) => (reportUsage(600), start(200), end());
  const url = await front(t, "express", writing("express", answer), gate, { clock, wallClock, caller: () => "ann" });
  const used = () => 1_000 - gate.peek("authenticated", { caller: "ann", nowNs: clock(), unixNs: wallClock() })[0].remaining;
  const answers = [];
  // The second overdraws, and the overdraft is what refuses the third.
  for (const total of [600, 1_000, 1_000]) {
    answers.push(await send(url, callMessage(), JSON_FIELDS));
    await until(() => used() === total);
  }
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 429]);
  assert.equal(answers[2].headers["retry-after"], "90");
  assert.deepEqual(answers[2].json.error.data, { reason: "quota", limit: "tokens", retryAfterMs: 90_000 });
  wallClock.advanceS(90);
  assert.equal((await send(url, callMessage(), JSON_FIELDS)).status, 200);
});
