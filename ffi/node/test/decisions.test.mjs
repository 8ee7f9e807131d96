// What is decided, to the nanosecond.

import assert from "node:assert/strict";
import test from "node:test";
import { setTimeout } from "node:timers/promises";
import { Gate, OFF, RateLimit } from "callgate";
import { admitted, DAY_NS, gateOf, remaining, SECOND_NS } from "./support.mjs";

const ask = (gate, call = {}) => gate.tryAdmit("default", { caller: "alice", nowNs: 0, ...call });

test("a full bucket admits its burst and then names the exact wait", () => {
  const gate = gateOf();
  assert.equal(admitted(gate, 60), 60);
  const refused = ask(gate);
  assert.deepEqual([refused.admitted, refused.reason, refused.by], [false, "rate", "rate"]);
  assert.equal(refused.retryAfterNs, 33_333_334n);
  assert.deepEqual([refused.limit, refused.remaining, refused.resetAfterNs], [60, 0, 2_000_000_001n]);
  assert.equal(refused.permit, null);
});

test("whoever sleeps exactly the wait is admitted, and not a nanosecond earlier", () => {
  const gate = gateOf();
  admitted(gate, 60);
  const early = ask(gate, { nowNs: 33_333_333 });
  assert.deepEqual([early.admitted, early.retryAfterNs], [false, 1n]);
  assert.ok(ask(gate, { nowNs: 33_333_334n }).admitted);
});

test("an admitted call tells what is left", () => {
  const decision = ask(gateOf());
  assert.deepEqual([decision.admitted, decision.reason, decision.by, decision.retryAfterNs], [true, null, "rate", 0n]);
  assert.deepEqual([decision.limit, decision.remaining, decision.resetAfterNs], [60, 59, 33_333_334n]);
  assert.notEqual(decision.permit, null);
});

test("a cost above the burst is never admitted and charges nothing", () => {
  const gate = gateOf();
  for (const cost of [61, 2n ** 64n - 1n]) {
    const decision = ask(gate, { cost });
    assert.deepEqual([decision.reason, decision.retryAfterNs, decision.by], ["never", 0n, "rate"]);
  }
  assert.equal(remaining(gate), 60);
});

test("a batch takes its cost, and cost zero nothing", () => {
  const gate = gateOf();
  assert.equal(ask(gate, { cost: 0 }).remaining, 60);
  assert.equal(gate.stats({ nowNs: 0 }).live, 0);
  assert.equal(ask(gate, { cost: 25 }).remaining, 35);
  assert.equal(ask(gate, { cost: 36 }).reason, "rate");
  assert.equal(ask(gate).remaining, 34, "a cost is not remembered for the next call");
});

test("scopes say whose state a limit keeps", () => {
  const calls = [["a", "x"], ["b", "x"], ["a", "y"], ["b", "y"], ["a", "x"]];
  const verdicts = (scope) => {
    const gate = gateOf({ scope, burst: 1 });
    return calls.map(([caller, tool]) => (ask(gate, { caller, tool }).admitted ? 1 : 0)).join("");
  };
  assert.equal(verdicts("caller"), "11000");
  assert.equal(verdicts("tool"), "10100");
  assert.equal(verdicts("caller_tool"), "11110");
  assert.equal(verdicts("shared"), "10000");
});

test("a shared bucket is everybody's, with a caller or without", () => {
  const gate = gateOf({ scope: "shared", burst: 3 });
  const callers = ["alice", null, "bob", undefined, "carol"];
  assert.deepEqual(callers.map((caller) => ask(gate, { caller }).admitted), [true, true, true, false, false]);
});

test("a caller and a tool of one name are not the same", () => {
  const limits = { rate: new RateLimit(1, { burst: 1 }) };
  const gate = new Gate({ limits, policies: { by_caller: [["rate", "caller"]], by_tool: [["rate", "tool"]] } });
  assert.ok(gate.tryAdmit("by_caller", { caller: "x", nowNs: 0 }).admitted);
  assert.ok(gate.tryAdmit("by_tool", { tool: "x", nowNs: 0 }).admitted);
});

test("an identity of an earlier call is not taken for that of a later one", () => {
  const limits = { rate: new RateLimit(1, { burst: 1 }) };
  const gate = new Gate({ limits, policies: { default: [["rate", "caller"]], tool: [["rate", "tool"]] } });
  ask(gate, { caller: gate.key("alice"), tool: gate.key("search", "tool") });
  ask(gate, { caller: "bob", tool: "search" });
  assert.throws(() => ask(gate, { caller: null }), /caller is missing/);
  assert.throws(() => gate.tryAdmit("tool", { caller: "alice", nowNs: 0 }), /tool is missing/);
});

function twoLimits() {
  return new Gate({
    limits: { day: new RateLimit(1000, { per: "1d" }), second: new RateLimit(10, { per: "1s" }) },
    policies: { default: [["day", "caller"], ["second", "caller"]], day: [["day", "caller"]] },
  });
}

test("a refusal by the second limit charges the first nothing", () => {
  const gate = twoLimits();
  const decisions = Array.from({ length: 30 }, () => ask(gate));
  assert.equal(decisions.filter((d) => d.admitted).length, 10);
  assert.equal(decisions[29].by, "second");
  assert.equal(decisions[0].by, "second", "of an admitted call, the limit with the fewest tokens left");
  assert.equal(gate.tryAdmit("day", { caller: "alice", cost: 0, nowNs: 0 }).remaining, 990);
});

test("a limit that is off admits everything and keeps nothing", () => {
  const gate = new Gate({ limits: { none: OFF }, policies: { default: [["none", "shared"]] } });
  for (const cost of [0, 1, 2n ** 64n - 1n]) {
    const decision = ask(gate, { cost });
    assert.deepEqual([decision.admitted, decision.by], [true, null]);
    assert.deepEqual([decision.limit, decision.remaining], [2n ** 64n - 1n, 2n ** 64n - 1n]);
  }
  assert.equal(gate.stats({ nowNs: 0 }).live, 0);
  const [report] = gate.peek("default");
  assert.deepEqual([report.limitName, report.reason, report.limit], ["none", null, 2n ** 64n - 1n]);
});

test("beside a limit that is off the other decides", () => {
  const limits = { none: OFF, rate: new RateLimit(1) };
  const gate = new Gate({ limits, policies: { default: [["none", "shared"], ["rate", "caller"]] } });
  assert.equal(ask(gate).by, "rate");
  assert.ok(!ask(gate).admitted);
});

test("counts are numbers as long as that is exact, and both bigints above", () => {
  const greatest = BigInt(Number.MAX_SAFE_INTEGER);
  const at = (burst) => ask(gateOf({ count: 2n ** 60n, per: 1, burst }));
  assert.deepEqual([at(greatest).limit, at(greatest).remaining], [2 ** 53 - 1, 2 ** 53 - 2]);
  assert.deepEqual([at(greatest + 1n).limit, at(greatest + 1n).remaining], [2n ** 53n, greatest]);
  assert.deepEqual([at(2n ** 64n - 1n).limit, at(2n ** 64n - 1n).remaining], [2n ** 64n - 1n, 2n ** 64n - 2n]);
});

test("waits are exact however long", () => {
  const gate = gateOf({ count: 1, per: 2n ** 61n, burst: 1 });
  ask(gate);
  assert.equal(ask(gate).retryAfterNs, 2n ** 61n);
  assert.equal(ask(gate, { nowNs: 2n ** 60n + 1n }).resetAfterNs, 2n ** 60n - 1n);
});

test("peek reports on every limit in the policy's order and changes nothing", () => {
  const gate = twoLimits();
  for (let n = 0; n < 10; n++) ask(gate);
  const before = gate.stats({ nowNs: 0 });
  for (let n = 0; n < 3; n++) {
    assert.deepEqual(gate.peek("default", { caller: "alice", nowNs: 0 }), [
      { limitName: "day", reason: null, retryAfterNs: 0n, limit: 1000, remaining: 989, resetAfterNs: 950_400_000_000n },
      { limitName: "second", reason: "rate", retryAfterNs: 100_000_000n, limit: 10, remaining: 0, resetAfterNs: SECOND_NS },
    ]);
    gate.peek("default", { caller: "somebody new", nowNs: 0 });
  }
  assert.deepEqual(gate.stats({ nowNs: 0 }), before);
});

test("stats count decisions by policy, limit and reason", () => {
  const gate = twoLimits();
  for (let n = 0; n < 12; n++) ask(gate);
  gate.tryAdmit("day", { caller: "bob", cost: 1001, nowNs: 0 });
  const stats = gate.stats({ nowNs: 0 });
  assert.deepEqual(stats.decisions, [
    { policy: "default", limit: null, reason: null, count: 10 },
    { policy: "default", limit: "second", reason: "rate", count: 2 },
    { policy: "day", limit: null, reason: null, count: 0 },
    { policy: "day", limit: "day", reason: "never", count: 1 },
  ]);
  assert.equal(stats.slots, stats.live + stats.atRest + stats.claimed + stats.empty);
  assert.equal(stats.live, 2);
  assert.equal(gate.stats({ nowNs: 2n * DAY_NS }).live, 0);
});

test("stats add up what one limit refused under two scopes", () => {
  const limits = { rate: new RateLimit(1, { burst: 2 }) };
  const gate = new Gate({ limits, policies: { default: [["rate", "caller"], ["rate", "tool"]] } });
  ask(gate, { caller: "a", tool: "x", cost: 2 });
  ask(gate, { caller: "a", tool: "y" });
  ask(gate, { caller: "b", tool: "x" });
  assert.deepEqual(gate.stats({ nowNs: 0 }).decisions[1], { policy: "default", limit: "rate", reason: "rate", count: 2 });
});

test("where there is no place a new caller is refused, and its wait is true", () => {
  const gate = gateOf({ count: 1, burst: 1, capacity: 8 });
  let caller;
  let refused = { admitted: true };
  for (let n = 0; n < 1000 && refused.admitted; n++) {
    caller = `caller ${n}`;
    refused = ask(gate, { caller });
  }
  assert.equal(refused.reason, "table_full");
  assert.deepEqual([refused.by, refused.limit, refused.retryAfterNs], ["rate", 0, SECOND_NS]);
  assert.ok(!ask(gate, { caller, nowNs: SECOND_NS - 1n }).admitted);
  assert.ok(ask(gate, { caller, nowNs: SECOND_NS }).admitted);
});

for (const capacity of [1, 2, 7, 100, 3000]) {
  test(`the first ${capacity} callers up to capacity are all tracked`, () => {
    const gate = gateOf({ burst: 1, capacity });
    const callers = Array.from({ length: capacity }, (_, n) => `caller ${n}`);
    assert.ok(callers.every((caller) => ask(gate, { caller }).admitted));
    assert.ok(!callers.some((caller) => ask(gate, { caller }).admitted));
  });
}

test("without a time the system's clock decides", async () => {
  const gate = gateOf({ count: 1, per: "20ms", burst: 1 });
  assert.ok(gate.tryAdmit("default", { caller: "alice" }).admitted);
  const hour = gateOf({ count: 1, per: "1h", burst: 1 });
  hour.tryAdmit("default", { caller: "alice" });
  const refused = hour.tryAdmit("default", { caller: "alice" });
  assert.ok(!refused.admitted && refused.retryAfterNs > 0n && refused.retryAfterNs <= 3600n * SECOND_NS);
  await setTimeout(25);
  assert.ok(gate.tryAdmit("default", { caller: "alice" }).admitted);
});

test("a time passed in is the only clock, and is not remembered", () => {
  const gate = gateOf({ burst: 1, count: 1, per: "1h" });
  const nowNs = 2n ** 61n - 1n;
  assert.ok(ask(gate, { nowNs, unixNs: 2n ** 64n - 1n }).admitted);
  assert.ok(!ask(gate, { nowNs }).admitted);
  const wait = gate.tryAdmit("default", { caller: "alice" }).retryAfterNs;
  assert.ok(wait > 2n ** 60n, "by the system's clock that is decades away");
});

test("a decision, a refusal and a gate are readable", () => {
  const gate = gateOf();
  const decision = ask(gate);
  assert.equal(String(decision), "<callgate.Decision admitted, 'rate': 59 of 60 left>");
  const refusal = ask(gate, { cost: 60 });
  assert.equal(String(refusal), "<callgate.Decision refused by 'rate': rate, retryAfterNs=33333334>");
  assert.equal(String(gate), "<callgate.Gate of 1 limits, 1 policies, capacity 10000>");
  assert.deepEqual(JSON.parse(JSON.stringify(refusal)), {
    admitted: false,
    reason: "rate",
    by: "rate",
    retryAfterNs: "33333334",
    limit: 60,
    remaining: 59,
    resetAfterNs: "33333334",
  });
});
