// API keys: who gets in, who does not, and that nobody gets to see a key.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import express from "express";
import Fastify from "fastify";

import { RateLimit } from "../../dist/index.js";
import { APIKeys, CALLER, currentCaller, expressMiddleware, fastifyPlugin, logger, protect, protectNode } from "../../dist/mcp/index.js";
import { withoutKey } from "../../dist/mcp/api-keys.js";
import { serve, SERVERS } from "./servers.mjs";
import { callMessage, charged, JSON_FIELDS, listen, makeClock, makeGate, noteLog, options, send } from "./support.mjs";

const ANN_KEY = "k-ann-3f9c";
const BEN_KEY = "k-ben-71aa";
const USERS = { [ANN_KEY]: "ann", "k-ann-too": "ann", [BEN_KEY]: "ben" };

for (const server of SERVERS) {
  test(`${server}: a key is demanded of every request, and its user is charged`, options, async (t) => {
    const [gate, clock] = [makeGate({ burst: 2 }), makeClock()];
    const served = await serve(t, server, gate, { clock, apiKeys: new APIKeys(USERS) });
    const post = (headers) => served.post(served.message(), headers);
    const missing = await post({});
    assert.equal(missing.status, 401);
    assert.equal(missing.headers["www-authenticate"], 'Bearer realm="mcp"');
    assert.deepEqual([missing.json.id, missing.json.error.code], [null, -31001]);
    assert.match(missing.json.error.message, /X-API-Key/);
    const wrong = await post({ "x-api-key": "wrong" });
    assert.equal(wrong.status, 401);
    assert.equal(wrong.headers["www-authenticate"], 'Bearer realm="mcp", error="invalid_token"');
    assert.equal((await send(served.url, Buffer.alloc(0), {}, "GET")).status, 401);
    assert.deepEqual(served.ran, []);
    for (const [key, status] of [[ANN_KEY, 200], ["k-ann-too", 200], [ANN_KEY, 429]]) {
      assert.equal((await post({ "x-api-key": key })).status, status);
    }
    assert.equal((await post({ authorization: `Bearer ${BEN_KEY}` })).status, 200);
    assert.equal((await send(`${served.url}?key=${BEN_KEY}`, served.message(), served.headers)).status, 200);
    assert.deepEqual([charged(gate, clock, "authenticated", "ann"), charged(gate, clock, "authenticated", "ben")], [2, 2]);
    assert.equal(served.ran.length, 4);
  });
}

test("the first place that has a key decides", options, async () => {
  const handler = protect(async () => Response.json({ user: currentCaller()?.identity }), makeGate({ burst: 99 }), {
    apiKeys: new APIKeys(USERS),
  });
  const post = (url, headers) => handler(new Request(url, { method: "POST", headers, body: "{}" }));
  const authorization = `Bearer ${ANN_KEY}`;
  assert.deepEqual(await (await post(`http://x/?key=${BEN_KEY}`, { authorization })).json(), { user: "ann" });
  assert.deepEqual(await (await post(`http://x/?key=${ANN_KEY}`, { "x-api-key": BEN_KEY })).json(), { user: "ben" });
  assert.equal((await post(`http://x/?key=${BEN_KEY}`, { authorization: "Bearer wrong" })).status, 401);
  assert.equal((await post(`http://x/?key=${BEN_KEY}`, { "x-api-key": "wrong" })).status, 401);
});

test("failed attempts have one limit that changing keys does not escape", options, async (t) => {
  const failures = new RateLimit(1, { per: "1h", burst: 5 });
  const served = await serve(t, "2.x, fetch", makeGate(), { apiKeys: new APIKeys(USERS, { failures }) });
  const answers = [];
  for (let n = 0; n < 8; n += 1) answers.push(await served.post(served.message(), { "x-api-key": `guess-${n}` }));
  assert.deepEqual(answers.map(({ status }) => status), [401, 401, 401, 401, 401, 429, 429, 429]);
  const { reason, limit, retryAfterMs } = answers[7].json.error.data;
  assert.deepEqual([reason, limit], ["rate", "failed attempts"]);
  assert.ok(retryAfterMs > 3_500_000 && retryAfterMs <= 3_600_000);
  assert.equal(answers[7].headers["retry-after"], "3600");
  // Nobody can lock others out, and a request without a key is no attempt.
  assert.equal((await served.post(served.message(), { "x-api-key": ANN_KEY })).status, 200);
  assert.equal((await served.post(served.message())).status, 401);
});

test("a limit that fails lets nobody in", options, async (t) => {
  noteLog(t, logger);
  t.mock.method(APIKeys.prototype, "failed", () => {
    throw new Error("broken");
  });
  const served = await serve(t, "1.x, node", makeGate(), { apiKeys: new APIKeys(USERS) });
  assert.equal((await served.post(served.message(), { "x-api-key": "wrong" })).status, 401);
  assert.deepEqual(served.ran, []);
});

// --- the key in the query ------------------------------------------------------------------------

for (const [url, key, rest] of [
  ["/mcp", undefined, "/mcp"],
  ["/mcp?a=1", undefined, "/mcp?a=1"],
  ["/mcp?key=k", "k", "/mcp"],
  ["/mcp?a=1&key=k&b=2&key=again", "k", "/mcp?a=1&b=2"],
  ["/mcp?%6bey=%6B%20%FF", "k \xff", "/mcp"],
  ["/mcp?key=&key=k", "k", "/mcp"],
  ["/mcp?key", undefined, "/mcp"],
  ["/mcp?key=a=b", "a=b", "/mcp"],
  ["/mcp?Key=k&keys=k&%zzkey=1", undefined, "/mcp?Key=k&keys=k&%zzkey=1"],
  ["http://x/mcp?key=k&a=%20", "k", "http://x/mcp?a=%20"],
]) {
  test(`the key of ${url}`, () => {
    const found = withoutKey(url);
    assert.deepEqual([found.key?.toString("latin1"), found.url], [key, rest]);
  });
}

test("neither the application nor a log gets to see the key in the query", options, async (t) => {
  const seen = [];
  const keys = { apiKeys: new APIKeys(USERS) };
  const app = express();
  app.use("/mcp", expressMiddleware(makeGate(), keys));
  app.all("/mcp/deep", (request, response) => {
    seen.push(request.originalUrl, request.url, request.query);
    response.end();
  });
  const fastify = Fastify();
  await fastify.register(fastifyPlugin(makeGate(), keys));
  fastify.all("/mcp/deep", async (request) => seen.push(request.raw.url, request.url, { ...request.query }));
  await fastify.ready();
  const node = protectNode((request, response) => {
    seen.push(request.url);
    response.end();
  }, makeGate(), keys);
  const fetch = protect((request) => {
    seen.push(request.url);
    return new Response();
  }, makeGate(), keys);
  for (const handler of [app, fastify.server, node]) {
    const url = `${await listen(t, handler)}/mcp/deep?a=1&key=${ANN_KEY}`;
    assert.equal((await send(url, callMessage(), JSON_FIELDS)).status, 200);
  }
  await fetch(new Request(`http://x/?key=${ANN_KEY}`));
  assert.equal(seen.length, 8);
  assert.ok(seen.every((each) => !JSON.stringify(each).includes("key")), JSON.stringify(seen));
  assert.deepEqual({ ...seen[2] }, { a: "1" });
});

test("a query that was parsed before, as by express 4, is without the key, too", options, async (t) => {
  const guard = expressMiddleware(makeGate(), { apiKeys: new APIKeys(USERS) });
  let seen;
  const url = await listen(t, (request, response) => {
    request.query = Object.fromEntries(new URL(request.url, "http://x").searchParams);
    guard(request, response, () => response.end(JSON.stringify((seen = request.query))));
  });
  assert.equal((await send(`${url}/?a=1&key=${ANN_KEY}`, callMessage(), JSON_FIELDS)).status, 200);
  assert.deepEqual(seen, { a: "1" });
});

test("a user is a string", () => assert.throws(() => new APIKeys({ k: 1001 }), /user of an API key must be a string, not a number/));

// --- secrets -------------------------------------------------------------------------------------

test("no secret is logged or kept, and each key is compared as a digest", (t) => {
  const log = noteLog(t, logger);
  const keys = APIKeys.parse(Object.entries(USERS).map(([key, user]) => `${key}:${user}`).join());
  for (const secret of Object.keys(USERS)) {
    assert.ok(!inspect(keys, { depth: 10, showHidden: true }).includes(secret));
    assert.ok(!JSON.stringify([keys, log]).includes(secret));
  }
  assert.deepEqual([keys.userOf(ANN_KEY), keys.userOf(Buffer.from(BEN_KEY)), keys.userOf("wrong"), keys.userOf("")], ["ann", "ben", undefined, undefined]);
});

test("the caller of a key is on the request, and in the present context", options, async (t) => {
  const seen = [];
  const handler = protectNode((request, response) => {
    seen.push(request[CALLER].identity, currentCaller().identity);
    response.end();
  }, makeGate(), { apiKeys: new APIKeys(USERS) });
  const url = await listen(t, handler);
  for (const message of [callMessage(), { jsonrpc: "2.0", id: 1, method: "ping" }]) {
    await send(url, message, { ...JSON_FIELDS, "x-api-key": ANN_KEY });
  }
  assert.deepEqual([seen, currentCaller()], [["ann", "ann", "ann", "ann"], undefined]);
});

// --- the environment -----------------------------------------------------------------------------

test("keys are read from the environment", () => {
  const keys = APIKeys.fromEnv({ MCP_API_KEYS: ` ${ANN_KEY} : ann ,${BEN_KEY}:user:1001,__proto__:eve,` });
  assert.deepEqual([ANN_KEY, BEN_KEY, "__proto__", ""].map((key) => keys.userOf(key)), ["ann", "user:1001", "eve", undefined]);
});

for (const entry of ["s3cret", "s3cret:", ":ann", "s3cret: ", " : "]) {
  test(`the entry ${JSON.stringify(entry)} is left out, and warned about without being told`, (t) => {
    const log = noteLog(t, logger);
    const keys = APIKeys.fromEnv({ MCP_API_KEYS: `${ANN_KEY}:ann,${entry}` });
    assert.deepEqual([keys.userOf(ANN_KEY), keys.userOf("s3cret")], ["ann", undefined]);
    assert.equal(log.warn.length, 1);
    assert.match(log.warn[0], /MCP_API_KEYS.*entry 2/);
    assert.ok(!log.warn[0].includes("s3cret"));
  });
}

test("a key that is there twice keeps its first user", (t) => {
  const log = noteLog(t, logger);
  assert.equal(APIKeys.parse("k-secret:ann,k-secret:ben").userOf("k-secret"), "ann");
  assert.match(log.warn[0], /entry 2/);
  assert.ok(!log.warn[0].includes("k-secret"));
});

for (const [environment, isDemanded] of [
  [{}, false],
  [{ MCP_API_KEYS: "" }, false],
  [{ MCP_API_KEYS: "k:ann" }, true],
  [{ MCP_API_KEYS: "k:ann", MCP_AUTH_ENABLED: "false" }, false],
  [{ MCP_API_KEYS: "k:ann", MCP_AUTH_ENABLED: " OFF " }, false],
  [{ MCP_API_KEYS: "k:ann", MCP_AUTH_ENABLED: "0" }, false],
  [{ MCP_API_KEYS: "k:ann", MCP_AUTH_ENABLED: "yes" }, true],
  [{ MCP_AUTH_ENABLED: "true" }, true],
  [{ MCP_AUTH_ENABLED: "1" }, true],
]) {
  test(`${JSON.stringify(environment)} ${isDemanded ? "demands" : "does not demand"} a key`, (t) => {
    noteLog(t, logger);
    assert.equal(APIKeys.fromEnv(environment) !== undefined, isDemanded);
  });
}

test("a switch that says nothing keeps the default and warns", (t) => {
  const log = noteLog(t, logger);
  assert.ok(APIKeys.fromEnv({ MCP_API_KEYS: "k:ann", MCP_AUTH_ENABLED: "maybe" }));
  assert.equal(log.warn.length, 1);
  assert.match(log.warn[0], /MCP_AUTH_ENABLED/);
});

test("where keys are demanded and none is valid nobody gets in", (t) => {
  const log = noteLog(t, logger);
  assert.equal(APIKeys.fromEnv({ MCP_AUTH_ENABLED: "true" }).userOf(""), undefined);
  assert.match(log.warn[0], /every request is refused/);
});

test("the environment decides unless the code does", options, async (t) => {
  process.env.MCP_API_KEYS = `${ANN_KEY}:ann`;
  t.after(() => delete process.env.MCP_API_KEYS);
  const byEnvironment = await serve(t, "1.x, express", makeGate(), { apiKeys: "env" });
  assert.equal((await byEnvironment.post(byEnvironment.message())).status, 401);
  assert.equal((await byEnvironment.post(byEnvironment.message(), { "x-api-key": ANN_KEY })).status, 200);
  const without = await serve(t, "1.x, express", makeGate(), { apiKeys: null });
  assert.equal((await without.post(without.message())).status, 200);
});

for (const users of [{ "": "ann" }, { k: "" }]) {
  test(`${JSON.stringify(users)} is refused`, () => assert.throws(() => new APIKeys(users), /empty/));
}
