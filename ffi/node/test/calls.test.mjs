// Bad calls are errors that name the argument; nothing is charged.

import assert from "node:assert/strict";
import test from "node:test";
import { CallError, CallgateError, Decision, Gate, Key, Permit, RateLimit } from "callgate";
import { gateOf, remaining, throws } from "./support.mjs";

const GATE = new Gate({
  limits: { rate: new RateLimit(30, { burst: 60 }) },
  policies: { default: [["rate", "caller"]], by_tool: [["rate", "tool"]], by_pair: [["rate", "caller_tool"]] },
});
const OTHER = gateOf();
const LONG = "x".repeat(1000);

const admit = (policy, call) => () => GATE.tryAdmit(policy, { nowNs: 0, ...call });
const many = (policy, call) => () => GATE.tryAdmitMany([{ policy: "default", caller: "a" }, { policy, ...call }], { nowNs: 0 });

const BAD_CALLS = [
  ["unknown policy", admit("nobody"), "policy", /'nobody' is unknown: this gate has 'default', 'by_tool', 'by_pair'/],
  ["no caller", admit("default"), "caller", /a limit of the policy 'default' is kept by caller/],
  ["no tool", admit("by_tool"), "tool", /a limit of the policy 'by_tool' is kept by tool/],
  ["half a pair", admit("by_pair", { caller: "a" }), "tool", /the policy 'by_pair' is kept by tool/],
  ["empty caller", admit("default", { caller: "" }), "caller", /1 or more bytes/],
  ["empty bytes", admit("default", { caller: new Uint8Array() }), "caller", /1 or more bytes/],
  ["empty tool", admit("default", { caller: "a", tool: "" }), "tool", /1 or more bytes/],
  ["half a character", admit("default", { caller: "\ud800" }), "caller", /UTF-8/],
  ["half a character of many", admit("default", { caller: `${LONG}\udc00` }), "caller", /UTF-8/],
  ["a key of another gate", admit("default", { caller: OTHER.key("a") }), "caller", /another gate/],
  ["a tool as caller", admit("default", { caller: GATE.key("a", "tool") }), "caller", /one of a tool/],
  ["a caller as tool", admit("by_tool", { tool: GATE.key("a") }), "tool", /one of a caller/],
  ["negative cost", admit("default", { caller: "a", cost: -1 }), "cost", /0 to 2\^64-1 tokens/],
  ["great cost", admit("default", { caller: "a", cost: 2n ** 64n }), "cost", /0 to 2\^64-1 tokens/],
  ["half a cost", admit("default", { caller: "a", cost: 0.5 }), "cost", /a whole number .*, not 0\.5/],
  ["no number as cost", admit("default", { caller: "a", cost: Number.NaN }), "cost", /not NaN/],
  ["endless cost", admit("default", { caller: "a", cost: Infinity }), "cost", /not Infinity/],
  ["inexact cost", admit("default", { caller: "a", cost: 2 ** 53 }), "cost", /up to 2\^53-1, or a bigint/],
  ["negative reserve", admit("default", { caller: "a", reserve: -1n }), "reserve", /0 to 2\^64-1 units/],
  ["negative time", admit("default", { caller: "a", nowNs: -1 }), "nowNs", /0 to 2\^61-1 ns/],
  ["late time", admit("default", { caller: "a", nowNs: 2n ** 61n }), "nowNs", /below 2\^61/],
  ["endless time", admit("default", { caller: "a", nowNs: 2n ** 64n }), "nowNs", /0 to 2\^61-1 ns/],
  ["negative date", admit("default", { caller: "a", unixNs: -1 }), "unixNs", /0 to 2\^64-1 ns/],
  ["a date alone", admit("default", { caller: "a", nowNs: undefined, unixNs: 1 }), "unixNs", /goes with nowNs/],
  ["admit", () => GATE.admit("nobody"), "policy", /'nobody' is unknown/],
  ["peek", () => GATE.peek("default"), "caller", /kept by caller/],
  ["peek late", () => GATE.peek("default", { caller: "a", nowNs: 2n ** 61n }), "nowNs", /below/],
  ["stats late", () => GATE.stats({ nowNs: 2n ** 61n }), "nowNs", /below/],
  ["key of nobody", () => GATE.key(""), "identity", /1 or more bytes/],
  ["key of what", () => GATE.key("a", "user"), "domain", /'caller' or 'tool'/],
  ["reconfigure what", () => GATE.reconfigure("x", new RateLimit(1)), "name", /gate has 'rate'/],
  ["reconfigure when", () => GATE.reconfigure("rate", new RateLimit(1), { nowNs: 2n ** 61n }), "nowNs", /below/],
  ["one of many: policy", many("nobody"), "policy", /'nobody' is unknown/],
  ["one of many: caller", many("default"), "caller", /of the policy 'default' is kept by caller/],
  ["one of many: tool", many("by_pair", { caller: "a" }), "tool", /of the policy 'by_pair' is kept by tool/],
  ["one of many: cost", many("default", { caller: "a", cost: -1 }), "cost", /0 to 2\^64-1 tokens/],
  ["too many", () => GATE.tryAdmitMany(new Array(4097).fill({ policy: "default", caller: "a" })), "calls", /0 to 4096, not 4097/],
  ["many late", () => GATE.tryAdmitMany([{ policy: "default", caller: "a" }], { nowNs: 2n ** 61n }), "nowNs", /below/],
];

for (const [name, call, field, message] of BAD_CALLS) {
  test(`a bad call names the argument and what is allowed: ${name}`, () => {
    const before = GATE.stats({ nowNs: 0 });
    const error = throws(call, CallError, { field, message, name: "CallError" });
    assert.ok(error.message.startsWith(field) && error instanceof CallgateError);
    assert.deepEqual(GATE.stats({ nowNs: 0 }), before);
  });
}

const WRONG_TYPES = [
  ["policy", admit(1), /policy must be a string, not a number/],
  ["no policy", () => GATE.tryAdmit(), /policy must be a string, not undefined/],
  ["call", () => GATE.tryAdmit("default", "a"), /the call must be an object, not a string/],
  ["call: null", () => GATE.tryAdmit("default", null), /the call must be an object, not null/],
  ["caller", admit("default", { caller: 5 }), /caller must be a string, a Uint8Array or a Key, not a number/],
  ["caller: other bytes", admit("default", { caller: new Int8Array(2) }), /caller must be a string, a Uint8Array or a Key/],
  ["caller: memory", admit("default", { caller: new ArrayBuffer(2) }), /caller must be a string, a Uint8Array or a Key/],
  ["tool", admit("default", { caller: "a", tool: ["t"] }), /tool must be a string, .*, not an array/],
  ["cost: boolean", admit("default", { caller: "a", cost: true }), /cost must be a whole number .*, not a boolean/],
  ["cost: null", admit("default", { caller: "a", cost: null }), /cost must be a whole number .*, not null/],
  ["reserve", admit("default", { caller: "a", reserve: "1" }), /reserve must be a whole number .*, not a string/],
  ["nowNs", admit("default", { caller: "a", nowNs: "0" }), /nowNs must be a whole number .*, not a string/],
  ["unixNs", admit("default", { caller: "a", unixNs: new Date() }), /unixNs must be a whole number .*, not an object/],
  ["key", () => GATE.key(null), /identity must be a string or a Uint8Array, not null/],
  ["key of a key", () => GATE.key(GATE.key("a")), /identity must be a string or a Uint8Array, not an object/],
  ["domain", () => GATE.key("a", 1), /domain must be a string, not a number/],
  ["limit", () => GATE.reconfigure("rate", 5), /limit must be a RateLimit, .* or OFF, not a number/],
  ["limit's name", () => GATE.reconfigure(0, new RateLimit(1)), /name must be a string, not a number/],
  ["calls", () => GATE.tryAdmitMany("abc"), /calls must be an array, not a string/],
  ["one of many", () => GATE.tryAdmitMany([null]), /a call must be an object, not null/],
  ["handle", () => Gate.attach("x"), /handle must be what gate\.handle\(\) returns/],
];

for (const [name, call, message] of WRONG_TYPES) {
  test(`a wrong type is a TypeError that names the argument: ${name}`, () => {
    throws(call, TypeError, { message });
  });
}

test("a key is its identity made once", () => {
  const gate = gateOf({ burst: 2 });
  const key = gate.key("alice");
  const asked = [key, "alice", key, Buffer.from("alice")];
  assert.deepEqual(asked.map((caller) => gate.tryAdmit("default", { caller, nowNs: 0 }).admitted), [true, true, false, false]);
});

test("identities of all lengths and alphabets are the same as text, as bytes and as keys", () => {
  const texts = ["a", "größe\0", "größe", "x".repeat(256), "x".repeat(257), "é".repeat(200), LONG, "\u{1f600}", "\0"];
  const gate = gateOf({ burst: 5, scope: "caller_tool" });
  for (const text of texts) {
    const forms = (domain) => [text, new TextEncoder().encode(text), gate.key(text, domain)];
    for (const [n, caller] of forms("caller").entries()) {
      const tool = forms("tool")[(n + 1) % 3];
      assert.equal(gate.tryAdmit("default", { caller, tool, nowNs: 0 }).remaining, 4 - n, text.slice(0, 9));
    }
  }
  assert.equal(gate.stats({ nowNs: 0 }).live, texts.length);
});

test("bytes are a view's own, and no other bytes of its memory", () => {
  const gate = gateOf({ burst: 1 });
  const view = new TextEncoder().encode("xalicex").subarray(1, 6);
  assert.ok(gate.tryAdmit("default", { caller: view, nowNs: 0 }).admitted);
  assert.ok(!gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).admitted);
});

test("keys are equal where gate, domain and identity are", () => {
  const key = GATE.key("alice");
  assert.ok(key.equals(GATE.key(Buffer.from("alice"))));
  for (const other of [GATE.key("bob"), GATE.key("alice", "tool"), OTHER.key("alice"), "alice", null]) {
    assert.ok(!key.equals(other));
  }
  assert.deepEqual([key.domain, GATE.key("x", "tool").domain], ["caller", "tool"]);
});

test("a key tells nothing of its identity", () => {
  const key = GATE.key("alice");
  assert.match(String(key), /^<callgate\.Key of a caller, [0-9a-f]{8}>$/);
  assert.notEqual(String(key), String(GATE.key("bob")));
  assert.ok(!JSON.stringify({ key }).includes("alice"));
  assert.deepEqual(Reflect.ownKeys(key), []);
});

test("gates of one secret make the same digest, and others do not", () => {
  const secret = new TextEncoder().encode("0123456789abcdef");
  const texts = new Set([1, 2, 3].map(() => String(gateOf({ secret }).key("alice"))));
  assert.equal(texts.size, 1);
  assert.ok(!texts.has(String(gateOf().key("alice"))));
});

test("what belongs to a gate is not sent to another thread", () => {
  const gate = gateOf();
  const decision = gate.tryAdmit("default", { caller: "alice", nowNs: 0 });
  for (const thing of [gate, gate.key("alice"), decision, decision.permit]) {
    const copy = structuredClone(thing); // an empty object: nothing of it gets out
    assert.deepEqual(Reflect.ownKeys(copy), []);
    assert.throws(() => gate.settle(copy), TypeError);
    assert.throws(() => gate.tryAdmit("default", { caller: copy }), TypeError);
  }
});

test("a gate that was never made, and things that nobody made, are TypeErrors", () => {
  const gate = Object.create(Gate.prototype);
  const calls = [
    () => gate.tryAdmit("x"),
    () => gate.key("x"),
    () => gate.settle(null),
    () => gate.close(),
    () => gate.stats(),
    () => Object.create(Decision.prototype).reason,
    () => Object.create(Permit.prototype).settle(),
    () => GATE.settle(Object.create(Permit.prototype)),
    () => GATE.tryAdmit("default", { caller: Object.create(Key.prototype) }),
  ];
  for (const call of calls) throws(call, TypeError);
});

test("a gate can be derived from", () => {
  class Named extends Gate {
    constructor(name) {
      super({ limits: { r: new RateLimit(1) }, policies: { p: [["r", "shared"]] } });
      this.name = name;
    }
  }
  const gate = new Named("mine");
  assert.ok(gate.tryAdmit("p", { nowNs: 0 }).admitted && gate.name === "mine");
});

test("a batch decides one after the other what single calls would", () => {
  const [gate, twin] = [gateOf({ burst: 3 }), gateOf({ burst: 3 })];
  const calls = [["alice", 1], ["bob", 2], ["alice", 1], ["bob", 2], [gate.key("alice"), 1], ["alice", 1], ["é", 4]];
  const batch = gate.tryAdmitMany(calls.map(([caller, cost]) => ({ policy: "default", caller, cost })), { nowNs: 0 });
  const singles = calls.map(([caller, cost]) => {
    const own = caller instanceof Key ? twin.key("alice") : caller;
    return twin.tryAdmit("default", { caller: own, cost, nowNs: 0 });
  });
  assert.deepEqual(batch.map(String), singles.map(String));
  assert.deepEqual(batch.map((d) => d.admitted), [true, true, true, false, true, false, false]);
  assert.equal(batch[1].permit.cancel(), "ok", "each has a permit of its own");
  assert.equal(remaining(gate, "bob"), 3);
  assert.equal(remaining(gate, "alice"), 0);
  assert.deepEqual(gate.tryAdmitMany([]), []);
});

test("a batch may be asked for while another is written", () => {
  const gate = gateOf({ burst: 10 });
  gate.tryAdmitMany(new Array(9).fill({ policy: "default", caller: "eve" })); // which leaves memory to use again
  const inner = [];
  const hostile = {
    policy: "default",
    get caller() {
      inner.push(...gate.tryAdmitMany([{ policy: "default", caller: "bob" }, { policy: "default", caller: "bob" }], { nowNs: 0 }));
      gate.tryAdmit("default", { caller: "carol", nowNs: 0 });
      return "alice";
    },
  };
  const outer = gate.tryAdmitMany([{ policy: "default", caller: "dave" }, hostile, { policy: "default", caller: "dave" }], { nowNs: 0 });
  assert.deepEqual(outer.map((d) => d.remaining), [9, 9, 8]);
  assert.deepEqual(inner.map((d) => d.remaining), [9, 8]);
  assert.equal(remaining(gate, "carol"), 9);
});

test("a getter that uses the gate itself meets no call half written", () => {
  const gate = gateOf({ burst: 10 });
  const call = {
    caller: "alice",
    nowNs: 0,
    get cost() {
      gate.tryAdmit("default", { caller: "bob", cost: 7, nowNs: 5 });
      return 2;
    },
  };
  assert.equal(gate.tryAdmit("default", call).remaining, 8);
  assert.deepEqual([remaining(gate), remaining(gate, "bob", 5)], [8, 3]);
});
