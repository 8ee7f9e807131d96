// A permit is settled once, on every way out.

import assert from "node:assert/strict";
import test from "node:test";
import { CallError, CallgateError, Gate, Quota, RateLimit, Refused } from "callgate";
import { admitted, gateOf, remaining, SECOND_NS, throws } from "./support.mjs";

const permitOf = (gate, call = {}) => gate.tryAdmit("default", { caller: "alice", nowNs: 0, ...call }).permit;

for (const outcome of ["success", "failure", "abandoned"]) {
  test(`a call that ran is paid for: ${outcome}`, () => {
    const gate = gateOf();
    assert.equal(gate.settle(permitOf(gate), { outcome, nowNs: 0 }), "ok");
    assert.equal(remaining(gate), 59);
  });
}

test("a cancelled call is given back", () => {
  const gate = gateOf();
  const permit = permitOf(gate, { cost: 10 });
  assert.equal(remaining(gate), 50);
  assert.equal(gate.settle(permit, { outcome: "cancelled", nowNs: 0 }), "ok");
  assert.equal(remaining(gate), 60);
});

test("a cancellation gives back no more than time has left", () => {
  const gate = gateOf({ count: 1, burst: 10 });
  const nowNs = 4n * SECOND_NS;
  gate.settle(permitOf(gate, { cost: 10 }), { outcome: "cancelled", nowNs });
  assert.equal(remaining(gate, "alice", nowNs), 10);
  assert.equal(admitted(gate, 20, "alice", nowNs), 10);
});

test("a second settlement does nothing and says so", () => {
  const gate = gateOf();
  const permit = permitOf(gate, { cost: 10 });
  assert.equal(gate.settle(permit, { nowNs: 0 }), "ok");
  assert.equal(gate.settle(permit, { outcome: "cancelled", nowNs: 0 }), "already_settled");
  assert.equal(permit.settle("cancelled"), "already_settled");
  assert.equal(permit.cancel(), "already_settled");
  assert.equal(permit.isSettled, true);
  assert.equal(remaining(gate), 50);
});

test("a decision has one permit however often it is asked for", () => {
  const gate = gateOf();
  const decision = gate.tryAdmit("default", { caller: "alice", nowNs: 0 });
  assert.equal(decision.permit, decision.permit);
  assert.equal(decision.permit.decision, decision);
  assert.equal(decision.permit.cancel(), "ok");
  assert.equal(decision.permit.cancel(), "already_settled");
  assert.equal(remaining(gate), 60);
});

test("permits of many calls are told apart, in whatever order they are settled", () => {
  const gate = gateOf();
  const permits = Array.from({ length: 12 }, (_, n) => permitOf(gate, { caller: `caller ${n % 3}`, cost: n + 1 }));
  for (const n of [5, 0, 11, 3, 8, 1, 10, 2, 7, 9, 4, 6]) assert.equal(permits[n].cancel(), "ok");
  for (const caller of ["caller 0", "caller 1", "caller 2"]) assert.equal(remaining(gate, caller), 60);
});

test("a permit of another gate is an error and stays unsettled", () => {
  const secret = new Uint8Array(16).fill(7);
  const [gate, twin] = [gateOf({ secret }), gateOf({ secret })];
  const permit = permitOf(gate);
  throws(() => twin.settle(permit), CallError, { message: "the permit is one of another gate", field: "permit" });
  assert.equal(gate.settle(permit, { nowNs: 0 }), "ok");
});

test("what is no permit is a TypeError", () => {
  const gate = gateOf();
  const decision = gate.tryAdmit("default", { caller: "alice" });
  for (const thing of [null, undefined, 5, "permit", {}, decision, new Proxy(decision.permit, {})]) {
    throws(() => gate.settle(thing), TypeError);
  }
});

test("a bad settlement is an error and leaves the permit as it was", () => {
  const gate = gateOf();
  const permit = permitOf(gate);
  for (const settle of [(options) => gate.settle(permit, options), ({ outcome, ...options }) => permit.settle(outcome, options)]) {
    throws(() => settle({ outcome: "done" }), CallError, { message: /outcome must be one of 'success', 'failure'/, field: "outcome" });
    throws(() => settle({ used: -1 }), CallError, { message: /used must be 0 to 2\^64-1 units/, field: "used" });
    throws(() => settle({ used: 1.5 }), CallError, { field: "used" });
    throws(() => settle({ nowNs: 2n ** 61n }), CallError, { message: /nowNs must be below 2\^61/, field: "nowNs" });
    throws(() => settle({ unixNs: 0 }), CallError, { message: /unixNs goes with nowNs/, field: "unixNs" });
    throws(() => settle({ outcome: 5 }), TypeError, { message: /outcome must be a string, not a number/ });
  }
  throws(() => gate.settle(permit, null), TypeError, { message: /settlement must be an object, not null/ });
  throws(() => permit.settle("success", 5), TypeError, { message: /settlement must be an object, not a number/ });
  assert.equal(permit.isSettled, false);
  assert.equal(gate.settle(permit, { nowNs: 0 }), "ok");
});

test("settling by the system's clock works too", () => {
  const gate = gateOf({ count: 1, per: "1h" });
  assert.equal(gate.admit("default", { caller: "alice" }).cancel(), "ok");
  assert.equal(gate.settle(gate.tryAdmit("default", { caller: "alice" }).permit, { outcome: "cancelled" }), "ok");
  assert.equal(gate.peek("default", { caller: "alice", cost: 0 })[0].remaining, 60);
});

/** A gate of a quota, of which what is left tells how a call was settled: used, or 40 reserved. */
function units() {
  const gate = new Gate({ limits: { tokens: new Quota(100) }, policies: { default: [["tokens", "caller"]] } });
  const call = { caller: "alice", reserve: 40, nowNs: 0, unixNs: 0 };
  return { gate, call, left: () => gate.peek("default", { caller: "alice", nowNs: 0, unixNs: 0 })[0].remaining };
}

test("what a call used is told at its end, or else its reserve is taken for it", () => {
  const { gate, call, left } = units();
  const permit = gate.admit("default", call);
  permit.used(1);
  permit.used(2n);
  throws(() => permit.used(1.5), CallError, { message: /units must be 0 to 2\^64-1/, field: "units" });
  throws(() => permit.used(-1), CallError, { field: "units" });
  throws(() => permit.used("1"), TypeError, { message: /units must be a whole number/ });
  assert.equal(permit.settle(), "ok");
  assert.equal(left(), 98);
  gate.admit("default", call).settle();
  assert.equal(left(), 58);
  gate.admit("default", call).settle("failure", { used: 8 });
  assert.equal(left(), 50);
  gate.settle(gate.admit("default", call), { nowNs: 0, unixNs: 0 });
  assert.equal(left(), 50, "gate.settle charges what it is told");
  gate.admit("default", call).cancel();
  assert.equal(left(), 50);
});

test("a disposal settles as a success, once", () => {
  const { gate, call, left } = units();
  const permit = gate.admit("default", call);
  permit.used(3);
  permit[Symbol.dispose]();
  assert.equal(permit.isSettled, true);
  permit[Symbol.dispose]();
  assert.equal(left(), 97);
  const failed = gate.admit("default", call);
  failed.settle("cancelled");
  failed[Symbol.dispose]();
  assert.equal(left(), 97);
});

test("a call at a time of ours is settled at that time", () => {
  const gate = gateOf();
  gate.admit("default", { caller: "alice", cost: 10, nowNs: 5 }).cancel();
  assert.equal(remaining(gate, "alice", 5), 60);
});

test("a refusal throws and says everything in a sentence", () => {
  const gate = gateOf();
  gate.admit("default", { caller: "alice", cost: 60, nowNs: 0 });
  const refused = throws(() => gate.admit("default", { caller: "alice", nowNs: 0 }), Refused);
  assert.equal(refused.message, "refused by limit 'rate' (rate): retry in 33.4 ms");
  assert.equal(refused.name, "Refused");
  assert.deepEqual([refused.reason, refused.by, refused.retryAfterNs], ["rate", "rate", 33_333_334n]);
  assert.deepEqual([refused.limit, refused.remaining, refused.resetAfterNs], [60, 0, 2_000_000_001n]);
  assert.ok(refused.decision.permit === null && refused instanceof CallgateError && refused instanceof Error);
});

test("a cost that can never be admitted is refused without a time", () => {
  const refused = throws(() => gateOf().admit("default", { caller: "alice", cost: 61 }), Refused);
  const asks = "the call asks for more than the 60 that it can ever hold";
  assert.equal(refused.message, `refused by limit 'rate' (never): ${asks}`);
});

for (const [waitNs, text] of [
  [1, "1 ns"],
  [999, "999 ns"],
  [1_000, "1 us"],
  [1_001, "1.01 us"],
  [1_500, "1.5 us"],
  [33_333_334, "33.4 ms"],
  [20_000_000, "20 ms"],
  [999_000_000, "999 ms"],
  [999_000_001, "1 s"],
  [1_010_000_000, "1.01 s"],
  [9_990_000_001, "10 s"],
  [59_900_000_001, "1 m"],
  [90n * SECOND_NS, "1.5 m"],
  [6000n * SECOND_NS, "1.67 h"],
  [7200n * SECOND_NS, "2 h"],
  [86_399_999_999_999n, "1 d"],
  [100n * 86_400n * SECOND_NS, "100 d"],
  [1000n * 86_400n * SECOND_NS, "1000 d"],
  [2n ** 61n, "26700 d"],
]) {
  test(`a wait is told in the unit that suits it: ${text}`, () => {
    const gate = gateOf({ count: 1, per: waitNs, burst: 1 });
    gate.admit("default", { caller: "alice", nowNs: 0 });
    const refused = throws(() => gate.admit("default", { caller: "alice", nowNs: 0 }), Refused);
    assert.ok(refused.message.endsWith(`: retry in ${text}`), refused.message);
  });
}

test("run settles a success and returns what the work does, also where that is no promise", async () => {
  const { gate, call, left } = units();
  const answer = await gate.run("default", call, async (permit) => {
    permit.used(5);
    return "answer";
  });
  assert.deepEqual([answer, left()], ["answer", 95]);
  assert.equal(await gate.run("default", call, () => 7), 7);
  assert.equal(left(), 55, "it never said what it used, so it pays what it reserved");
});

test("run does not run what is refused, and rejects", async () => {
  const gate = gateOf({ burst: 1 });
  let ran = 0;
  const run = () => gate.run("default", { caller: "alice", nowNs: 0 }, () => ++ran);
  await run();
  await assert.rejects(run(), Refused);
  await assert.rejects(gate.run("default", {}, () => ++ran), CallError);
  await assert.rejects(gate.run("default", { caller: "bob" }, "work"), TypeError);
  await assert.rejects(gate.run("default", null, () => ++ran), TypeError);
  assert.equal(ran, 1);
  assert.equal(remaining(gate, "bob"), 1);
});

test("run settles nothing again that the work has settled", async () => {
  const gate = new Gate({ limits: { rate: new RateLimit(1, { burst: 9 }) }, policies: { default: [["rate", "caller"]] } });
  await gate.run("default", { caller: "alice", nowNs: 0 }, (permit) => permit.cancel());
  assert.equal(remaining(gate), 9);
});
