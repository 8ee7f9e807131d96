// Reconfiguring a limit keeps every caller's debt and hands out no burst.

import assert from "node:assert/strict";
import test from "node:test";
import { ConcurrencyLimit, ConfigError, Gate, OFF, Quota, RateLimit } from "callgate";
import { admitted, gateOf, remaining, SECOND_NS, throws } from "./support.mjs";

const NOW = { nowNs: 0 };

test("a lower limit keeps the debt", () => {
  const gate = gateOf({ count: 1, burst: 10 });
  assert.equal(admitted(gate, 10), 10);
  gate.reconfigure("rate", new RateLimit(1, { burst: 2 }), NOW);
  assert.equal(admitted(gate, 5), 0);
  assert.ok(gate.tryAdmit("default", { caller: "alice", nowNs: SECOND_NS }).admitted);
  assert.deepEqual(gate.limits.get("rate"), new RateLimit(1, { burst: 2 }));
});

test("a higher limit hands out no burst", () => {
  const gate = gateOf({ count: 1, burst: 10 });
  admitted(gate, 10);
  gate.reconfigure("rate", new RateLimit(1000, { burst: 1000 }), NOW);
  assert.ok(remaining(gate) <= 990);
  assert.equal(remaining(gate, "newcomer"), 1000);
});

test("a debt deeper than the new limit can express becomes an empty bucket", () => {
  const gate = gateOf({ count: 1, per: "1h", burst: 10 });
  admitted(gate, 10);
  gate.reconfigure("rate", new RateLimit(1, { per: "1s", burst: 10 }), NOW);
  assert.equal(gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).retryAfterNs, SECOND_NS);
});

test("a limit that is switched off and on again keeps the debt", () => {
  const gate = gateOf({ count: 1, per: "1h", burst: 10 });
  admitted(gate, 10);
  gate.reconfigure("rate", OFF, NOW);
  assert.equal(gate.limits.get("rate"), OFF);
  assert.equal(admitted(gate, 100), 100);
  gate.reconfigure("rate", new RateLimit(1, { per: "1h", burst: 10 }), NOW);
  assert.equal(admitted(gate, 5), 0);
});

test("a charge from before the change is not given back", () => {
  const gate = gateOf({ count: 1, burst: 10 });
  const permit = gate.admit("default", { caller: "alice", cost: 5, nowNs: 0 });
  gate.reconfigure("rate", new RateLimit(1, { burst: 10 }), NOW);
  assert.equal(permit.cancel(), "ok");
  assert.equal(remaining(gate), 5);
});

test("a change that fails changes nothing", () => {
  const gate = gateOf();
  const broken = Object.assign(Object.create(RateLimit.prototype), { count: 1, periodNs: 1n, burst: 2n ** 64n });
  const blamed = { field: "burst", limit: "rate", message: /^limit 'rate': burst must be 1 or more/ };
  throws(() => gate.reconfigure("rate", broken, NOW), ConfigError, blamed);
  assert.deepEqual(gate.limits.get("rate"), new RateLimit(30, { burst: 60 }));
  assert.equal(remaining(gate), 60);
});

for (const to of [new ConcurrencyLimit(1), new Quota(1)]) {
  test(`a limit does not become a ${to.constructor.name}, also while it is off`, () => {
    const gate = gateOf();
    for (let n = 0; n < 2; n++) {
      const message = /stay what it is, RateLimit, or be OFF/;
      throws(() => gate.reconfigure("rate", to), ConfigError, { message, field: "kind", limit: "rate" });
      throws(() => Gate.attach(gate.handle()).reconfigure("rate", to), ConfigError, { message, field: "kind" });
      gate.reconfigure("rate", OFF);
    }
  });
}

test("a limit that was never on may become any", () => {
  for (const to of [new RateLimit(1), new ConcurrencyLimit(1), new Quota(1)]) {
    const gate = new Gate({ limits: { x: OFF }, policies: { default: [["x", "shared"]] } });
    gate.reconfigure("x", to);
    assert.equal(gate.tryAdmit("default").limit, 1);
    assert.equal(gate.limits.get("x"), to);
  }
});

test("a concurrency limit keeps its lease", () => {
  const gate = new Gate({ limits: { x: new ConcurrencyLimit(1, { lease: "2h" }) }, policies: { default: [["x", "shared"]] } });
  const five = new ConcurrencyLimit(5, { lease: "120m", failureTrip: 1, cooldown: "1s" });
  gate.reconfigure("x", five);
  const message = /^limit 'x': leaseNs must be .* what it was/;
  throws(() => gate.reconfigure("x", new ConcurrencyLimit(5, { lease: "1h" })), ConfigError, { message, field: "leaseNs" });
  assert.equal(gate.limits.get("x"), five);
});

test("by the system's clock too", () => {
  const gate = gateOf({ count: 1, per: "1h", burst: 10 });
  assert.ok(gate.tryAdmit("default", { caller: "alice", cost: 10 }).admitted);
  gate.reconfigure("rate", new RateLimit(1, { per: "1h", burst: 20 }));
  assert.equal(gate.peek("default", { caller: "alice", cost: 0 })[0].remaining, 10);
});
