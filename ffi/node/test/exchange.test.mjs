// What passes between the package and its engine: a permit is made anew word for word, and a call has nothing of
// the one before it. Where the words are is said in csrc/engine.h.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import test from "node:test";
import { ConcurrencyLimit, Gate, OFF, Quota, RateLimit } from "callgate";

const { Engine } = createRequire(import.meta.url)("../dist/engine.js");

const SECRET = new Uint8Array(16).fill(7);
const CALL = [0, 18];
const NOTES = [22, 25]; // which clock, and how long the texts are
const PERMIT = [38, 78];
const PERMITS_BEHIND = 4 * (18 + 12); // in a batch: bytes of a call and its decision
const IS_MARKED = 18;

const LIMITS = {
  rate: new RateLimit(30, { per: "1s", burst: 60 }),
  slow: new RateLimit(1, { per: "1h", burst: 500 }),
  server: new ConcurrencyLimit(1000, { lease: "2h", rejectTrip: 5, cooldown: "30s" }),
  places: new ConcurrencyLimit(9, { lease: "1m" }),
  tokens: new Quota(2 ** 40),
  units: new Quota(1000, { per: "1h" }),
  off: OFF,
};
const POLICIES = {
  rate: [["rate", "caller"]],
  concurrency: [["server", "shared"]],
  quota: [["tokens", "caller"]],
  several: [["rate", "caller"], ["off", "caller"], ["units", "shared"], ["server", "caller"]],
  last: [["rate", "caller"], ["slow", "shared"], ["places", "caller"]],
  eight: ["rate", "slow", "server", "places", "tokens", "units", "off", "rate"].map((limit, n) => [limit, n < 7 ? "caller" : "shared"]),
  off: [["off", "caller"]],
};
const IS_PLAIN = ["rate", "off"]; // those whose limits mark nothing

/** A gate, its words, and its seat, whose functions can be replaced. */
function opened() {
  const { open } = Engine;
  let engine;
  Engine.open = (...given) => (engine = open.apply(Engine, given));
  try {
    const gate = new Gate({ limits: LIMITS, policies: POLICIES, capacity: 1000, secret: SECRET });
    return { gate, words: engine.words, seat: engine.seat };
  } finally {
    Engine.open = open;
  }
}

/** Of a permit the words that the engine is given to settle it. */
function settled({ words, seat }, permit) {
  const { settle } = seat;
  let made;
  words.fill(0x55555555, ...PERMIT); // as another call may have left it
  seat.settle = () => {
    made = words.slice(...PERMIT);
    settle();
  };
  try {
    assert.equal(permit.settle(), "ok");
  } finally {
    seat.settle = settle;
  }
  return made;
}

const IDENTITIES = {
  "no tool, a key": (gate) => ({ caller: gate.key("alice") }),
  "no tool, a text": () => ({ caller: "alice" }),
  "no tool, bytes": () => ({ caller: new TextEncoder().encode("Ålice") }),
  "no tool, a long text": () => ({ caller: "alice".repeat(100) }),
  "a tool, keys": (gate) => ({ caller: gate.key("alice"), tool: gate.key("search", "tool") }),
  "a tool, texts": () => ({ caller: "alice", tool: "search" }),
  "a tool, long texts": () => ({ caller: "alice".repeat(100), tool: new Uint8Array(300).fill(65) }),
};
const AMOUNTS = {
  "one token": {},
  "no token": { cost: 0 },
  "tokens": { cost: 3 },
  "a reserve": { reserve: 5n },
  "tokens and a reserve": { cost: 2n, reserve: 7 },
};
const CLOCKS = { "the system's clock": {}, "a clock of ours": { nowNs: 2n ** 60n + 5n, unixNs: 2n ** 60n } };

for (const policy of Object.keys(POLICIES)) {
  test(`a permit is made anew as the engine gave it, under the policy '${policy}'`, () => {
    for (const [who, identities] of Object.entries(IDENTITIES)) {
      for (const [amount, terms] of Object.entries(AMOUNTS)) {
        for (const [clock, times] of Object.entries(CLOCKS)) {
          const all = opened();
          const { gate, words } = all;
          gate.reconfigure("rate", new RateLimit(31, { per: "1s", burst: 60 }), times);
          const decision = gate.tryAdmit(policy, { ...identities(gate), ...terms, ...times });
          const given = words.slice(...PERMIT);
          const what = `${who}, ${amount}, ${clock}`;
          assert.equal(decision.admitted, true, what);
          assert.equal(decision.retryAfterNs, 0n, what);
          assert.notEqual(given[2], 0, "a gate that was changed has a revision");
          assert.equal(given[IS_MARKED] !== 0, !IS_PLAIN.includes(policy), what);
          assert.deepEqual(settled(all, decision.permit), given, what);
          gate.close();
        }
      }
    }
  });
}

test("what is refused has no permit, and when it may come again", () => {
  const { gate, words } = opened();
  const call = { tool: "search", cost: 60, nowNs: 2n ** 60n, unixNs: 0 };
  for (let n = 0; n < 8; n++) assert.equal(gate.tryAdmit("last", { ...call, caller: `caller ${n}` }).admitted, true);
  const decision = gate.tryAdmit("last", { ...call, caller: "alice" });
  assert.deepEqual([decision.by, decision.permit], ["slow", null]);
  assert.ok(words.slice(...PERMIT).every((word) => word === 0));
  assert.equal(decision.retryAfterNs, 40n * 3_600_000_000_000n);
});

test("each call is decided under its policy, whichever was asked for before", () => {
  const { gate, words } = opened();
  const names = Object.keys(POLICIES);
  const indexes = [...names.keys()];
  for (const index of [...indexes, ...indexes.flatMap((n) => [n, n]), ...indexes.reverse()]) {
    const { by } = gate.tryAdmit(names[index], { caller: "alice" });
    assert.equal(words[1], index);
    assert.ok(by === null || POLICIES[names[index]].some(([limit]) => limit === by), `${by} under ${names[index]}`);
  }
});

test("permits of a batch are made anew as the engine gave them, in whatever order", () => {
  for (const times of Object.values(CLOCKS)) {
    const all = opened();
    const { gate, seat } = all;
    const calls = Object.keys(POLICIES).flatMap((policy) =>
      Object.values(IDENTITIES).flatMap((identities) =>
        ["one token", "a reserve"].map((amount) => ({ policy, ...identities(gate), ...AMOUNTS[amount] })),
      ),
    );
    const { admitMany } = seat;
    let permits;
    seat.admitMany = (buffer, count) => {
      admitMany(buffer, count);
      permits = new Int32Array(buffer.slice(count * PERMITS_BEHIND));
    };
    const decisions = gate.tryAdmitMany(calls, times);
    const order = [...decisions.keys()].reverse();
    let admitted = 0;
    for (const n of order) {
      if (!decisions[n].admitted) continue;
      assert.deepEqual(settled(all, decisions[n].permit), permits.slice(40 * n, 40 * n + 40), `${n}`);
      admitted += 1;
    }
    assert.ok(admitted > calls.length / 2, `${admitted} of ${calls.length}`);
    gate.close();
  }
});

test("a call has nothing of what came before it", () => {
  const times = { nowNs: 7, unixNs: 7 };
  const call = { caller: "alice" };
  const others = {
    "a call with a tool": ({ gate }) => gate.tryAdmit("rate", { ...call, tool: "search" }),
    "a call with a tool's key": ({ gate }) => gate.tryAdmit("rate", { ...call, tool: gate.key("search", "tool") }),
    "a call with a long tool": ({ gate }) => gate.tryAdmit("rate", { ...call, tool: "search".repeat(99) }),
    "a call of a cost": ({ gate }) => gate.tryAdmit("rate", { ...call, cost: 2n ** 64n - 1n }),
    "a call with a reserve": ({ gate }) => gate.tryAdmit("quota", { ...call, reserve: 9 }),
    "a call by a clock of ours": ({ gate }) => gate.tryAdmit("rate", { ...call, ...times }),
    "a peek": ({ gate }) => gate.peek("eight", { ...call, ...times, tool: "search", cost: 9, reserve: 9 }),
    "a batch": ({ gate }) => gate.tryAdmitMany([{ policy: "off", ...call, tool: "search", cost: 9, reserve: 9 }], times),
    "a settlement": ({ gate }) => gate.tryAdmit("rate", call).permit.settle("failure", times),
    "a seed": ({ gate }) => gate.seed("tokens", "alice", 5, { ...times, tool: "search" }),
    "a change": ({ gate }) => gate.reconfigure("rate", OFF, times),
    "a report": ({ gate }) => gate.stats(times),
    "a key": ({ gate }) => gate.key("search", "tool"),
    "a bad tool": ({ gate }) => assert.throws(() => gate.tryAdmit("rate", { ...call, tool: 5 })),
    "a bad caller": ({ gate }) => assert.throws(() => gate.tryAdmit("rate", { caller: 5, tool: "search" })),
    "a bad cost": ({ gate }) => assert.throws(() => gate.tryAdmit("rate", { ...call, tool: "search", cost: -1 })),
    "a bad reserve": ({ gate }) => assert.throws(() => gate.tryAdmit("rate", { ...call, cost: 9, reserve: -1 })),
    "a bad clock": ({ gate }) => assert.throws(() => gate.tryAdmit("rate", { ...call, reserve: 9, nowNs: 1, unixNs: -1 })),
    "a bad policy": ({ gate }) => assert.throws(() => gate.tryAdmit("", call)),
    "a getter that calls": ({ gate }) =>
      gate.tryAdmit("rate", {
        get caller() {
          gate.tryAdmit("eight", { ...call, ...times, tool: "search", cost: 9, reserve: 9 });
          return "bob";
        },
      }),
  };
  const kinds = { nobody: () => ({}), text: () => call, bytes: () => ({ caller: new Uint8Array([1]) }), key: (gate) => ({ caller: gate.key("alice") }) };
  for (const [kind, callOf] of Object.entries(kinds)) {
    const policy = kind === "nobody" ? "concurrency" : "several";
    const writtenAfter = (other) => {
      const all = opened();
      const plain = callOf(all.gate);
      all.gate.tryAdmit("off", { caller: "carol" });
      other?.(all);
      all.gate.tryAdmit(policy, plain);
      const written = [...all.words.slice(...CALL), ...all.words.slice(...NOTES)];
      all.gate.close();
      return written;
    };
    const alone = writtenAfter();
    for (const [what, other] of Object.entries(others)) assert.deepEqual(writtenAfter(other), alone, `${kind} after ${what}`);
  }
});
