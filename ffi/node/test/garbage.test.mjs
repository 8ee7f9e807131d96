// Whatever is passed: a result or a typed error, never a crash.

import assert from "node:assert/strict";
import test from "node:test";
import { CallgateError, ConcurrencyLimit, Gate, metricsText, OFF, Quota, RateLimit, Seeder } from "callgate";
import { gateOf, randomOf } from "./support.mjs";

class Hostile extends Error {}

const fail = () => {
  throw new Hostile("looked at");
};

/** A proxy whose every trap throws. */
const trap = new Proxy(() => {}, Object.fromEntries(Reflect.ownKeys(Reflect).map((name) => [name, fail])));
/** An object whose properties throw. */
const pits = new Proxy({}, { get: fail });
const hostileBytes = Object.defineProperties(new Uint8Array(5), { length: { get: fail }, byteLength: { get: fail }, buffer: { get: fail } });

function detached() {
  const bytes = new Uint8Array(16).fill(1);
  structuredClone(bytes.buffer, { transfer: [bytes.buffer] });
  return bytes;
}

const OTHER = gateOf();

function thingsOf(gate) {
  const decision = gate.tryAdmit("default", { caller: "garbage", nowNs: 0, unixNs: 0 });
  const foreign = OTHER.tryAdmit("default", { caller: "garbage", nowNs: 0 });
  return [
    undefined, null, true, false, 0, -0, 1, -1, 0.5, 2 ** 31, 2 ** 32, 2 ** 53, 1e300, NaN, Infinity, -Infinity,
    0n, 1n, -1n, 2n ** 31n, 2n ** 61n, 2n ** 63n, 2n ** 64n - 1n, 2n ** 64n, -(2n ** 63n), 10n ** 40n,
    "", "default", "caller", "tool", "shared", "success", "cancelled", "rate", "tokens", "server", "1s", "250ms", "\0",
    "\ud800", "\u{10ffff}", "__proto__", "constructor", "x".repeat(100_000), Symbol("x"), Symbol.iterator,
    new Uint8Array(), new Uint8Array(16).fill(9), new Uint8Array(1000), new Uint8Array(new SharedArrayBuffer(300)), detached(),
    hostileBytes, Buffer.from("alice"), new Int8Array(4), new Float64Array(2), new BigUint64Array(2), new DataView(new ArrayBuffer(8)),
    new ArrayBuffer(8), new SharedArrayBuffer(8), [], [1], [["rate", "caller"]], ["rate", "shared"], new Array(5), {}, { rate: 1 },
    { caller: "a" }, { caller: "a", cost: 2, nowNs: 1, unixNs: 1 }, { policy: "default", caller: "b" }, [{ policy: "default", caller: "c" }],
    { nowNs: 0, unixNs: 0 }, { callgate: "0".repeat(32) }, new Map(), new Map([["rate", new RateLimit(1)]]), new Set([1]), new Date(),
    /x/, () => 1, async () => 1, class {}, Promise.resolve(1), new Error("x"), Object.create(null), Object.create(Gate.prototype),
    Object.create(RateLimit.prototype), Object.create(Quota.prototype), globalThis, trap, pits, new Proxy([], { get: fail }),
    new Proxy(decision, {}), new Proxy(new Uint8Array(4), {}), gate, OTHER, Gate, gate.key("a"), gate.key("a", "tool"), OTHER.key("a"),
    decision, decision.permit, foreign.permit, new RateLimit(1), new RateLimit(2n ** 64n - 1n, { per: 1 }), new ConcurrencyLimit(2),
    new Quota(5), new Quota(5, { tz: "Asia/Tokyo" }), OFF,
  ];
}

function makeGate() {
  return new Gate({
    limits: { rate: new RateLimit(30, { burst: 60 }), tokens: new Quota(100, { tz: "Europe/Berlin" }), server: new ConcurrencyLimit(9) },
    policies: { default: [["rate", "caller"], ["tokens", "caller_tool"], ["server", "shared"]].slice(0, 1), all: [["tokens", "caller"], ["server", "tool"]] },
    capacity: 50,
  });
}

/** Calls; what is thrown must be ours, a TypeError or RangeError of JavaScript, or the thing's own. */
function tried(call) {
  try {
    const result = call();
    if (result instanceof Promise) result.catch(check);
    return true;
  } catch (error) {
    check(error);
    return false;
  }
}

function check(error) {
  const isTyped = [CallgateError, TypeError, RangeError, SyntaxError, Hostile].some((kind) => error instanceof kind);
  assert.ok(isTyped, `${error?.stack}`);
}

const METHODS = [
  "tryAdmit", "tryAdmitMany", "admit", "run", "settle", "peek", "key", "reconfigure", "seed", "guards", "allGuards", "stats",
  "metrics", "handle", "countInternalError", "toString",
];
const OPTIONS = [
  "caller", "tool", "cost", "reserve", "nowNs", "unixNs", "outcome", "used", "scope", "policy", "limits", "policies", "capacity",
  "secret", "per", "burst", "lease", "cooldown", "rejectTrip", "tz", "mustSeed", "anchorUnixS", "signal", "onError", "retryAfter",
];

/** Things, objects of options that are things, and arrays of them. */
function argumentOf(random, things, depth = 2) {
  const kind = depth === 0 ? 0 : random.below(4);
  if (kind === 1 || kind === 2) {
    const names = Array.from({ length: random.below(5) }, () => random.pick(OPTIONS));
    return Object.fromEntries(names.map((name) => [name, argumentOf(random, things, depth - 1)]));
  }
  if (kind === 3) return Array.from({ length: random.below(4) }, () => argumentOf(random, things, depth - 1));
  return random.pick(things);
}

for (const seed of [1, 2, 3]) {
  test(`thousands of calls with garbage end in results and typed errors: ${seed}`, async () => {
    const random = randomOf(seed);
    let gate = makeGate();
    let things = thingsOf(gate);
    const results = [0, 0];
    for (let n = 0; n < 20_000; n++) {
      const args = Array.from({ length: random.below(4) }, () => argumentOf(random, things));
      if (random.below(2)) args.unshift(random.pick(["default", "all", "rate", "tokens", "server"]));
      const own = random.pick(METHODS);
      const call = random.pick([
        () => gate[own](...args),
        () => gate[own](...args),
        () => gate.admit("default", { caller: "a", nowNs: 0, unixNs: 0 }).settle(...args),
        () => gate.tryAdmit("default", { caller: "a" }).permit?.used(...args),
        () => new RateLimit(...args),
        () => new ConcurrencyLimit(...args),
        () => new Quota(...args),
        () => new Gate(...args),
        () => Gate.attach(...args),
        () => new Seeder(gate, ...args),
        () => metricsText(...args),
      ]);
      results[tried(call) ? 0 : 1] += 1;
      if (n % 5000 === 4999) {
        gate.close();
        for (const method of METHODS) tried(() => gate[method]("default", random.pick(things)));
        gate = makeGate();
        things = thingsOf(gate);
      }
    }
    await new Promise(setImmediate);
    assert.ok(Math.min(...results) > 1000, `both ways were taken: ${results}`);
    assert.ok(gate.tryAdmit("default", { caller: "alice" }).admitted, "and it still works");
  });
}

test("what is hostile passes its own error on, and charges nothing", () => {
  const gate = makeGate();
  const before = gate.stats();
  for (const call of [
    () => gate.tryAdmit("default", pits),
    () => gate.tryAdmit("default", trap),
    () => gate.tryAdmitMany([{ policy: "default", caller: "a" }, pits]),
    () => gate.settle({}, pits),
    () => new Gate(pits),
    () => new RateLimit(1, pits),
  ]) {
    assert.throws(call, (error) => error instanceof Hostile || error instanceof TypeError);
  }
  assert.deepEqual(gate.stats(), before);
});

test("bytes that lie about their length are taken for what they are", () => {
  const gate = makeGate();
  assert.equal(gate.tryAdmit("default", { caller: hostileBytes, nowNs: 0, unixNs: 0 }).remaining, 59);
  assert.equal(gate.tryAdmit("default", { caller: new Uint8Array(5), nowNs: 0, unixNs: 0 }).remaining, 58);
  assert.throws(() => gate.tryAdmit("default", { caller: detached() }), /caller: an empty identity/);
  assert.throws(() => makeGate().key(detached()), /identity: an empty identity/);
});

test("an array of calls that lies about its length is a typed error", () => {
  const gate = makeGate();
  for (const length of [-1, 2.5, NaN, 2 ** 32, "3", Infinity]) {
    const calls = new Proxy([], { get: (target, name) => (name === "length" ? length : target[name]) });
    assert.throws(() => gate.tryAdmitMany(calls), CallgateError);
  }
});

test("functions of the seat survive what only this package could pass them", async () => {
  const { createRequire } = await import("node:module");
  const require = createRequire(import.meta.url);
  const { addon } = require("../dist/addon.js");
  const random = randomOf(9);
  const gate = makeGate();
  const things = thingsOf(gate);
  const seats = [];
  const calls = ["open", "attach", "checkLimit", "errorText"].map((name) => (...args) => addon[name](...args));
  const secret = new Uint8Array(16).fill(1);
  const opened = addon.open(["a"], [[2n, 1n, 1n, 1n]], ["p"], [[[0, 1]]], 5, secret, secret, "{}");
  seats.push(opened);
  for (const [bytes, count] of [[0, 1], [279, 1], [280, 2], [280, 2 ** 32 - 1], [2800, 11]]) {
    assert.throws(() => opened.admitMany(new ArrayBuffer(bytes), count), /the buffer is too small/);
  }
  for (let n = 0; n < 20_000; n++) {
    const seat = random.pick(seats);
    const method = random.pick(Object.keys(seat).filter((name) => name !== "memory" && (name !== "close" || n > 15_000)));
    const args = Array.from({ length: random.below(9) }, () => argumentOf(random, things));
    // The exchange holds anything, too; `struct_size` and sizes of texts included.
    const words = new Int32Array(seat.memory);
    for (let k = 0; k < 10; k++) words[random.below(90)] = random.pick([0, 1, -1, 2, 72, 256, 300, 2 ** 31 - 1, random.below(2 ** 31)]);
    const call = random.pick([...calls, (...rest) => seat[method](...rest)]);
    const foreign = random.pick([call, (...rest) => seat[method].apply(random.pick(things), rest)]);
    tried(() => foreign(...args));
  }
});
