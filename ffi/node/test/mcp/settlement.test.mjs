// How the calls of a request end, through each middleware, and what the limiter's own failures do.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { test } from "node:test";

import { Charge, Receipt } from "../../dist/mcp/charge.js";
import { protect } from "../../dist/mcp/index.js";
import { logger } from "../../dist/mcp/log.js";
import { front, fronts, writing } from "./fronts.mjs";
import {
  begin, broken, callMessage, charged, drain, guardedGate, inFlight, JSON_FIELDS, makeClock, makeGate, MANY, noteLog,
  noting, options, send, until,
} from "./support.mjs";

const post = (url, content = callMessage(), headers = {}) => send(url, content, { ...JSON_FIELDS, ...headers });

const ok = ({ start, write, end }) => {
  start(200);
  write("{}");
  end();
};

for (const name of fronts) {
  for (const [status, outcome] of [[200, "success"], [202, "success"], [400, "success"], [500, "failure"], [503, "failure"]]) {
    test(`${name}: a call that is answered with ${status} is a ${outcome}`, options, async (t) => {
      const gate = noting(makeGate());
      const url = await front(t, name, writing(name, ({ start, end }) => (start(status), end())), gate);
      assert.equal((await post(url)).status, status);
      await until(() => gate.outcomes.length > 0);
      assert.deepEqual(gate.outcomes, [outcome]);
    });
  }

  test(`${name}: a handler that throws has failed`, options, async (t) => {
    const gate = noting(makeGate());
    const url = await front(t, name, async () => {
      throw new Error("the handler is broken");
    }, gate);
    assert.equal((await post(url)).status, 500);
    await until(() => gate.outcomes.length > 0);
    assert.deepEqual(gate.outcomes, ["failure"]);
  });

  test(`${name}: a stream that breaks off is a failure`, options, async (t) => {
    const gate = noting(guardedGate());
    const url = await front(t, name, writing(name, ({ start, write, fail }) => {
      start(200);
      write("part");
      setImmediate(() => fail(new Error("broken")));
    }), gate);
    const request = begin(url, callMessage(), JSON_FIELDS);
    await until(() => gate.outcomes.length > 0);
    assert.deepEqual([gate.outcomes, inFlight(gate)], [["failure"], 0]);
    request.destroy();
  });

  for (const moment of ["before the answer", "in the middle of a stream"]) {
    test(`${name}: a client that leaves ${moment} has abandoned the call, and paid`, options, async (t) => {
      const gate = noting(guardedGate());
      let isRunning = false;
      const url = await front(t, name, writing(name, ({ start, write }) => {
        isRunning = true;
        if (moment !== "before the answer") {
          start(200, "text/event-stream");
          write("data: 1\n\n");
        }
        return new Promise(() => undefined);
      }), gate);
      const request = begin(url, callMessage(), JSON_FIELDS);
      if (moment !== "before the answer") await once((await once(request, "response"))[0], "data");
      await until(() => isRunning);
      assert.equal(inFlight(gate), 1);
      request.destroy();
      await until(() => gate.outcomes.length > 0);
      assert.deepEqual([gate.outcomes, inFlight(gate)], [["abandoned"], 0]);
      assert.equal(gate.peek("anonymous", { cost: 0 })[0].remaining, MANY - 1);
    });
  }

  test(`${name}: a client that leaves while it sends is not charged`, options, async (t) => {
    const gate = noting(guardedGate());
    const url = await front(t, name, writing(name, ok), gate);
    const connections = new Set();
    const request = http.request(url, { method: "POST", headers: { ...JSON_FIELDS, "content-length": 9_999 }, agent: false });
    request.on("error", () => undefined);
    request.on("socket", (socket) => connections.add(socket));
    request.write(JSON.stringify(callMessage()));
    await once(request, "socket");
    await until(() => request.socket.bytesWritten > 100);
    request.destroy();
    await until(() => [...connections].every((socket) => socket.destroyed));
    // The server has seen that one go when it has answered the next.
    await post(url, { jsonrpc: "2.0", id: 1, method: "ping" });
    assert.deepEqual([gate.outcomes, inFlight(gate)], [[], 0]);
    assert.equal(gate.peek("anonymous", { cost: 0 })[0].remaining, MANY);
  });

  test(`${name}: a place is held until the stream has ended, and nobody queues`, options, async (t) => {
    const [gate, clock] = [guardedGate({ places: 2 }), makeClock()];
    const open = [];
    const url = await front(t, name, writing(name, (it) => {
      it.start(200, "text/event-stream");
      it.write("data: 1\n\n");
      open.push(it);
    }), gate, { clock });
    const calls = [post(url), post(url, [callMessage("work", 1), callMessage("work", 2)])];
    await until(() => open.length === 2);
    assert.equal(inFlight(gate, clock), 2);
    const refused = await post(url, callMessage("work", "x"));
    assert.equal(refused.status, 503);
    assert.equal(refused.headers["retry-after"], "1");
    assert.equal(refused.json.id, "x");
    assert.deepEqual(refused.json.error.data, { reason: "concurrency", limit: "server", retryAfterMs: null });
    for (const each of open) each.end();
    await Promise.all(calls);
    await until(() => inFlight(gate, clock) === 0);
    // Three calls were let through; the one refused has paid nothing.
    assert.equal(gate.peek("anonymous", { cost: 0, nowNs: clock() })[0].remaining, MANY - 3);
  });

  test(`${name}: the breaker opens and closes again`, options, async (t) => {
    const [gate, clock] = [guardedGate({ places: 1, rejectTrip: 3 }), makeClock()];
    const open = [];
    const url = await front(t, name, writing(name, (it) => open.push(it)), gate, { clock });
    const call = post(url);
    await until(() => open.length === 1);
    const refusals = [];
    for (let n = 0; n < 4; n += 1) refusals.push(await post(url));
    assert.deepEqual(refusals.map(({ status }) => status), [503, 503, 503, 503]);
    const reasons = refusals.map(({ json }) => json.error.data.reason);
    assert.deepEqual(reasons, ["concurrency", "concurrency", "breaker_open", "breaker_open"]);
    assert.equal(refusals[3].headers["retry-after"], "30");
    assert.equal(refusals[3].json.error.data.retryAfterMs, 30_000);
    ok(open[0]);
    await call;
    await until(() => inFlight(gate, clock) === 0);
    clock.advanceS(29.9);
    assert.equal((await post(url)).headers["retry-after"], "1");
    clock.advanceS(0.1);
    const last = post(url);
    await until(() => open.length === 2);
    ok(open[1]);
    assert.equal((await last).status, 200);
  });

  test(`${name}: a refusal is what the gate says, before the handler sees the call`, options, async (t) => {
    const [gate, clock] = [makeGate(), makeClock()];
    const ran = [];
    const url = await front(t, name, writing(name, (it) => (ran.push(it), ok(it))), gate, { clock });
    drain(gate, clock);
    const refused = await post(url, callMessage("work", "7"));
    assert.deepEqual([refused.status, ran], [429, []]);
    assert.equal(refused.headers["content-type"], "application/json");
    assert.equal(refused.headers["cache-control"], "no-store");
    assert.equal(refused.headers["retry-after"], "3600");
    assert.equal(refused.headers.ratelimit, '"anonymous";r=0;t=3600');
    assert.equal(refused.headers["ratelimit-policy"], '"anonymous";q=3;w=10800');
    assert.deepEqual(refused.json, {
      jsonrpc: "2.0",
      id: "7",
      error: {
        code: -31004,
        message: "Too many tool calls: the limit 'anonymous' is reached. Try again in 60 minutes.",
        data: { reason: "rate", limit: "anonymous", retryAfterMs: 3_600_000 },
      },
    });
    clock.nowNs += 3_600_000_000_000n - 1n;
    assert.equal((await post(url)).status, 429);
    clock.nowNs += 1n;
    assert.equal((await post(url)).status, 200);
    assert.equal(gate.stats({ nowNs: clock() }).decisions.find((each) => each.reason === "rate").count, 3);
  });

  test(`${name}: a batch is charged in full or not at all`, options, async (t) => {
    const [gate, clock] = [makeGate({ anonymous: 10 }), makeClock()];
    const url = await front(t, name, writing(name, ok), gate, { clock });
    const batch = (size) => Array.from({ length: size }, (_, id) => callMessage("work", id));
    assert.equal((await post(url, batch(6))).status, 200);
    const refused = await post(url, batch(5));
    assert.deepEqual([refused.status, "id" in refused.json], [429, false]);
    assert.equal(charged(gate, clock), 6);
    const never = await post(url, batch(11));
    assert.deepEqual([never.status, never.headers["retry-after"]], [429, undefined]);
    assert.deepEqual(never.json.error.data, { reason: "never", limit: "anonymous", retryAfterMs: null });
    assert.equal((await post(url, batch(4))).status, 200);
    assert.equal(charged(gate, clock), 10);
  });

  test(`${name}: what cannot be read is refused as it is, and charges nobody`, options, async (t) => {
    const [gate, clock] = [makeGate(), makeClock()];
    const ran = [];
    const url = await front(t, name, writing(name, (it) => (ran.push(it), ok(it))), gate, { clock, maxBodyBytes: 1_000 });
    const text = JSON.stringify(callMessage());
    const large = Buffer.from(text.replace("{}", JSON.stringify({ x: "x".repeat(1_000) })));
    // The SDK's adapter of 2.x has dropped the mark before.
    const mark = name === "fetch" ? [] : [[Buffer.from(`\ufeff${text}`), {}, 400, -32700]];
    for (const [body, headers, status, code] of [
      [Buffer.from(text.slice(1)), {}, 400, -32700],
      ...mark,
      [Buffer.from(text, "utf16le"), {}, 400, -32700],
      [Buffer.from(text.replace('"id"', '"method":"ping","id"')), {}, 400, -32600],
      [Buffer.from(text), { "content-encoding": "gzip" }, 415, -32600],
      [Buffer.from(text), { "content-encoding": "identity, br" }, 415, -32600],
      [large, {}, 413, -32600],
      [[large.subarray(0, 700), large.subarray(700)], {}, 413, -32600],
    ]) {
      const response = await post(url, body, headers);
      assert.equal(response.status, status, `${body.subarray?.(0, 90)} ${JSON.stringify(headers)}`);
      assert.deepEqual([response.json.id, response.json.error.code], [null, code]);
      if (status === 415) assert.equal(response.headers["accept-encoding"], "identity");
    }
    assert.deepEqual([ran, charged(gate, clock)], [[], 0]);
    assert.equal((await post(url, Buffer.from(text), { "content-encoding": "Identity" })).status, 200);
  });

  test(`${name}: an internal error admits or refuses, and is counted`, options, async (t) => {
    const log = noteLog(t, logger);
    const gate = makeGate();
    const url = await front(t, name, writing(name, ok), broken(gate));
    for (let n = 0; n < 3; n += 1) assert.equal((await post(url)).status, 200);
    assert.equal(gate.internalErrors, 3);
    // Once in a while, and without identities.
    assert.equal(log.error.length, 1);
    assert.match(log.error[0], /DivisionByZero.*admitted/);
    assert.ok(!log.error[0].includes("1001"));
    const refusing = await front(t, name, writing(name, ok), broken(gate), { onError: "refuse" });
    const refused = await post(refusing, callMessage("work", 9));
    assert.deepEqual([refused.status, refused.json.id, refused.json.error.code], [503, 9, -32603]);
    assert.equal(gate.internalErrors, 4);
  });

  test(`${name}: a caller function that fails is an internal error`, options, async (t) => {
    noteLog(t, logger);
    const caller = () => {
      throw new Error("no such user");
    };
    const gate = makeGate();
    assert.equal((await post(await front(t, name, writing(name, ok), gate, { caller }))).status, 200);
    const refusing = await front(t, name, writing(name, ok), gate, { caller, onError: "refuse" });
    assert.equal((await post(refusing)).status, 503);
    assert.equal(gate.internalErrors, 2);
  });

  test(`${name}: a settlement or an observer that fails does not reach the client`, options, async (t) => {
    noteLog(t, logger);
    const fail = () => {
      throw new Error("broken");
    };
    const gate = noting(makeGate(), { settle: fail });
    assert.equal((await post(await front(t, name, writing(name, ok), gate, { observe: fail }))).status, 200);
    await until(() => gate.internalErrors === 2);
  });

  test(`${name}: each decision is observed once, with its source`, options, async (t) => {
    const seen = [];
    const url = await front(t, name, writing(name, ok), makeGate(), { observe: (each) => seen.push(each) });
    for (let n = 0; n < 2; n += 1) await post(url, [callMessage(), callMessage("work", 2)]);
    await post(url, { jsonrpc: "2.0", id: 1, method: "ping" });
    assert.deepEqual(
      seen.map(({ policy, cost, decision }) => [policy, cost, decision.admitted]),
      [["anonymous", 2, true], ["anonymous", 2, false]],
    );
    assert.ok(seen.every(({ gateNs, source }) => gateNs > 0 && typeof source === "object"));
  });

  test(`${name}: a function names the caller, and one never costs another`, options, async (t) => {
    const [gate, clock] = [makeGate(), makeClock()];
    const headerOf = ({ headers, req }) => req?.header("x-user") ?? headers["x-user"] ?? headers.get?.("x-user");
    const url = await front(t, name, writing(name, ok), gate, { clock, caller: headerOf });
    for (let n = 0; n < 5; n += 1) await post(url, callMessage(), { "x-user": "noisy" });
    assert.equal((await post(url, callMessage(), { "x-user": "noisy" })).status, 429);
    assert.equal((await post(url, callMessage(), { "x-user": "quiet" })).status, 200);
    assert.equal(charged(gate, clock, "authenticated", "noisy"), 3);
    assert.equal(charged(gate, clock, "authenticated", "quiet"), 1);
  });

  test(`${name}: one unverified bearer has a limit of its own behind the shared one`, options, async (t) => {
    const [gate, clock] = [makeGate({ burst: 3, forwarded: 10 }), makeClock()];
    const url = await front(t, name, writing(name, ok), gate, { clock });
    const statuses = [];
    for (let n = 0; n < 5; n += 1) statuses.push((await post(url, callMessage(), { authorization: "Bearer x" })).status);
    assert.deepEqual(statuses, [200, 200, 200, 429, 429]);
    // What its own bucket refused was given back to the others.
    assert.equal(charged(gate, clock, "forwarded-bearer", "\0bearer\0x"), 3);
    assert.equal((await post(url)).status, 200);
  });

  for (const [option, value] of [["maxBodyBytes", 0], ["maxBodyBytes", -1], ["onError", "ignore"], ["errorCode", 1.5], ["reserve", -1], ["apiKeys", {}]]) {
    test(`${name}: ${option} can't be ${JSON.stringify(value)}`, options, async (t) => {
      const making = front(t, name, writing(name, ok), makeGate(), { [option]: value });
      await assert.rejects(making, (error) => error.message.includes(option));
    });
  }
}

// --- what only a fetch response can do -----------------------------------------------------------

const fetchRequest = (init = {}) =>
  new Request("http://localhost/mcp", { method: "POST", headers: JSON_FIELDS, body: JSON.stringify(callMessage()), ...init });
const chunks = (...parts) =>
  new ReadableStream({
    pull(controller) {
      const part = parts.shift();
      if (part === undefined) controller.close();
      else controller.enqueue(new TextEncoder().encode(part));
    },
  });

test("a response without a body is over when it is returned", options, async () => {
  const gate = noting(guardedGate());
  await protect(async () => new Response(null, { status: 202 }), gate)(fetchRequest());
  assert.deepEqual([gate.outcomes, inFlight(gate)], [["success"], 0]);
});

test("a response's status, fields and body arrive as they were", options, async () => {
  const headers = new Headers({ "x-a": "1" });
  headers.append("set-cookie", "a=1");
  headers.append("set-cookie", "b=2");
  const answer = async () => new Response(chunks("one", "two"), { status: 201, statusText: "Made", headers });
  const response = await protect(answer, makeGate())(fetchRequest());
  assert.deepEqual([response.status, response.statusText, await response.text()], [201, "Made", "onetwo"]);
  assert.deepEqual([response.headers.get("x-a"), response.headers.getSetCookie()], ["1", ["a=1", "b=2"]]);
});

test("a stream that its reader cancels is an abandoned call, and the handler hears of it", options, async () => {
  const gate = noting(guardedGate());
  let reason;
  const answer = async () => new Response(new ReadableStream({ cancel: (why) => void (reason = why) }));
  const response = await protect(answer, gate)(fetchRequest());
  assert.equal(inFlight(gate), 1);
  await response.body.cancel("enough");
  assert.deepEqual([gate.outcomes, inFlight(gate), reason], [["abandoned"], 0, "enough"]);
});

test("a stream that is never read keeps its place no longer than anybody has it", options, async () => {
  const gate = noting(guardedGate());
  let isCancelled = false;
  const answer = async () => new Response(new ReadableStream({ cancel: () => void (isCancelled = true) }));
  await protect(answer, gate)(fetchRequest());
  await until(() => {
    globalThis.gc();
    return gate.outcomes.length > 0 && isCancelled;
  });
  assert.deepEqual([gate.outcomes, inFlight(gate)], [["abandoned"], 0]);
});

test("an aborted request is an abandoned call at once", options, async () => {
  const gate = noting(guardedGate());
  const abort = new AbortController();
  const handler = protect(() => new Promise(() => undefined), gate);
  void handler(fetchRequest({ signal: abort.signal }));
  await until(() => inFlight(gate) === 1);
  abort.abort();
  assert.deepEqual([gate.outcomes, inFlight(gate)], [["abandoned"], 0]);
});

test("a parsed body is counted in place of the request's, as the SDK takes it", options, async () => {
  const [gate, clock] = [makeGate(), makeClock()];
  const handler = protect({ fetch: async () => new Response() }, gate, { clock });
  const ping = fetchRequest({ body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "ping" }) });
  await handler.fetch(ping, { parsedBody: [callMessage(), callMessage()] });
  assert.equal(charged(gate, clock), 2);
  await handler.fetch(fetchRequest(), { parsedBody: { jsonrpc: "2.0", id: 1, method: "ping" } });
  assert.equal(charged(gate, clock), 2);
});

test("a body that somebody has read before is refused rather than guessed at", options, async () => {
  const ran = [];
  const handler = protect(async () => (ran.push(1), new Response()), makeGate());
  const request = fetchRequest();
  await request.text();
  assert.equal((await handler(request)).status, 400);
  assert.deepEqual(ran, []);
});

test("a handler keeps its other properties, and its arguments", options, async () => {
  class Handler {
    #secret = 7;
    secret() {
      return this.#secret;
    }
    async fetch(_request, ...rest) {
      return Response.json([this.#secret, ...rest]);
    }
  }
  const handler = protect(new Handler(), makeGate());
  assert.equal(handler.secret(), 7);
  assert.deepEqual(await (await handler.fetch(fetchRequest(), { a: 1 }, "b")).json(), [7, { a: 1 }, "b"]);
});

test("two middlewares on one gate charge once, and on two gates each", options, async () => {
  const [clock, gate, other] = [makeClock(), makeGate(), makeGate()];
  const inner = protect(async () => new Response(), gate, { clock });
  await protect(inner, gate, { clock })(fetchRequest());
  assert.equal(charged(gate, clock), 1);
  await protect(inner, other, { clock })(fetchRequest());
  assert.deepEqual([charged(gate, clock), charged(other, clock)], [2, 1]);
});

for (const [what, answer] of [
  ["was read already", async () => {
    const response = new Response("{}");
    await response.text();
    return response;
  }],
  ["is none", async () => undefined],
]) {
  test(`a handler whose response ${what} has failed`, options, async () => {
    const gate = noting(guardedGate());
    const handler = protect(answer, gate, { apiKeys: null });
    const request = new Request("http://localhost/", { method: "POST", headers: JSON_FIELDS, body: JSON.stringify(callMessage()) });
    await assert.rejects(handler(request), TypeError);
    assert.deepEqual([gate.outcomes, inFlight(gate)], [["failure"], 0]);
  });
}

test("a request that was aborted while it was decided does not run, and is not charged", options, async () => {
  const gate = noting(guardedGate());
  const aborting = new AbortController();
  let ran = 0;
  const caller = () => {
    aborting.abort();
    return null;
  };
  const handler = protect(async () => new Response(`${(ran += 1)}`), gate, { apiKeys: null, caller });
  const init = { method: "POST", headers: JSON_FIELDS, body: JSON.stringify(callMessage()), signal: aborting.signal };
  await handler(new Request("http://localhost/", init));
  assert.deepEqual([ran, gate.outcomes, inFlight(gate)], [0, ["cancelled"], 0]);
});

test("who is protected keeps its properties", async () => {
  const answer = Object.assign(async () => new Response("{}"), { close: () => "closed" });
  const handler = protect(answer, makeGate(), { apiKeys: null });
  assert.equal(handler.close(), "closed");
  assert.equal((await handler(new Request("http://localhost/"))).status, 200);
  for (const make of [(it) => it, Object.freeze]) {
    const served = protect(make({ fetch: answer, name: "mine", close: () => "closed" }), makeGate(), { apiKeys: null });
    assert.deepEqual([served.name, served.close(), Object.keys(served)], ["mine", "closed", ["fetch", "name", "close"]]);
    assert.equal((await served.fetch(new Request("http://localhost/"))).status, 200);
  }
});

for (const [name, value] of [
  ["caller", "x-user"],
  ["observe", {}],
  ["clock", 5],
  ["clock", () => 0.5],
  ["clock", () => -1],
  ["reserve", 1.5],
  ["reserve", -1],
  ["reserve", 2n ** 64n],
  ["seeder", 5],
]) {
  test(`${name}: ${typeof value === "function" ? value : String(value)} is an error from the start`, () => {
    const make = () => protect(async () => new Response(), makeGate(), { apiKeys: null, [name]: value });
    assert.throws(make, (error) => error.message.startsWith(`${name} must be `));
  });
}

test("who comes for a call that has ended is to be charged anew", () => {
  const settled = [];
  const charge = new Charge((_permit, outcome) => settled.push(outcome), [{ permit: {}, reserve: 0n, hasQuota: false }]);
  const receipt = new Receipt({}, 2, charge);
  const outer = charge.hold();
  const inner = receipt.take();
  outer.settle("abandoned");
  assert.deepEqual(settled, []);
  inner.settle("success");
  assert.deepEqual([settled, receipt.take()], [["abandoned"], undefined]);
});
