// One refusal, three renderings.

import assert from "node:assert/strict";
import { test } from "node:test";

import { OFF, RateLimit } from "../../dist/index.js";
import { httpError, httpRefusal, jsonRpcRefusal, retryAfterMs, retryAfterS, sentence } from "../../dist/mcp/refusal.js";
import { makeClock, makeGate } from "./support.mjs";

const SECOND = 1_000_000_000n;
const REASONS = ["rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never"];
const STRUCTURED_STRING = String.raw`"(?:[ !#-\[\]-~]|\\["\\])*"`;

const refusal = (reason = "rate", changes = {}) => ({
  reason, by: "caller", retryAfterNs: SECOND, limit: 60, remaining: 0, ...changes,
});

function rendered(decision, { policyLimits = { caller: new RateLimit(30, { per: "1s", burst: 60 }) }, ...changes } = {}) {
  const limits = new Map(Object.entries(policyLimits));
  const response = httpRefusal(decision, { cost: 1, requestId: 1, errorCode: -31004, policyLimits: limits, ...changes });
  return { ...response, json: JSON.parse(response.body) };
}

for (const reason of REASONS) {
  test(`the status of ${reason} tells the caller's own use from the server's state`, () => {
    const { status, json } = rendered(refusal(reason));
    assert.equal(status, ["concurrency", "breaker_open", "unseeded"].includes(reason) ? 503 : 429);
    assert.equal(json.error.data.reason, reason);
  });
  test(`${reason} has a sentence for a model`, () => {
    assert.match(sentence(refusal(reason), 3), /^[A-Z][^{}$]*\.$/);
  });
}

for (const [waitNs, seconds] of [[1n, "1"], [SECOND - 1n, "1"], [SECOND, "1"], [SECOND + 1n, "2"], [3_600n * SECOND, "3600"]]) {
  test(`Retry-After of ${waitNs} ns is ${seconds}`, () => {
    assert.equal(rendered(refusal("rate", { retryAfterNs: waitNs })).headers["retry-after"], seconds);
  });
}

for (const [waitNs, ms] of [[1n, 1], [1_000_000n, 1], [1_000_001n, 2]]) {
  test(`retryAfterMs of ${waitNs} ns is ${ms}`, () => assert.equal(retryAfterMs(refusal("rate", { retryAfterNs: waitNs })), ms));
}

test("where no time is known HTTP still says one second and JSON says null", () => {
  const { headers, json } = rendered(refusal("concurrency", { retryAfterNs: 0n }));
  assert.equal(headers["retry-after"], "1");
  assert.equal(json.error.data.retryAfterMs, null);
});

test("a cost that never fits promises no time at all", () => {
  const { status, headers, json } = rendered(refusal("never", { retryAfterNs: 0n, limit: 20 }), { cost: 25 });
  assert.equal(status, 429);
  assert.equal(headers["retry-after"], undefined);
  assert.equal(headers.ratelimit, '"caller";r=0');
  assert.equal(json.error.data.retryAfterMs, null);
  assert.match(json.error.message, /25 tool calls/);
  assert.equal(retryAfterS(refusal("never")), undefined);
});

test("the body is a JSON-RPC error with reason, limit and wait, byte for byte as Python has it", () => {
  const { headers, body } = rendered(refusal("rate", { retryAfterNs: 1_500_000_000n }), { requestId: 7 });
  assert.equal(
    body,
    '{"jsonrpc":"2.0","id":7,"error":{"code":-31004,"message":"Too many tool calls: the limit \'caller\' is reached. ' +
      'Try again in 1.5 seconds.","data":{"reason":"rate","limit":"caller","retryAfterMs":1500}}}',
  );
  assert.deepEqual(Object.keys(headers), [
    "content-type", "content-length", "cache-control", "retry-after", "ratelimit", "ratelimit-policy",
  ]);
  assert.equal(headers["content-type"], "application/json");
  assert.equal(headers["cache-control"], "no-store");
});

test("the error code is configurable", () => {
  assert.equal(rendered(refusal(), { errorCode: -32001 }).json.error.code, -32001);
});

for (const requestId of [7, "7", 0, "", "ü\ud800", 1.5]) {
  test(`the id ${JSON.stringify(requestId)} keeps its type`, () => {
    assert.equal(rendered(refusal(), { requestId }).json.id, requestId);
  });
}

test("an id of a bigint is a number in the answer", () => {
  assert.match(rendered(refusal(), { requestId: 2n ** 60n }).body, /"id":1152921504606846976,/);
});

test("the id is omitted where there is none to echo", () => {
  assert.ok(!("id" in rendered(refusal(), { requestId: undefined }).json));
});

test("the content length is the length of the body, which is ASCII", () => {
  const { headers, body } = rendered(refusal("rate", { by: "grün \u007f😀" }), { requestId: "ü" });
  assert.equal(Number(headers["content-length"]), Buffer.byteLength(body));
  assert.match(body, /^[ -~]*$/);
  assert.match(body, /gr\\u00fcn \\u007f\\ud83d\\ude00/);
});

test("the rate limit fields name the limit and the whole policy", () => {
  const policyLimits = {
    shared: new RateLimit(100, { per: "1m", burst: 50 }),
    off: OFF,
    caller: new RateLimit(30, { per: "1s", burst: 60 }),
  };
  const { headers } = rendered(refusal("rate", { remaining: 3, retryAfterNs: 1n }), { policyLimits });
  assert.equal(headers.ratelimit, '"caller";r=3;t=1');
  assert.equal(headers["ratelimit-policy"], '"shared";q=50;w=30, "caller";q=60;w=2');
});

for (const name of ["plain", 'quo"te', "back\\slash", "grün", "line\r\nSet-Cookie: a=b", "😀"]) {
  test(`the name ${JSON.stringify(name)} of a limit makes a valid structured field`, () => {
    const policyLimits = { [name]: new RateLimit(30, { per: "1s", burst: 60 }) };
    const { headers } = rendered(refusal("rate", { by: name }), { policyLimits });
    assert.match(headers.ratelimit, new RegExp(`^${STRUCTURED_STRING};r=\\d+;t=\\d+$`));
    assert.match(headers["ratelimit-policy"], new RegExp(`^${STRUCTURED_STRING};q=\\d+;w=[1-9]\\d*$`));
  });
}

test("a refusal by something that is no rate has no RateLimit field", () => {
  const { headers } = rendered(refusal("breaker_open", { by: "server" }));
  assert.equal(headers.ratelimit, undefined);
  assert.ok("ratelimit-policy" in headers);
  assert.ok(!("ratelimit-policy" in rendered(refusal("breaker_open"), { policyLimits: { server: OFF } }).headers));
});

test("figures beyond what a field can carry are its largest", () => {
  const policyLimits = { caller: new RateLimit(1, { per: "1s", burst: 2n ** 60n / 1_000_000_000n }) };
  const { headers } = rendered(refusal("rate", { remaining: 2n ** 63n, retryAfterNs: 2n ** 61n }), { policyLimits });
  assert.equal(headers.ratelimit, '"caller";r=999999999999999;t=2305843010');
});

for (const [waitNs, words] of [
  [1n, "1 milliseconds"], [250_000_000n, "250 milliseconds"], [1_010_000_000n, "1.1 seconds"],
  [119n * SECOND, "119.0 seconds"], [121n * SECOND, "3 minutes"], [7_199n * SECOND, "2 hours"], [25n * 3_600n * SECOND, "25 hours"],
]) {
  test(`the sentence says ${words} of ${waitNs} ns`, () => {
    assert.ok(sentence(refusal("rate", { retryAfterNs: waitNs })).includes(`Try again in ${words}.`));
  });
}

test("a real refusal is rendered, and its wait is true", () => {
  const [gate, clock] = [makeGate({ anonymous: 2 }), makeClock()];
  const ask = () => gate.tryAdmit("anonymous", { nowNs: clock() });
  assert.deepEqual([ask().admitted, ask().admitted], [true, true]);
  const { data } = jsonRpcRefusal(ask());
  assert.equal(data.limit, "anonymous");
  clock.advanceS(data.retryAfterMs / 1_000);
  assert.ok(ask().admitted);
});

test("an error about an unreadable message says id null", () => {
  assert.equal(
    httpError(400, { code: -32700, message: "Parse error" }).body,
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
  );
});
