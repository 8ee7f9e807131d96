// Quotas: what was used is charged to the day of its call, in the user's time zone.

import assert from "node:assert/strict";
import test from "node:test";
import { CallError, Gate, OFF, Quota, RateLimit, Refused } from "callgate";
import { DAY_NS, HOUR_NS, SECOND_NS, throws } from "./support.mjs";

/** A gate of one quota, `tokens`, kept by caller. */
function gateOfUnits(limit = 10, options = {}) {
  return new Gate({ limits: { tokens: new Quota(limit, options) }, policies: { default: [["tokens", "caller"]] }, capacity: 16 });
}

/** An instant as it is written with its offset: worked out by hand, not by the package. */
const at = (text) => BigInt(Date.parse(text)) * 1_000_000n;

const ask = (gate, unixNs, { reserve = 0, caller = "alice" } = {}) =>
  gate.tryAdmit("default", { caller, reserve, nowNs: 0, unixNs });
const take = (gate, unixNs, reserve = 0) => ask(gate, unixNs, { reserve }).permit;
const left = (gate, unixNs, caller = "alice") => gate.peek("default", { caller, nowNs: 0, unixNs })[0].remaining;
const settle = (gate, permit, used, unixNs, outcome = "success") => gate.settle(permit, { outcome, used, nowNs: 0, unixNs });

test("what was used refuses the next call, and may overdraw", () => {
  const gate = gateOfUnits(10);
  const noon = DAY_NS / 2n;
  assert.equal(settle(gate, take(gate, noon), 12, noon), "ok");
  const refused = ask(gate, noon + SECOND_NS);
  assert.deepEqual([refused.reason, refused.by, refused.remaining], ["quota", "tokens", 0]);
  assert.deepEqual([refused.retryAfterNs, refused.resetAfterNs], [noon - SECOND_NS, noon - SECOND_NS]);
  assert.equal(ask(gate, DAY_NS - 1n).retryAfterNs, 1n);
  assert.equal(ask(gate, DAY_NS).remaining, 10);
});

test("a reserve is set aside until the true use is known", () => {
  const gate = gateOfUnits(10);
  const permit = take(gate, 0n, 8);
  assert.equal(ask(gate, 0n, { reserve: 3 }).reason, "quota");
  assert.equal(left(gate, 0n), 2);
  settle(gate, permit, 1, 0n);
  assert.equal(left(gate, 0n), 9);
  assert.equal(ask(gate, 0n, { reserve: 11 }).reason, "never");
});

test("a reserve is not remembered for the next call", () => {
  const gate = gateOfUnits(10);
  take(gate, 0n, 4);
  const next = gate.tryAdmit("default", { caller: "bob" });
  assert.deepEqual([next.remaining, next.permit.settle()], [10, "ok"]);
  assert.equal(gate.peek("default", { caller: "bob" })[0].remaining, 10);
});

for (const [outcome, used, remaining] of [
  ["success", 3, 7],
  ["failure", 3, 7],
  ["abandoned", 3, 7],
  ["abandoned", 0, 4],
  ["success", 0, 10],
  ["cancelled", 3, 10],
]) {
  test(`${outcome} with ${used} used is charged as it should be`, () => {
    const gate = gateOfUnits(10);
    settle(gate, take(gate, 0n, 6), used, 0n, outcome);
    assert.equal(left(gate, 0n), remaining);
  });
}

test("a client that goes away pays what was reserved or said", async () => {
  const gate = gateOfUnits(100);
  const controller = new AbortController();
  controller.abort();
  const call = { caller: "alice", reserve: 40, nowNs: 0, unixNs: 0, signal: controller.signal };
  await gate.run("default", call, () => {});
  assert.equal(left(gate, 0n), 60);
  await gate.run("default", call, (permit) => permit.used(7));
  assert.equal(left(gate, 0n), 53);
  await gate.run("default", call, (permit) => permit.used(0));
  assert.equal(left(gate, 0n), 13, "abandoned, not a success that used nothing");
});

test("two calls of one user around midnight are charged to their own days", () => {
  const gate = gateOfUnits(10, { tz: "Asia/Shanghai" });
  const [late, early] = [at("2026-05-01T23:59:59+08:00"), at("2026-05-02T00:00:01+08:00")];
  const ofYesterday = take(gate, late, 10);
  assert.equal(ask(gate, late).resetAfterNs, SECOND_NS);
  const ofToday = take(gate, early, 4);
  assert.equal(settle(gate, ofYesterday, 9, early + SECOND_NS), "ok");
  assert.equal(left(gate, early), 6);
  assert.equal(settle(gate, ofToday, 5, early + SECOND_NS), "ok");
  assert.equal(left(gate, early), 5);
});

test("a settlement after midnight does not touch the new day", () => {
  const gate = gateOfUnits(10, { tz: "America/New_York" });
  const [late, early] = [at("2026-05-01T23:59:59-04:00"), at("2026-05-02T00:00:00-04:00")];
  const permit = take(gate, late, 10);
  assert.equal(settle(gate, permit, 500, early), "ok");
  assert.equal(left(gate, early), 10);
  assert.ok(ask(gate, early, { reserve: 10 }).admitted);
});

// Where the clock is moved at midnight itself, a day begins at 01:00, or at the first midnight.
for (const [zone, start, end, hours] of [
  ["Europe/Berlin", "2026-03-28T00:00+01:00", "2026-03-29T00:00+01:00", 24],
  ["Europe/Berlin", "2026-03-29T00:00+01:00", "2026-03-30T00:00+02:00", 23],
  ["Europe/Berlin", "2026-03-30T00:00+02:00", "2026-03-31T00:00+02:00", 24],
  ["Europe/Berlin", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00", 25],
  ["Europe/Berlin", "2026-10-26T00:00+01:00", "2026-10-27T00:00+01:00", 24],
  ["America/New_York", "2026-03-08T00:00-05:00", "2026-03-09T00:00-04:00", 23],
  ["America/New_York", "2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00", 25],
  ["Asia/Kathmandu", "2026-07-01T00:00+05:45", "2026-07-02T00:00+05:45", 24],
  ["Africa/Cairo", "2026-04-24T01:00+03:00", "2026-04-25T00:00+03:00", 23],
  ["Africa/Cairo", "2026-10-29T00:00+03:00", "2026-10-30T00:00+02:00", 25],
  ["America/Havana", "2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00", 25],
]) {
  test(`in ${zone} the day from ${start} has ${hours} hours`, () => {
    const gate = gateOfUnits(10, { tz: zone });
    const [startNs, endNs] = [at(start), at(end)];
    assert.equal(endNs - startNs, BigInt(hours) * HOUR_NS);
    const before = ask(gate, startNs - 1n);
    assert.deepEqual([before.remaining, before.resetAfterNs], [10, 1n]);
    const first = ask(gate, startNs, { reserve: 10 });
    assert.deepEqual([first.admitted, first.resetAfterNs], [true, endNs - startNs]);
    for (let t = startNs; t < endNs; t += HOUR_NS) assert.equal(ask(gate, t).retryAfterNs, endNs - t);
    assert.equal(ask(gate, endNs - 1n).retryAfterNs, 1n);
    assert.equal(ask(gate, endNs).remaining, 10);
  });
}

// What clocks on walls show just before and at the end of every day, by another way of asking.
for (const zone of ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia"]) {
  test(`every day of a year ends when clocks in ${zone} show another date`, () => {
    const gate = gateOfUnits(10, { tz: zone });
    const dates = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short" });
    const dateAt = (ns) => dates.format(Number(ns / 1_000_000n));
    let noon = at("2026-01-01T12:00Z");
    for (let n = 0; n < 365; n++) {
      const end = noon + ask(gate, noon, { caller: `${n % 3}` }).resetAfterNs;
      assert.equal(dateAt(end - 1n), dateAt(noon));
      assert.notEqual(dateAt(end), dateAt(noon));
      assert.equal(ask(gate, end - 1n, { caller: `late ${n % 3}` }).resetAfterNs, 1n);
      noon = end + 12n * HOUR_NS;
    }
  });
}

test("a clock that jumps far ahead finds the right day", () => {
  const gate = gateOfUnits(10, { tz: "Europe/Berlin" });
  for (const [text, hours] of [["2026-03-29T00:00+01:00", 23n], ["2026-10-25T00:00+02:00", 25n]]) {
    assert.equal(ask(gate, at(text)).resetAfterNs, hours * HOUR_NS);
  }
});

test("a clock that steps back over midnight mints nothing", () => {
  const gate = gateOfUnits(10, { tz: "Europe/Berlin" });
  const midnight = at("2026-05-02T00:00+02:00");
  assert.ok(ask(gate, midnight + SECOND_NS, { reserve: 10 }).admitted);
  assert.equal(ask(gate, midnight - SECOND_NS).reason, "quota");
  assert.equal(ask(gate, midnight + SECOND_NS).reason, "quota");
  assert.equal(ask(gate, midnight - SECOND_NS, { caller: "bob" }).resetAfterNs, SECOND_NS);
});

test("by the system's clock a day ends at the next midnight too", () => {
  for (const [zone, offsetMs] of [["Asia/Tokyo", 9 * 3_600_000], ["UTC", 0]]) {
    const gate = gateOfUnits(10, { tz: zone });
    const permit = gate.admit("default", { caller: "alice" });
    permit.used(10);
    permit.settle();
    const before = Date.now();
    const refused = throws(() => gate.admit("default", { caller: "alice" }), Refused);
    const expectedMs = 86_400_000 - ((before + offsetMs) % 86_400_000);
    assert.ok(Math.abs(Number(refused.retryAfterNs / 1_000_000n) - expectedMs) < 60_000);
  }
});

test("several zones in one gate do not mix", () => {
  const zones = { berlin: "Europe/Berlin", tokyo: "Asia/Tokyo", utc: null };
  const names = Object.keys(zones);
  const gate = new Gate({
    limits: Object.fromEntries(names.map((name) => [name, new Quota(10, { tz: zones[name] })])),
    policies: Object.fromEntries(names.map((name) => [name, [[name, "caller"]]])),
  });
  const noon = at("2026-05-01T12:00Z");
  const resets = (caller, unixNs, policies) =>
    policies.map((policy) => gate.tryAdmit(policy, { caller, nowNs: 0, unixNs }).resetAfterNs / HOUR_NS);
  assert.deepEqual(resets("alice", noon, ["berlin", "tokyo", "utc", "berlin"]), [10n, 3n, 12n, 10n]);
  assert.deepEqual(resets("bob", noon + 11n * HOUR_NS, ["tokyo", "berlin", "utc"]), [16n, 23n, 1n]);
});

test("windows of any length begin at their anchor", () => {
  const gate = gateOfUnits(10, { per: "1h", anchorUnixS: -600 });
  assert.equal(ask(gate, 0n).resetAfterNs, 50n * 60n * SECOND_NS);
  assert.equal(ask(gateOfUnits(10, { per: 7n * SECOND_NS }), 8n * SECOND_NS).resetAfterNs, 6n * SECOND_NS);
});

test("a time of ours is both clocks where there is a quota", () => {
  const gate = gateOfUnits(10);
  const permit = take(gate, 0n);
  for (const call of [
    () => gate.tryAdmit("default", { caller: "alice", nowNs: 0 }),
    () => gate.tryAdmitMany([{ policy: "default", caller: "alice" }], { nowNs: 0 }),
    () => gate.admit("default", { caller: "alice", nowNs: 0 }),
    () => gate.peek("default", { caller: "alice", nowNs: 0 }),
    () => gate.settle(permit, { nowNs: 0 }),
    () => gate.seed("tokens", "alice", 1, { nowNs: 0 }),
    () => gate.stats({ nowNs: 0 }),
    () => gate.metrics({ nowNs: 0 }),
  ]) {
    throws(call, CallError, { message: /^unixNs is missing: this gate has a quota/, field: "unixNs" });
  }
  assert.equal(settle(gate, permit, 0, 0n), "ok");
});

test("a limit that becomes a quota asks for both clocks from then on", () => {
  const gate = new Gate({ limits: { tokens: OFF }, policies: { default: [["tokens", "caller"]] } });
  assert.ok(gate.tryAdmit("default", { caller: "alice", nowNs: 0 }).admitted);
  gate.reconfigure("tokens", new Quota(10, { tz: "Asia/Tokyo" }), { nowNs: 0 });
  throws(() => gate.tryAdmit("default", { caller: "alice", nowNs: 0 }), CallError, { message: /unixNs is missing/ });
  assert.equal(ask(gate, 0n).resetAfterNs, 15n * HOUR_NS);
});

test("a changed quota keeps what was used", () => {
  const tz = "Asia/Tokyo";
  const gate = gateOfUnits(10, { tz });
  const noon = at("2026-05-01T12:00+09:00");
  const become = (limit) => gate.reconfigure("tokens", limit, { nowNs: 0 });
  settle(gate, take(gate, noon), 8, noon);
  become(new Quota(20, { tz }));
  assert.equal(left(gate, noon), 12);
  become(new Quota(5, { tz }));
  assert.equal(ask(gate, noon).reason, "quota");
  become(OFF);
  assert.ok(ask(gate, noon, { reserve: 1000 }).admitted);
  become(new Quota(10, { tz }));
  assert.equal(left(gate, noon), 2);
  assert.equal(left(gate, noon + 12n * HOUR_NS), 10);
});

test("another zone is followed from its next midnight on", () => {
  const gate = gateOfUnits(10, { tz: "Asia/Tokyo" });
  ask(gate, at("2026-05-01T12:00+09:00"));
  gate.reconfigure("tokens", new Quota(10, { tz: "Europe/Berlin" }), { nowNs: 0 });
  const midnight = at("2026-05-02T00:00+02:00");
  assert.equal(ask(gate, midnight, { caller: "bob" }).resetAfterNs, DAY_NS);
  assert.equal(ask(gate, midnight + DAY_NS).resetAfterNs, DAY_NS);
});

test("a zone that another has changed to a period stops nobody", () => {
  const gate = gateOfUnits(10, { tz: "Asia/Tokyo" });
  const other = Gate.attach(gate.handle());
  other.reconfigure("tokens", new Quota(10, { per: "1h" }), { nowNs: 0 });
  assert.equal(ask(gate, 0n).resetAfterNs, HOUR_NS);
  assert.equal(ask(gate, DAY_NS).resetAfterNs, HOUR_NS);
});

test("a seed tells what was used once a window", () => {
  const gate = gateOfUnits(10, { mustSeed: true });
  const seed = (used, unixNs) => gate.seed("tokens", "alice", used, { nowNs: 0, unixNs });
  const refused = ask(gate, 0n);
  assert.deepEqual([refused.reason, refused.retryAfterNs], ["unseeded", 0n]);
  const text = "refused by limit 'tokens' (unseeded): it waits to be told what was used before";
  throws(() => gate.admit("default", { caller: "alice" }), Refused, { message: text });
  assert.deepEqual([seed(7, 0n), seed(7, 0n), left(gate, 0n)], [true, false, 3]);
  assert.equal(ask(gate, 0n, { caller: "bob" }).reason, "unseeded");
  assert.equal(ask(gate, DAY_NS).reason, "unseeded");
  assert.deepEqual([seed(0n, DAY_NS), left(gate, DAY_NS)], [true, 10]);
});

test("a seed adds to what was used since the restart", () => {
  const gate = gateOfUnits(10);
  settle(gate, take(gate, 0n), 2, 0n);
  assert.equal(gate.seed("tokens", gate.key("alice"), 5, { nowNs: 0, unixNs: 0 }), true);
  assert.equal(left(gate, 0n), 3);
});

test("a seed is of the day in the zone, also where it is the first to ask for that day", () => {
  const gate = gateOfUnits(10, { tz: "Asia/Shanghai", mustSeed: true });
  const late = at("2026-05-01T23:59:59+08:00");
  assert.equal(gate.seed("tokens", "alice", 10, { nowNs: 0, unixNs: late }), true);
  assert.equal(ask(gate, late).retryAfterNs, SECOND_NS);
  assert.equal(ask(gate, late + SECOND_NS).reason, "unseeded");
});

test("a seed is of its quota, also where the day of another is set first", () => {
  const gate = new Gate({
    limits: { zoned: new Quota(10, { tz: "Asia/Tokyo" }), plain: new Quota(10) },
    policies: { zoned: [["zoned", "caller"]], plain: [["plain", "caller"]] },
  });
  assert.equal(gate.seed("plain", "alice", 4, { nowNs: 0, unixNs: 0 }), true);
  const peek = (policy) => gate.peek(policy, { caller: "alice", nowNs: 0, unixNs: 0 })[0].remaining;
  assert.deepEqual(["zoned", "plain"].map(peek), [10, 6]);
});

test("a seed by scope fills in the state of that scope", () => {
  const gate = new Gate({
    limits: { tokens: new Quota(10), rate: new RateLimit(1) },
    policies: { own: [["tokens", "caller"]], all: [["tokens", "shared"]], pair: [["tokens", "caller_tool"]] },
  });
  const missing = /scope is missing: .*'caller', 'shared', 'caller_tool'/;
  throws(() => gate.seed("tokens", "alice", 1), CallError, { message: missing, field: "scope" });
  throws(() => gate.seed("tokens", "alice", 1, { scope: "tool" }), CallError, { message: /scope can't be 'tool'/ });
  assert.ok(gate.seed("tokens", "alice", 1, { scope: "caller" }));
  assert.ok(gate.seed("tokens", null, 2, { scope: "shared" }));
  assert.ok(gate.seed("tokens", "alice", 3, { tool: "search", scope: "caller_tool" }));
  const peek = (policy) => gate.peek(policy, { caller: "alice", tool: "search" })[0].remaining;
  assert.deepEqual(["own", "all", "pair"].map(peek), [9, 8, 7]);
});

test("a bad seed is an error that names the argument", () => {
  const gate = new Gate({
    limits: { tokens: new Quota(10), rate: new RateLimit(1), spare: new Quota(10) },
    policies: { default: [["tokens", "caller"], ["rate", "caller"]] },
    capacity: 1,
  });
  for (const [limit, caller, used, message] of [
    ["token", "alice", 1, /limit: limit 'token' is unknown; this gate has 'tokens', 'rate'/],
    ["rate", "alice", 1, /limit: 'rate' is no Quota; of these this gate has 'tokens'/],
    ["spare", "alice", 1, /limit 'spare' is in no policy/],
    ["tokens", null, 1, /caller is absent/],
    ["tokens", "", 1, /caller: an empty identity/],
    ["tokens", "alice", -1, /used must be 0 to 2\^64-1 units/],
    ["tokens", "alice", 2n ** 64n, /used must be 0 to 2\^64-1 units/],
    ["tokens", "alice", 1.5, /used must be 0 to 2\^64-1 units/],
  ]) {
    throws(() => gate.seed(limit, caller, used), CallError, { message });
  }
  throws(() => gate.seed(null, "alice", 1), TypeError, { message: /limit must be a string, not null/ });
  const flood = () => Array.from({ length: 1000 }, (_, n) => gate.seed("tokens", `user ${n}`, 1));
  throws(flood, CallError, { message: /no place for the state of a new caller/ });
});

test("the calendar is looked at once a day, and not for every call", (t) => {
  const gate = gateOfUnits(10, { tz: "Asia/Tokyo" });
  const spy = t.mock.method(Intl.DateTimeFormat.prototype, "formatToParts");
  const midnight = at("2026-05-01T00:00+09:00");
  ask(gate, midnight + SECOND_NS);
  const once = spy.mock.callCount();
  for (let minute = 1n; minute < 3n * 24n * 60n; minute++) ask(gate, midnight + minute * 60n * SECOND_NS);
  assert.ok(once > 0);
  assert.equal(spy.mock.callCount(), 4 * once, "the day that it is, and the three that begin");
});
