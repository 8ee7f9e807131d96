// Concurrency limits: places are given back once on every way out, and breakers open and close.

import assert from "node:assert/strict";
import test from "node:test";
import { setImmediate } from "node:timers/promises";
import { ConcurrencyLimit, Gate, RateLimit, Refused } from "callgate";
import { collectUntil, SECOND_NS, throws } from "./support.mjs";

const S = SECOND_NS;
const HOUR_LONG = { failureTrip: 1, cooldown: "1h" };

/** A gate of one concurrency limit, `server`, that all calls share. */
function gateOfPlaces(count = 3, options = {}) {
  return new Gate({
    limits: { server: new ConcurrencyLimit(count, options) },
    policies: { default: [["server", "shared"]] },
    capacity: 16,
  });
}

const guards = (gate, nowNs) => {
  const { inFlight, open, halfOpen, trips, lapsed } = gate.guards("server", { nowNs });
  return [inFlight, open, halfOpen, trips, lapsed];
};
const inFlight = (gate, nowNs) => guards(gate, nowNs)[0];
const take = (gate, nowNs = 0) => gate.tryAdmit("default", { nowNs }).permit;
const refusal = (gate, nowNs) => {
  const { reason, retryAfterNs, remaining } = gate.tryAdmit("default", { nowNs });
  return [reason, retryAfterNs, remaining];
};
const settle = (gate, permit, outcome, nowNs = 0) => gate.settle(permit, { outcome, nowNs });

test("over the limit a call is refused at once and takes no place", () => {
  const gate = gateOfPlaces(3);
  const permits = [take(gate), take(gate), take(gate)];
  assert.deepEqual(refusal(gate, 0), ["concurrency", 0n, 0]);
  assert.equal(inFlight(gate, 0), 3);
  assert.equal(settle(gate, permits[0]), "ok");
  assert.equal(gate.tryAdmit("default", { nowNs: 0, cost: 50 }).remaining, 0, "a batch takes one place");
  const refused = throws(() => gate.admit("default", { nowNs: 0 }), Refused);
  assert.equal(refused.message, "refused by limit 'server' (concurrency): all of its 3 places are taken");
});

test("refusals in a row open the breaker, and time closes it", () => {
  const gate = gateOfPlaces(1, { rejectTrip: 3, cooldown: "30s" });
  const permit = take(gate);
  assert.deepEqual(refusal(gate, 0), ["concurrency", 0n, 0]);
  assert.deepEqual(refusal(gate, 0), ["concurrency", 0n, 0]);
  assert.deepEqual(refusal(gate, 0), ["breaker_open", 30n * S, 0]);
  assert.deepEqual(guards(gate, 0), [1, 1, 0, 1, 0]);
  assert.equal(settle(gate, permit, "success", S), "ok");
  assert.deepEqual(refusal(gate, 29n * S), ["breaker_open", S, 1]);
  assert.deepEqual(refusal(gate, 30n * S - 1n), ["breaker_open", 1n, 1]);
  const refused = throws(() => gate.admit("default", { nowNs: 0 }), Refused);
  assert.ok(refused.message.endsWith("by limit 'server' (breaker_open): retry in 30 s"));
  assert.ok(take(gate, 30n * S));
  assert.deepEqual(guards(gate, 30n * S), [1, 0, 0, 1, 0]);
});

test("failures in a row open the breaker, and a probe that succeeds closes it", () => {
  const gate = gateOfPlaces(3, { failureTrip: 2, cooldown: "10s", halfOpenProbes: 1 });
  const [first, second] = [take(gate), take(gate)];
  settle(gate, first, "failure");
  settle(gate, second, "failure", S);
  assert.deepEqual(refusal(gate, 5n * S), ["breaker_open", 6n * S, 3]);
  const probe = take(gate, 11n * S);
  assert.deepEqual(refusal(gate, 11n * S), ["breaker_open", 0n, 2]);
  assert.deepEqual(guards(gate, 11n * S), [1, 0, 1, 1, 0]);
  settle(gate, probe, "failure", 12n * S);
  assert.deepEqual(refusal(gate, 12n * S), ["breaker_open", 10n * S, 3]);
  settle(gate, take(gate, 22n * S), "abandoned", 23n * S);
  settle(gate, take(gate, 23n * S), "success", 24n * S);
  for (let n = 0; n < 3; n++) take(gate, 24n * S);
  assert.deepEqual(guards(gate, 24n * S), [3, 0, 0, 2, 0]);
});

test("a success breaks a streak, and a call that never ran does not", () => {
  const gate = gateOfPlaces(3, { failureTrip: 2, cooldown: "10s" });
  for (const outcome of ["failure", "success", "failure", "cancelled", "abandoned"]) settle(gate, take(gate), outcome);
  assert.equal(guards(gate, 0)[3], 0);
  settle(gate, take(gate), "failure");
  assert.deepEqual(guards(gate, 0), [0, 1, 0, 1, 0]);
});

test("a refusal by a later limit takes no place and trips nothing", () => {
  const gate = new Gate({
    limits: { server: new ConcurrencyLimit(2, { rejectTrip: 1, cooldown: "1s" }), rate: new RateLimit(1, { per: "1h" }) },
    policies: { default: [["server", "shared"], ["rate", "shared"]] },
  });
  assert.ok(take(gate));
  for (let n = 0; n < 10; n++) assert.equal(gate.tryAdmit("default", { nowNs: 0 }).by, "rate");
  assert.deepEqual(guards(gate, 0), [1, 0, 0, 0, 0]);
});

test("a place that nobody gives back is free after one to two leases", () => {
  const gate = gateOfPlaces(1, { lease: "1s" });
  const lost = take(gate, S / 2n);
  assert.deepEqual(refusal(gate, 2n * S - 1n), ["concurrency", 0n, 0]);
  assert.equal(inFlight(gate, 2n * S), 0);
  const again = take(gate, 2n * S);
  assert.equal(settle(gate, lost, "success", 2n * S), "lapsed");
  assert.equal(settle(gate, lost, "success", 2n * S), "already_settled");
  assert.deepEqual(guards(gate, 2n * S), [1, 0, 0, 0, 1]);
  assert.equal(settle(gate, again, "success", 2n * S), "ok");
  assert.equal(inFlight(gate, 2n * S), 0);
});

test("a second settlement gives no second place back", () => {
  const gate = gateOfPlaces(3);
  const [first] = [take(gate), take(gate)];
  for (const expected of ["ok", "already_settled", "already_settled"]) {
    assert.equal(settle(gate, first, "failure"), expected);
  }
  assert.equal(inFlight(gate, 0), 1);
});

class Abort extends Error {
  name = "AbortError";
}

/** By how it ends, what the breaker of one failure makes of a call. */
for (const [name, work, trips] of [
  ["returns", () => 1, 0],
  ["resolves", async () => 1, 0],
  ["throws", () => { throw new Error("broken"); }, 1],
  ["rejects", async () => { throw new Error("broken"); }, 1],
  ["throws no error", () => { throw undefined; }, 1],
  ["is aborted", async () => { throw new Abort(); }, 0],
  ["is aborted by a DOMException", async () => { throw new DOMException("gone", "AbortError"); }, 0],
  ["throws what can't be looked at", () => { throw new Proxy({}, { get() { throw new Error("no"); }, getPrototypeOf() { throw new Error("no"); } }); }, 1],
]) {
  test(`run gives the place back where the work ${name}`, async () => {
    const gate = gateOfPlaces(1, HOUR_LONG);
    const run = gate.run("default", {}, (permit) => {
      assert.equal(inFlight(gate), 1);
      assert.equal(permit.isSettled, false);
      return work();
    });
    await run.catch(() => {});
    assert.deepEqual(guards(gate), [0, trips, 0, trips, 0]);
  });
}

test("a client that goes away is no failure of the server, however the work ends then", async () => {
  for (const fails of [false, true]) {
    const gate = gateOfPlaces(1, HOUR_LONG);
    const controller = new AbortController();
    const run = gate.run("default", { signal: controller.signal }, async () => {
      controller.abort();
      await setImmediate();
      if (fails) throw new Error("the socket is closed");
      return 1;
    });
    await run.catch(() => {});
    assert.deepEqual(guards(gate), [0, 0, 0, 0, 0]);
  }
});

test("a call that nobody settles gives its place back when it is forgotten", async () => {
  const gate = gateOfPlaces(2, HOUR_LONG);
  const forget = () => void gate.admit("default");
  forget();
  const kept = gate.admit("default");
  assert.equal(inFlight(gate), 2);
  await collectUntil(() => inFlight(gate) === 1, "giving a forgotten place back");
  assert.deepEqual(guards(gate), [1, 0, 0, 0, 0]);
  assert.equal(kept.settle(), "ok");
  assert.equal(inFlight(gate), 0);
});

test("a permit that is settled and forgotten gives nothing back again", async () => {
  const gate = gateOfPlaces(2);
  let isCollected = false;
  const registry = new FinalizationRegistry(() => (isCollected = true));
  const forget = () => {
    const permit = gate.admit("default");
    registry.register(permit);
    permit.settle();
  };
  forget();
  gate.tryAdmit("default");
  await collectUntil(() => isCollected, "a collection");
  assert.equal(inFlight(gate), 1);
});

test("a stream that breaks off, and one that is closed, give their places back", async () => {
  const gate = gateOfPlaces(1);
  async function* stream() {
    const permit = gate.admit("default");
    try {
      yield 1;
      yield 2;
    } finally {
      permit[Symbol.dispose]();
    }
  }
  for await (const chunk of stream()) {
    assert.equal(chunk + inFlight(gate), 2);
    break;
  }
  assert.equal(inFlight(gate), 0);
});

test("thousands of calls that end in all ways leave nothing in flight", async () => {
  const gate = gateOfPlaces(4095);
  const controller = new AbortController();
  const calls = Array.from({ length: 4095 }, (_, n) =>
    gate.run("default", { signal: n % 3 ? undefined : controller.signal }, async () => {
      await setImmediate();
      if (n % 5 === 0) throw new Error("broken");
      if (n % 7 === 0) throw new Abort();
    }),
  );
  assert.equal(inFlight(gate), 4095);
  controller.abort();
  await Promise.allSettled(calls);
  assert.deepEqual(guards(gate), [0, 0, 0, 0, 0]);
});

test("a lower limit lets those in flight end", () => {
  const gate = gateOfPlaces(3);
  const permits = [take(gate), take(gate), take(gate)];
  gate.reconfigure("server", new ConcurrencyLimit(1), { nowNs: 0 });
  for (const permit of permits) {
    assert.equal(take(gate), null);
    assert.equal(settle(gate, permit), "ok");
  }
  assert.equal(gate.tryAdmit("default", { nowNs: 0 }).limit, 1);
});

test("cooldowns are kept in whole milliseconds, rounded up", () => {
  const gate = gateOfPlaces(1, { rejectTrip: 1, cooldown: 1_000_001 });
  take(gate);
  assert.deepEqual(refusal(gate, 0), ["breaker_open", 2_000_000n, 0]);
});
