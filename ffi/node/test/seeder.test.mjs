// A Seeder asks a ledger once for each caller, and says what becomes of a call where that fails.

import assert from "node:assert/strict";
import test from "node:test";
import { setImmediate } from "node:timers/promises";
import { ConfigError, Gate, Quota, RateLimit, Refused, Seeder } from "callgate";
import { DAY_NS, SECOND_NS, throws } from "./support.mjs";

function gateOfUnits(limit = 10, options = {}) {
  return new Gate({
    limits: { tokens: new Quota(limit, { mustSeed: true, ...options }), rate: new RateLimit(1000) },
    policies: { default: [["tokens", "caller"], ["rate", "caller"]], free: [["rate", "caller"]] },
    capacity: 100,
  });
}

/** What was used before the restart, and who asked. */
class Ledger {
  asked = [];
  fails = false;
  errors = [];
  onLoadError = (error) => this.errors.push(error);

  constructor(used = 7) {
    this.used = used;
  }

  load = (caller) => {
    this.asked.push(caller);
    if (this.fails) throw new Error("the ledger is away");
    return this.used;
  };

  loadAsync = async (caller) => {
    await setImmediate();
    return this.load(caller);
  };
}

const left = (gate, caller = "alice") => gate.peek("default", { caller })[0].remaining;

for (const how of ["load", "loadAsync"]) {
  test(`a caller is loaded once and then decided: ${how}`, async () => {
    const [gate, ledger] = [gateOfUnits(10), new Ledger(7)];
    const seeder = new Seeder(gate, "tokens", ledger[how]);
    for (const caller of ["alice", "alice", Buffer.from("alice")]) {
      assert.ok((await seeder.tryAdmit("default", { caller })).admitted);
    }
    assert.deepEqual(ledger.asked, ["alice"]);
    assert.equal(left(gate), 3);
  });

  test(`many calls of one caller share one load: ${how}`, async () => {
    const [gate, ledger] = [gateOfUnits(1000), new Ledger(7)];
    const seeder = new Seeder(gate, "tokens", ledger[how]);
    const callers = Array.from({ length: 100 }, (_, n) => (n % 2 ? "alice" : "bob"));
    const decisions = await Promise.all(callers.map((caller) => seeder.tryAdmit("default", { caller, reserve: 1 })));
    assert.ok(decisions.every((decision) => decision.admitted));
    assert.deepEqual(ledger.asked.sort(), ["alice", "bob"]);
    assert.deepEqual([left(gate, "alice"), left(gate, "bob")], [943, 943]);
  });

  test(`a load that fails refuses all who wait: ${how}`, async () => {
    const ledger = new Ledger();
    ledger.fails = true;
    const seeder = new Seeder(gateOfUnits(10), "tokens", ledger[how], { onLoadError: ledger.onLoadError });
    const calls = Array.from({ length: 10 }, () => seeder.tryAdmit("default", { caller: "alice" }));
    for (const decision of await Promise.all(calls)) assert.equal(decision.reason, "unseeded");
    assert.deepEqual([ledger.asked.length, seeder.loadErrors, ledger.errors.length], [1, 1, 1]);
  });
}

test("who has used all is refused by the quota", async () => {
  const seeder = new Seeder(gateOfUnits(10), "tokens", new Ledger(10).load);
  const decision = await seeder.tryAdmit("default", { caller: "alice" });
  assert.deepEqual([decision.reason, decision.by, decision.remaining], ["quota", "tokens", 0]);
  await assert.rejects(seeder.admit("default", { caller: "alice" }), Refused);
});

test("a permit of a seeder settles like any other", async () => {
  const gate = gateOfUnits(10);
  const permit = await new Seeder(gate, "tokens", new Ledger(1).load).admit("default", { caller: "alice", reserve: 5 });
  permit.used(2);
  permit.settle();
  assert.equal(left(gate), 7);
});

test("a policy without the quota loads nothing", async () => {
  const ledger = new Ledger();
  assert.ok((await new Seeder(gateOfUnits(), "tokens", ledger.load).tryAdmit("free", { caller: "alice" })).admitted);
  assert.deepEqual(ledger.asked, []);
});

test("a new window is loaded anew", async () => {
  const ledger = new Ledger(7);
  const seeder = new Seeder(gateOfUnits(10), "tokens", ledger.load);
  for (const day of [0n, 0n, 1n, 1n]) {
    assert.ok((await seeder.tryAdmit("default", { caller: "alice", nowNs: day, unixNs: day * DAY_NS })).admitted);
  }
  assert.equal(ledger.asked.length, 2);
});

test("a load that fails is not tried again at once", async () => {
  const ledger = new Ledger();
  ledger.fails = true;
  const options = { retryAfter: "5s", onLoadError: ledger.onLoadError };
  const seeder = new Seeder(gateOfUnits(10), "tokens", ledger.load, options);
  const ask = (caller, at) => seeder.tryAdmit("default", { caller, nowNs: at, unixNs: at });
  for (let n = 0; n < 3; n++) assert.equal((await ask("alice", 0)).reason, "unseeded");
  assert.equal(ledger.errors[0].message, "the ledger is away");
  assert.deepEqual([ledger.asked, seeder.loadErrors, ledger.errors.length], [["alice"], 1, 1]);
  assert.equal((await ask("bob", 0)).reason, "unseeded");
  ledger.fails = false;
  assert.ok(!(await ask("alice", 5n * SECOND_NS - 1n)).admitted);
  assert.ok((await ask("alice", 5n * SECOND_NS)).admitted);
  assert.deepEqual([ledger.asked, seeder.loadErrors], [["alice", "bob", "alice"], 2]);
});

test("without a listener a failure is a warning of the process, which names no caller", async () => {
  const ledger = new Ledger();
  ledger.fails = true;
  const warned = new Promise((resolve) => process.once("warning", resolve));
  const seeder = new Seeder(gateOfUnits(10), "tokens", ledger.load);
  assert.equal((await seeder.tryAdmit("default", { caller: "alice" })).reason, "unseeded");
  const { name, message } = await warned;
  assert.equal(name, "CallgateWarning");
  assert.match(message, /'tokens' failed: Error: the ledger is away/);
  assert.ok(!message.includes("alice"));
});

test("a load that fails may be taken for nothing used, and a listener may fail itself", async () => {
  const [gate, ledger] = [gateOfUnits(10), new Ledger()];
  ledger.fails = true;
  const onLoadError = () => {
    throw new Error("no log");
  };
  const seeder = new Seeder(gate, "tokens", ledger.load, { onError: "zero", onLoadError });
  for (let n = 0; n < 2; n++) assert.ok((await seeder.tryAdmit("default", { caller: "alice" })).admitted);
  assert.deepEqual([seeder.loadErrors, left(gate)], [1, 10]);
});

for (const loaded of [-1, 2n ** 64n, "7", null, 1.5, true, undefined, {}]) {
  test(`a load that returns no number of units has failed: ${String(loaded)}`, async () => {
    const seeder = new Seeder(gateOfUnits(10), "tokens", () => loaded, { onLoadError: () => {} });
    assert.equal((await seeder.tryAdmit("default", { caller: "alice" })).reason, "unseeded");
    assert.equal(seeder.loadErrors, 1);
  });
}

test("what was loaded before midnight is not taken for the new day", async (t) => {
  const gate = gateOfUnits(10);
  const now = Date.now();
  let asked = 0;
  const load = () => {
    asked += 1;
    // The ledger's answer about yesterday comes when the wall clock is past midnight.
    if (asked === 1) t.mock.method(Date, "now", () => now + 86_400_000, { times: 1 });
    return asked === 1 ? 10 : 0;
  };
  assert.ok((await new Seeder(gate, "tokens", load).tryAdmit("default", { caller: "alice" })).admitted);
  assert.equal(asked, 2);
});

test("without a place for its state a caller stays refused", async () => {
  const gate = new Gate({
    limits: { tokens: new Quota(10, { mustSeed: true }) },
    policies: { default: [["tokens", "caller"]] },
    capacity: 1,
  });
  const seeder = new Seeder(gate, "tokens", new Ledger(0).load);
  const reasons = new Set();
  for (let n = 0; n < 200; n++) reasons.add((await seeder.tryAdmit("default", { caller: `user ${n}` })).reason);
  assert.deepEqual(reasons, new Set([null, "unseeded"]));
  assert.equal(seeder.loadErrors, 0);
});

test("a gate that is closed while a caller is loaded is a typed error for all who wait", async () => {
  const gate = gateOfUnits(10);
  const seeder = new Seeder(gate, "tokens", async () => {
    await setImmediate();
    gate.close();
    return 0;
  });
  const calls = [1, 2].map(() => seeder.tryAdmit("default", { caller: "alice" }));
  for (const call of calls) await assert.rejects(call, { name: "CallError", field: "gate" });
});

test("a key tells a ledger nothing", async () => {
  const gate = gateOfUnits();
  const seeder = new Seeder(gate, "tokens", new Ledger().load);
  await assert.rejects(seeder.tryAdmit("default", { caller: gate.key("alice") }), TypeError);
});

test("a bad seeder is an error that names the field", () => {
  const gate = new Gate({
    limits: { must: new Quota(1, { mustSeed: true }), may: new Quota(1), rate: new RateLimit(1) },
    policies: { default: [["must", "shared"], ["may", "caller"], ["rate", "caller"]] },
  });
  const load = () => 0;
  for (const [limit, options, field, message] of [
    ["may", {}, "limit", /must be a Quota of the gate with mustSeed: true/],
    ["rate", {}, "limit", /must be a Quota of the gate with mustSeed: true/],
    ["what", {}, "limit", /must be a Quota of the gate with mustSeed: true/],
    ["must", {}, "scope", /kept by 'caller' in all policies.*'default' keeps it by 'shared'/],
    ["must", { onError: "admit" }, "onError", /'refuse' or 'zero', not 'admit'/],
    ["must", { retryAfter: "soon" }, "scope", /kept by/],
  ]) {
    throws(() => new Seeder(gate, limit, load, options), ConfigError, { field, message });
  }
  for (const retryAfter of ["soon", -1, 0.5]) {
    throws(() => new Seeder(gateOfUnits(), "tokens", load, { retryAfter }), ConfigError, { field: "retryAfter" });
  }
  throws(() => new Seeder(gateOfUnits(), "tokens", 5), TypeError, { message: /load must be a function .*, not a number/ });
  throws(() => new Seeder(gateOfUnits(), "tokens", load, { onLoadError: 5 }), TypeError, { message: /onLoadError/ });
});
