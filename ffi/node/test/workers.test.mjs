// Worker threads share a gate by its handle: one set of limits, and one memory.

import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import test from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { CallError, ConcurrencyLimit, ConfigError, Gate, OFF, Quota, RateLimit } from "callgate";
import { collectUntil, gateOf, HOUR_NS, throws } from "./support.mjs";

const WORKER = new URL("./worker.mjs", import.meta.url);

function worker(gate, task) {
  return new Worker(WORKER, { workerData: { handle: gate.handle?.() ?? gate, task } });
}

/** What a worker says that does a task at a gate, when it has ended. */
async function run(gate, task) {
  const thread = worker(gate, task);
  const [[message], [code]] = await Promise.all([once(thread, "message"), once(thread, "exit")]);
  assert.equal(code, 0);
  return message;
}

test("workers that hammer one key admit exactly its burst", async () => {
  const gate = gateOf({ burst: 20_000, count: 1, per: "1h" });
  const counts = await Promise.all([0, 1, 2, 3].map(() => run(gate, { name: "hammer", attempts: 15_000, nowNs: 0 })));
  assert.equal(counts.reduce((sum, count) => sum + count, 0), 20_000);
  assert.equal(gate.stats({ nowNs: 0 }).decisions[0].count, 20_000);
  assert.equal(gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).reason, "rate");
});

test("workers hold no more than all places, and give each back once", async () => {
  const gate = new Gate({ limits: { server: new ConcurrencyLimit(2) }, policies: { default: [["server", "shared"]] } });
  const held = gate.admit("default");
  const seen = await Promise.all([0, 1, 2].map(() => run(gate, { name: "places", times: 3000 })));
  assert.ok(seen.every((count) => count >= 1 && count <= 2), `${seen}`);
  assert.equal(gate.guards("server").inFlight, 1);
  held.settle();
  assert.equal(gate.guards("server").inFlight, 0);
});

test("workers may reconfigure and count while others admit", async () => {
  const gate = gateOf({ count: 1, burst: 3000, capacity: 100 });
  const results = await Promise.all([
    run(gate, { name: "disturb", rounds: 300 }),
    run(gate, { name: "disturb", rounds: 300 }),
    run(gate, { name: "hammer", attempts: 2000, nowNs: 0 }),
    run(gate, { name: "hammer", attempts: 2000, nowNs: 0 }),
  ]);
  assert.deepEqual(results.slice(0, 2), [300, 300]);
  assert.equal(results[2] + results[3], 3000);
});

test("a worker sees the limits as they are when it attaches", async () => {
  const gate = new Gate({
    limits: {
      rate: new RateLimit(2n ** 60n, { burst: 3 }),
      server: new ConcurrencyLimit(3, { lease: "1h" }),
      tokens: new Quota(7, { tz: "Asia/Tokyo", mustSeed: true }),
      spare: OFF,
    },
    policies: { default: [["rate", "caller"], ["tokens", "caller_tool"]], "ünï": [["server", "shared"]] },
    capacity: 77,
  });
  const seen = (g) => [...g.limits].map(([name, limit]) => [name, limit.constructor.name, limit === OFF ? null : { ...limit }]);
  for (const change of [() => {}, () => gate.reconfigure("server", OFF), () => gate.reconfigure("tokens", new Quota(9, { tz: "Europe/Berlin" }))]) {
    change();
    const described = await run(gate, { name: "describe" });
    assert.deepEqual(described.limits, seen(gate));
    assert.deepEqual(described.kinds, [1, gate.limits.get("server") === OFF ? 0 : 1, 1]);
    assert.deepEqual(described.policies, [...gate.policies]);
    assert.deepEqual([described.capacity, described.text], [77, String(gate)]);
  }
});

test("who attaches sees what others have changed, each of a limit of its own", () => {
  const limits = { x: new RateLimit(1, { per: "1s" }), y: new RateLimit(1, { per: "1s" }), z: new Quota(1) };
  const first = new Gate({ limits, policies: { all: [["x", "shared"], ["y", "shared"], ["z", "shared"]] } });
  const second = Gate.attach(first.handle());
  first.reconfigure("x", new RateLimit(5, { per: "1s" }));
  second.reconfigure("y", new RateLimit(7, { per: "1s" }));
  second.reconfigure("z", OFF);
  const third = Gate.attach(first.handle());
  const { x, y, z } = Object.fromEntries(third.limits);
  assert.deepEqual([x.count, y.count, z], [5, 7, OFF]);
  assert.throws(() => third.reconfigure("z", new RateLimit(1, { per: "1s" })), ConfigError);
  for (const gate of [first, second, third]) gate.close();
});

test("each worker knows the calendar", async () => {
  const gate = new Gate({ limits: { tokens: new Quota(10, { tz: "Europe/Berlin" }) }, policies: { default: [["tokens", "caller"]] } });
  const unixNs = BigInt(Date.parse("2026-03-29T00:00+01:00")) * 1_000_000n;
  gate.admit("default", { caller: "alice", nowNs: 0, unixNs }).settle("success", { used: 10, nowNs: 0, unixNs });
  assert.deepEqual(await run(gate, { name: "quota", unixNs }), { reason: "quota", resetAfterNs: 23n * HOUR_NS, remaining: 0 });
});

test("a worker that is ended in the middle of a call leaves the gate whole", async () => {
  const gate = gateOf();
  const handle = gate.handle();
  for (let n = 0; n < 5; n++) {
    const thread = worker(gate, { name: "linger" });
    await once(thread, "message");
    assert.equal(await thread.terminate(), 1);
  }
  assert.ok(gate.tryAdmit("default", { caller: "bob" }).admitted);
  gate.close();
  // What the workers had of it is given back with them.
  await collectUntil(() => {
    try {
      Gate.attach(handle).close();
      return false;
    } catch {
      return true;
    }
  }, "giving the memory back");
});

test("the memory stays until the last of those who share it has closed", () => {
  const gate = gateOf({ burst: 2 });
  const other = Gate.attach(gate.handle());
  const twin = Gate.attach(other.handle());
  assert.deepEqual(twin.handle(), gate.handle());
  gate.tryAdmit("default", { caller: "alice", nowNs: 0 });
  gate.close();
  other.close();
  assert.equal(twin.tryAdmit("default", { caller: "alice", nowNs: 0 }).remaining, 0);
  twin.close();
  const message = /this process has no such gate: all its threads have closed it/;
  throws(() => Gate.attach(twinHandle), CallError, { message, field: "handle" });
});

const twinHandle = (() => {
  const gate = gateOf();
  const handle = gate.handle();
  gate.close();
  return handle;
})();

test("a handle of a closed gate, and a forged one, are typed errors in a worker too", async () => {
  for (const handle of [twinHandle, { callgate: "0".repeat(32) }]) {
    const { name, field, message } = await run(handle, { name: "fail" });
    assert.deepEqual([name, field], ["CallError", "handle"]);
    assert.match(message, /no such gate/);
  }
  for (const handle of [null, 5, {}, { callgate: 5 }, { callgate: "0".repeat(31) }, { callgate: "g".repeat(32) }, []]) {
    throws(() => Gate.attach(handle), TypeError, { message: /handle must be what gate\.handle\(\) returns/ });
  }
});

test("a key and a permit serve the Gate that made them, also where another shares its memory", () => {
  const gate = gateOf();
  const other = Gate.attach(gate.handle());
  throws(() => other.tryAdmit("default", { caller: gate.key("alice") }), CallError, { message: /another gate/ });
  throws(() => other.settle(gate.tryAdmit("default", { caller: "alice" }).permit), CallError, { message: /another gate/ });
});

test("a handle is plain data and of one process", async () => {
  const gate = gateOf();
  assert.deepEqual(structuredClone(gate.handle()), JSON.parse(JSON.stringify(gate.handle())));
  const child = fork(fileURLToPath(new URL("./attach_child.mjs", import.meta.url)), [JSON.stringify(gate.handle())]);
  const [answer] = await once(child, "message");
  assert.deepEqual(answer, { name: "CallError", field: "handle" });
  await once(child, "exit");
});
