// What the tests share.

import assert from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { Gate, RateLimit } from "callgate";

export const SECOND_NS = 1_000_000_000n;
export const HOUR_NS = 3600n * SECOND_NS;
export const DAY_NS = 24n * HOUR_NS;

/** A gate of one rate limit, `rate`, under one policy, `default`. */
export function gateOf({ count = 30, burst = 60, per = "1s", scope = "caller", ...options } = {}) {
  return new Gate({
    limits: { rate: new RateLimit(count, { per, burst }) },
    policies: { default: [["rate", scope]] },
    ...options,
  });
}

/** What is left of the caller's bucket. */
export function remaining(gate, caller = "alice", nowNs = 0) {
  return gate.peek("default", { caller, cost: 0, nowNs })[0].remaining;
}

/** How many of so many calls are admitted. */
export function admitted(gate, attempts, caller = "alice", nowNs = 0) {
  let count = 0;
  for (let n = 0; n < attempts; n++) count += gate.tryAdmit("default", { caller, nowNs }).admitted ? 1 : 0;
  return count;
}

/** Asserts that `work` throws an error of that class (exactly) and with these properties. */
export function throws(work, kind, properties = {}) {
  let error;
  try {
    work();
  } catch (thrown) {
    error = thrown;
  }
  assert.ok(error !== undefined, "nothing is thrown");
  assert.equal(error.constructor, kind, `${error}`);
  for (const [name, value] of Object.entries(properties)) {
    if (value instanceof RegExp) assert.match(String(error[name]), value);
    else assert.equal(error[name], value, `${name} of ${error}`);
  }
  return error;
}

/** Numbers that look random and are the same in every run (mulberry32). */
export function randomOf(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, pick: (items) => items[below(items.length)] };
}

/** Collects garbage until `isDone`; fails where that does not come about. */
export async function collectUntil(isDone, what) {
  for (let n = 0; n < 200; n++) {
    globalThis.gc();
    await setImmediate(); // finalizers run between turns of the event loop
    if (isDone()) return;
  }
  assert.fail(`${what} did not happen in 200 collections`);
}
