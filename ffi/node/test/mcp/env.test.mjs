// The gate that the environment describes.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConcurrencyLimit, OFF, Quota } from "../../dist/index.js";
import { defaultGate, gateFromEnv, logger } from "../../dist/mcp/index.js";
import { makeClock, noteLog } from "./support.mjs";

const SECOND = 1_000_000_000n;

function rate(gate, name) {
  const { count, periodNs, burst } = gate.limits.get(name);
  return [count, periodNs, burst];
}

/** A call that ends at once. */
function ask(gate, policy, caller, clock) {
  const times = { nowNs: clock(), unixNs: clock() };
  const decision = gate.tryAdmit(policy, { caller, ...times });
  if (decision.permit !== null) gate.settle(decision.permit, times);
  return decision;
}

test("without any variable there are sensible limits", (t) => {
  const log = noteLog(t, logger);
  const gate = gateFromEnv({});
  assert.deepEqual(rate(gate, "caller"), [30, SECOND, 60]);
  assert.deepEqual(rate(gate, "anonymous"), [100, SECOND, 200]);
  assert.deepEqual(rate(gate, "forwarded"), [100, SECOND, 200]);
  assert.deepEqual([log.warn, log.error], [[], []]);
});

test("each class of callers has its policy", () => {
  assert.deepEqual(Object.fromEntries(gateFromEnv({}).policies), {
    authenticated: [["caller", "caller"], ["tokens", "caller"], ["server", "shared"]],
    anonymous: [["anonymous", "shared"], ["server", "shared"]],
    "forwarded-bearer": [["forwarded", "shared"], ["caller", "caller"], ["server", "shared"]],
  });
});

test("the burst is twice the rate unless it is set", () => {
  assert.deepEqual(rate(gateFromEnv({ MCP_RATE_LIMIT: "7" }), "caller"), [7, SECOND, 14]);
  const both = { MCP_RATE_LIMIT: "7", MCP_RATE_LIMIT_BURST: "5" };
  assert.deepEqual(rate(gateFromEnv(both), "caller"), [7, SECOND, 5]);
  assert.deepEqual(rate(gateFromEnv({ MCP_RATE_LIMIT_BURST: " 90 " }), "caller"), [30, SECOND, 90]);
  assert.deepEqual(rate(gateFromEnv({ MCP_RATE_LIMIT: "+7" }), "caller"), [7, SECOND, 14]);
});

test("the anonymous rate has a burst of twice itself", () => {
  const gate = gateFromEnv({ MCP_RATE_LIMIT_ANONYMOUS: "5" });
  assert.deepEqual([rate(gate, "anonymous"), rate(gate, "forwarded")], [[5, SECOND, 10], [5, SECOND, 10]]);
});

test("zero anonymous is unlimited and mints no buckets for unverified bearers", () => {
  const [gate, clock] = [gateFromEnv({ MCP_RATE_LIMIT_ANONYMOUS: "0" }), makeClock()];
  assert.equal(gate.limits.get("anonymous"), OFF);
  for (let bearer = 0; bearer < 1_000; bearer += 1) {
    assert.ok(ask(gate, "anonymous", null, clock).admitted);
    assert.ok(ask(gate, "forwarded-bearer", `b${bearer}`, clock).admitted);
  }
  assert.equal(gate.stats({ nowNs: clock(), unixNs: clock() }).live, 0);
});

test("rate zero switches the rate limits off and nothing else", () => {
  const [gate, clock] = [gateFromEnv({ MCP_RATE_LIMIT: "0" }), makeClock()];
  for (let n = 0; n < 1_000; n += 1) {
    for (const [policy, caller] of [["authenticated", "user:1"], ["anonymous"], ["forwarded-bearer", "b"]]) {
      assert.ok(ask(gate, policy, caller, clock).admitted);
    }
  }
  assert.ok(gate.limits.get("server") instanceof ConcurrencyLimit);
  assert.ok(gate.limits.get("tokens") instanceof Quota);
});

test("everything can be switched off", () => {
  const off = { MCP_RATE_LIMIT: "0", MCP_MAX_CONCURRENCY: "0", MCP_DAILY_TOKEN_LIMIT: "0" };
  const [gate, clock] = [gateFromEnv(off), makeClock()];
  for (let n = 0; n < 1_000; n += 1) assert.ok(gate.tryAdmit("authenticated", { caller: "u", nowNs: clock() }).admitted);
  assert.equal(gate.stats({ nowNs: clock(), unixNs: clock() }).live, 0);
});

test("three calls run at once and the breaker opens for half a minute", () => {
  const { maxInFlight, rejectTrip, failureTrip, cooldownNs } = gateFromEnv({}).limits.get("server");
  assert.deepEqual([maxInFlight, rejectTrip, failureTrip, cooldownNs], [3, 5, 0, 30n * SECOND]);
  const guard = gateFromEnv({
    MCP_MAX_CONCURRENCY: "7",
    MCP_BREAKER_TRIP_THRESHOLD: "0",
    MCP_BREAKER_COOLDOWN_SECONDS: "90",
  }).limits.get("server");
  assert.deepEqual([guard.maxInFlight, guard.rejectTrip, guard.cooldownNs], [7, 0, 90n * SECOND]);
  assert.equal(gateFromEnv({ MCP_MAX_CONCURRENCY: "0" }).limits.get("server"), OFF);
});

test("there is a daily quota for each verified caller, which zero and less switch off", (t) => {
  const log = noteLog(t, logger);
  const { limit, periodS } = gateFromEnv({}).limits.get("tokens");
  assert.deepEqual([limit, periodS], [50_000, 86_400]);
  assert.equal(gateFromEnv({ MCP_DAILY_TOKEN_LIMIT: "7" }).limits.get("tokens").limit, 7);
  for (const value of ["0", "-1", "-50000"]) {
    assert.equal(gateFromEnv({ MCP_DAILY_TOKEN_LIMIT: value }).limits.get("tokens"), OFF);
  }
  assert.deepEqual(log.warn, []);
});

test("what is set beside rate zero is warned about", (t) => {
  const log = noteLog(t, logger);
  gateFromEnv({ MCP_RATE_LIMIT: "0", MCP_RATE_LIMIT_ANONYMOUS: "5" });
  assert.match(log.warn.join(), /MCP_RATE_LIMIT_ANONYMOUS/);
});

const NUMBERS = [
  "MCP_RATE_LIMIT",
  "MCP_RATE_LIMIT_BURST",
  "MCP_RATE_LIMIT_ANONYMOUS",
  "MCP_MAX_CONCURRENCY",
  "MCP_BREAKER_TRIP_THRESHOLD",
  "MCP_BREAKER_COOLDOWN_SECONDS",
  "MCP_DAILY_TOKEN_LIMIT",
];
const UNUSABLE = ["", "many", "1.5", "1e3", "0x10", "1_000", "٣", "nan", "9".repeat(19), "9".repeat(400)];
const OUT_OF_RANGE = [
  ...NUMBERS.filter((name) => name !== "MCP_DAILY_TOKEN_LIMIT").map((name) => [name, "-1"]),
  ["MCP_RATE_LIMIT_BURST", "0"],
  ["MCP_MAX_CONCURRENCY", "4096"],
  ["MCP_BREAKER_TRIP_THRESHOLD", "64"],
  ["MCP_BREAKER_COOLDOWN_SECONDS", "0"],
  ["MCP_DAILY_TOKEN_LIMIT", String(2 ** 47 + 1)],
];
for (const [name, value] of [...NUMBERS.flatMap((name) => UNUSABLE.map((value) => [name, value])), ...OUT_OF_RANGE]) {
  test(`${name}=${value.slice(0, 20)} keeps the default and warns`, (t) => {
    const log = noteLog(t, logger);
    const gate = gateFromEnv({ [name]: value });
    assert.deepEqual(gate.limits, gateFromEnv({}).limits);
    assert.equal(log.warn.length, 1);
    assert.ok(log.warn[0].includes(name));
  });
}

test("the start-up line says what holds", (t) => {
  const log = noteLog(t, logger);
  gateFromEnv({ MCP_RATE_LIMIT: "7", MCP_DAILY_TOKEN_LIMIT: "0" });
  assert.deepEqual(log.info, [
    "effective limits: caller 7 calls a second, burst 14; " +
      "anonymous 100 calls a second, burst 200; forwarded 100 calls a second, burst 200; " +
      "tokens unlimited; server 3 calls at once, the breaker opens for 30 s after 5 refusals in a row",
  ]);
});

test("options of the gate are passed on", () => assert.equal(gateFromEnv({}, { capacity: 17 }).capacity, 17));

test("the default gate is one for the process, from its environment", (t) => {
  process.env.MCP_RATE_LIMIT = "11";
  t.after(() => delete process.env.MCP_RATE_LIMIT);
  const gate = defaultGate();
  assert.equal(gate, defaultGate());
  assert.deepEqual(rate(gate, "caller"), [11, SECOND, 22]);
});

test("an unverified bearer has a bucket only once the shared allowance admits it", () => {
  const [gate, clock] = [gateFromEnv({ MCP_RATE_LIMIT_ANONYMOUS: "5" }), makeClock()];
  const answers = Array.from({ length: 1_000 }, (_, n) => ask(gate, "forwarded-bearer", `bearer-${n}`, clock).admitted);
  assert.equal(answers.filter(Boolean).length, 10);
  // The shared allowance and ten bearers. Nothing is in flight.
  assert.equal(gate.stats({ nowNs: clock(), unixNs: clock() }).live, 11);
});
