// Gates, permits and memory: what is closed, what is forgotten, and what a flood takes.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { CallError, ConcurrencyLimit, Gate, OFF, Quota, RateLimit } from "callgate";
import { collectUntil, gateOf, remaining, throws } from "./support.mjs";

/** How many bytes this process has mapped, and has in use. */
function memory() {
  const [mapped, resident] = readFileSync("/proc/self/statm", "utf8").split(" ").map((pages) => Number(pages) * 4096);
  return { mapped, resident };
}

const onLinux = { skip: process.platform !== "linux" && "reads /proc" };
const isGone = (handle) => {
  try {
    Gate.attach(handle).close();
    return false;
  } catch {
    return true;
  }
};

test("whatever is asked of a closed gate is a typed error", () => {
  const gate = new Gate({
    limits: { tokens: new Quota(5, { tz: "Asia/Tokyo" }), server: new ConcurrencyLimit(1) },
    policies: { default: [["tokens", "caller"], ["server", "shared"]] },
  });
  const decision = gate.tryAdmit("default", { caller: "alice" });
  const { permit } = decision;
  const key = gate.key("alice");
  gate.close();
  gate.close();
  gate[Symbol.dispose]();
  for (const call of [
    () => gate.tryAdmit("default", { caller: "alice" }),
    () => gate.tryAdmit("default", { caller: key, nowNs: 0, unixNs: 0 }),
    () => gate.tryAdmit("default", { caller: "x".repeat(1000) }),
    () => gate.tryAdmitMany([{ policy: "default", caller: "alice" }]),
    () => gate.tryAdmitMany([{ policy: "default", caller: key }]),
    () => gate.admit("default", { caller: key }),
    () => gate.peek("default", { caller: key }),
    () => gate.key("alice"),
    () => gate.settle(permit),
    () => permit.settle(),
    () => permit.cancel(),
    () => gate.seed("tokens", "alice", 1),
    () => gate.reconfigure("tokens", OFF),
    () => gate.guards("server"),
    () => gate.allGuards(),
    () => gate.stats(),
    () => gate.metrics(),
    () => gate.handle(),
  ]) {
    throws(call, CallError, { message: "the gate is closed", field: "gate" });
  }
  permit[Symbol.dispose](); // there is nothing left to settle
  assert.equal(permit.isSettled, false);
  assert.deepEqual([decision.by, decision.remaining, key.domain], ["tokens", 5, "caller"]);
  assert.match(String(gate), /, closed>$/);
  assert.deepEqual([gate.capacity, gate.limits.size, gate.internalErrors], [10_000, 2, 0]);
});

test("a gate that is closed while a call runs takes nothing of its result", async () => {
  const gate = gateOf();
  const answer = await gate.run("default", { caller: "alice" }, () => {
    gate.close();
    return "answer";
  });
  assert.equal(answer, "answer");
});

test("a gate that nobody has any more is closed by the collector", async () => {
  const make = () => gateOf({ capacity: 100_000 }).handle();
  const handles = [make(), make(), make()];
  await collectUntil(() => handles.every(isGone), "closing forgotten gates");
});

test("a permit outlives its gate, and keeps its memory", async () => {
  const make = () => {
    const gate = gateOf();
    return { handle: gate.handle(), permit: gate.tryAdmit("default", { caller: "alice", cost: 60, nowNs: 0 }).permit };
  };
  let { handle, permit } = make();
  for (let n = 0; n < 5; n++) await collectUntil(() => true, "");
  const again = Gate.attach(handle);
  assert.equal(remaining(again), 0);
  assert.equal(permit.cancel(), "ok");
  assert.equal(remaining(again), 60);
  again.close();
  permit = null;
  await collectUntil(() => isGone(handle), "closing it with its last permit");
});

test("a gate that is closed gives its memory back at once", onLinux, () => {
  gateOf({ capacity: 10 }).close();
  const before = memory().mapped;
  const gate = gateOf({ capacity: 2_000_000 });
  assert.ok(memory().mapped - before > 2_000_000 * 1.6 * 32);
  gate.close();
  assert.ok(memory().mapped - before < 16 << 20);
});

test("forgotten gates do not pile up, though nobody calls the collector", onLinux, async () => {
  const before = memory().mapped;
  for (let n = 0; n < 300; n++) {
    gateOf({ capacity: 200_000 }); // 10 MB each: 3 GB
    await new Promise(setImmediate);
  }
  assert.ok(memory().mapped - before < 2 ** 31);
});

test("a million rotating callers take no memory and lose no drained bucket", onLinux, () => {
  const gate = gateOf({ count: 1, burst: 1, capacity: 10_000 });
  assert.ok(gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).admitted);
  const verdicts = { null: 0, table_full: 0 };
  const flood = (from, to) => {
    for (let n = from; n < to; n++) verdicts[gate.tryAdmit("default", { caller: `c${n}`, nowNs: 0 }).reason] += 1;
    globalThis.gc();
  };
  flood(0, 100_000);
  const before = memory().resident;
  flood(100_000, 1_000_000);
  assert.ok(memory().resident - before < 32 << 20, "the heap of Node itself breathes");
  assert.deepEqual(Object.keys(verdicts), ["null", "table_full"]);
  assert.ok(verdicts.null + 1 >= 10_000 && verdicts.null + 1 <= gate.stats({ nowNs: 0 }).slots);
  assert.equal(gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).reason, "rate");
});

function everythingOnce(n) {
  const gate = new Gate({
    limits: {
      rate: new RateLimit(30, { burst: 60 }),
      tokens: new Quota(100, { tz: "Europe/Berlin" }),
      server: new ConcurrencyLimit(2, { lease: "1s", rejectTrip: 1, cooldown: "1s" }),
    },
    policies: { default: [["rate", "caller"]], all: [["tokens", "caller_tool"], ["server", "shared"]] },
    capacity: 30_000,
  });
  const key = gate.key(`caller ${n}`);
  gate.admit("default", { caller: key }).cancel();
  gate.admit("all", { caller: key, tool: "x".repeat(500), reserve: 5 }).settle("failure", { used: 2 });
  gate.tryAdmitMany([{ policy: "default", caller: key }, { policy: "all", caller: "ß", tool: "y" }]);
  gate.seed("tokens", key, 5, { tool: "z" });
  gate.peek("all", { caller: key, tool: "z" });
  gate.reconfigure("rate", OFF);
  for (const report of [gate.stats(), gate.metrics(), gate.allGuards()]) assert.ok(report);
  for (const fails of [() => gate.tryAdmit("all"), () => gate.guards("rate"), () => gate.seed("tokens", "", 1), () => new RateLimit(0)]) {
    assert.throws(fails);
  }
  const other = Gate.attach(gate.handle());
  gate.close();
  other.close();
}

test("nothing leaks on any path", onLinux, async () => {
  const rounds = async (count) => {
    for (let n = 0; n < count; n++) everythingOnce(n);
    for (let n = 0; n < 5; n++) await collectUntil(() => true, "");
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return { heapUsed, arrayBuffers, mapped: memory().mapped };
  };
  const before = await rounds(200);
  const after = await rounds(600);
  // Per round 1.5 MB are mapped, 3 kB of array buffers made, and some hundred objects.
  assert.ok(after.mapped - before.mapped < 600 * 500_000, "mappings");
  assert.ok(after.arrayBuffers - before.arrayBuffers < 600 * 200, "array buffers");
  assert.ok(after.heapUsed - before.heapUsed < 600 * 1000, "objects");
});
