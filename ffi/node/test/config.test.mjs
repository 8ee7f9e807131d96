// What a gate is made from: every bad configuration names its field and what is allowed.

import assert from "node:assert/strict";
import test from "node:test";
import { CallgateError, ConcurrencyLimit, ConfigError, Gate, OFF, Quota, RateLimit } from "callgate";
import { gateOf, throws } from "./support.mjs";

const LIMIT = new RateLimit(30, { burst: 60 });
const MS = 1_000_000;
const YEARS_74 = 74n * 365n * 86_400n * 10n ** 9n;

const gate = (options = {}) =>
  new Gate({ limits: { rate: LIMIT }, policies: { default: [["rate", "caller"]] }, ...options });
const policy = (...rules) => () => gate({ policies: { broken: rules } });
const places = (count = 1, options = {}) => new ConcurrencyLimit(count, options);
const many = (count, make) => Object.fromEntries(Array.from({ length: count }, (_, n) => make(n)));
const NINE_LIMITS = many(9, (n) => [`l${n}`, LIMIT]);

const BAD = [
  ["zero tokens", () => new RateLimit(0), "count", "1 to 2^64-1 tokens"],
  ["negative tokens", () => new RateLimit(-1), "count", "1 to 2^64-1 tokens"],
  ["too many tokens", () => new RateLimit(2n ** 64n, { burst: 1 }), "count", "1 to 2^64-1 tokens"],
  ["half a token", () => new RateLimit(1.5), "count", "a whole number"],
  ["no number of tokens", () => new RateLimit(Number.NaN), "count", "a whole number"],
  ["inexact tokens", () => new RateLimit(2 ** 53), "count", "up to 2^53-1, or a bigint"],
  ["zero period", () => new RateLimit(1, { per: 0 }), "periodNs", "1 to 2^64-1 ns"],
  ["zero seconds", () => new RateLimit(1, { per: "0s" }), "periodNs", "1 to 2^64-1 ns"],
  ["negative period", () => new RateLimit(1, { per: -1n }), "periodNs", "1 to 2^64-1 ns"],
  ["endless period", () => new RateLimit(1, { per: "9999999w" }), "periodNs", "1 to 2^64-1 ns"],
  ["no duration", () => new RateLimit(1, { per: "soon" }), "periodNs", "'250ms'"],
  ["zero burst", () => new RateLimit(1, { burst: 0 }), "burst", "1 or more tokens"],
  ["negative burst", () => new RateLimit(1, { burst: -5 }), "burst", "1 or more tokens"],
  ["great burst", () => new RateLimit(1, { burst: 2n ** 64n }), "burst", "1 or more tokens"],
  ["slow bucket", () => new RateLimit(1, { per: YEARS_74 }), "burst", "at most 2^61 ns"],
  ["no places", () => places(0), "maxInFlight", "1 to 4095 calls"],
  ["negative places", () => places(-1), "maxInFlight", "1 to 4095 calls"],
  ["4096 places", () => places(4096), "maxInFlight", "1 to 4095 calls"],
  ["2^32+1 places", () => places(2 ** 32 + 1), "maxInFlight", "1 to 4095 calls"],
  ["short lease", () => places(1, { lease: "999us" }), "leaseNs", "1 ms to 2^61 ns"],
  ["long lease", () => places(1, { lease: 2n ** 61n + 1n }), "leaseNs", "1 ms to 2^61 ns"],
  ["no lease", () => places(1, { lease: "soon" }), "leaseNs", "'250ms'"],
  ["rejections", () => places(1, { rejectTrip: 64, cooldown: MS }), "rejectTrip", "0 to 63"],
  ["failures", () => places(1, { failureTrip: 64, cooldown: MS }), "failureTrip", "0 to 63"],
  ["less failures", () => places(1, { failureTrip: -1 }), "failureTrip", "0 to 63"],
  ["no cooldown", () => places(1, { rejectTrip: 1 }), "cooldownNs", "1 ms or more where"],
  ["long cooldown", () => places(1, { lease: MS, rejectTrip: 1, cooldown: 50_001 * MS }), "cooldownNs", "50,000 leases"],
  ["probes", () => places(1, { halfOpenProbes: 16 }), "halfOpenProbes", "0 to 15"],
  ["no units", () => new Quota(0), "limit", "1 to 2^47 units"],
  ["negative units", () => new Quota(-50_000), "limit", "1 to 2^47 units"],
  ["too many units", () => new Quota(2 ** 47 + 1), "limit", "1 to 2^47 units"],
  ["no window", () => new Quota(1, { per: 0 }), "periodS", "1 to 2^33 whole seconds"],
  ["half a second", () => new Quota(1, { per: "500ms" }), "periodS", "1 to 2^33 whole seconds"],
  ["endless window", () => new Quota(1, { per: (2n ** 33n + 1n) * 10n ** 9n }), "periodS", "1 to 2^33"],
  ["a week in a zone", () => new Quota(1, { per: "1w", tz: "UTC" }), "periodS", "must be '1d'"],
  ["unknown zone", () => new Quota(1, { tz: "Europe/Atlantis" }), "tz", "IANA name"],
  ["empty zone", () => new Quota(1, { tz: "" }), "tz", "IANA name"],
  ["an offset as zone", () => new Quota(1, { tz: "+08:00" }), "tz", "IANA name"],
  ["an anchor in a zone", () => new Quota(1, { tz: "UTC", anchorUnixS: 1 }), "anchorUnixS", "must be 0 where there is a tz"],
  ["a far anchor", () => new Quota(1, { anchorUnixS: 2n ** 63n }), "anchorUnixS", "2^63-1 s"],
  ["no capacity", () => gate({ capacity: 0 }), "capacity", "1 to 67108864"],
  ["negative capacity", () => gate({ capacity: -1 }), "capacity", "1 to 67108864"],
  ["great capacity", () => gate({ capacity: 2 ** 26 + 1 }), "capacity", "1 to 67108864"],
  ["huge capacity", () => gate({ capacity: 2n ** 70n }), "capacity", "1 to 67108864"],
  ["32 bits and one", () => gate({ capacity: 2 ** 32 + 1 }), "capacity", "1 to 67108864"],
  ["short secret", () => gate({ secret: new Uint8Array(15).fill(1) }), "secret", "16 random bytes"],
  ["long secret", () => gate({ secret: new Uint8Array(17).fill(1) }), "secret", "16 random bytes"],
  ["zero secret", () => gate({ secret: new Uint8Array(16) }), "secret", "not all zero"],
  ["no limits", () => gate({ limits: {}, policies: { p: [] } }), "limits", "1 to 64"],
  ["65 limits", () => gate({ limits: many(65, (n) => [`l${n}`, LIMIT]), policies: { p: [["l0", "tool"]] } }), "limits", "1 to 64"],
  ["no policies", () => gate({ policies: {} }), "policies", "1 to 64"],
  ["65 policies", () => gate({ policies: many(65, (n) => [`p${n}`, [["rate", "tool"]]]) }), "policies", "1 to 64"],
  ["empty limit name", () => gate({ limits: { "": LIMIT } }), "limits", "1 or more characters"],
  ["empty policy name", () => gate({ policies: { "": [["rate", "tool"]] } }), "policies", "1 or more characters"],
  ["half a character", () => gate({ policies: { "\ud800": [["rate", "tool"]] } }), "policies", "UTF-8"],
  ["a name with a NUL", () => gate({ limits: { "a\0b": LIMIT } }), "limits", "NUL"],
];

for (const [name, make, field, allowed] of BAD) {
  test(`a bad configuration names the field and what is allowed: ${name}`, () => {
    const error = throws(make, ConfigError, { field, policy: null });
    assert.ok(error.message.includes(allowed), error.message);
    assert.ok(error instanceof CallgateError && error.name === "ConfigError");
  });
}

const BAD_POLICIES = [
  ["empty policy", policy(), "rules", "1 to 8"],
  ["unknown limit", policy(["rates", "caller"]), "limit", "'rate'"],
  ["unknown scope", policy(["rate", "user"]), "scope", "'caller_tool'"],
  ["scope in capitals", policy(["rate", "CALLER"]), "scope", "'caller'"],
  ["a rule twice", policy(["rate", "tool"], ["rate", "caller"], ["rate", "tool"]), "rules", "only once"],
  ["nine limits", () => gate({ limits: NINE_LIMITS, policies: { broken: Object.keys(NINE_LIMITS).map((n) => [n, "caller"]) } }), "rules", "1 to 8"],
];

for (const [name, make, field, allowed] of BAD_POLICIES) {
  test(`a bad policy is named: ${name}`, () => {
    const error = throws(make, ConfigError, { field, policy: "broken" });
    assert.ok(error.message.includes(allowed) && error.message.includes("'broken'"), error.message);
  });
}

test("the engine has the last word on a limit, and names it", () => {
  const broken = Object.assign(Object.create(RateLimit.prototype), { count: 0n, periodNs: 1n, burst: 1n });
  const error = throws(() => gate({ limits: { rate: LIMIT, b: broken } }), ConfigError, { limit: "b", field: "count" });
  assert.match(error.message, /^limit 'b': count must be 1 to/);
});

const WRONG_TYPES = [
  ["count: string", () => new RateLimit("30"), /count must be a whole number .*, not a string/],
  ["count: boolean", () => new RateLimit(true), /count must be a whole number .*, not a boolean/],
  ["count: nothing", () => new RateLimit(), /count must be a whole number .*, not undefined/],
  ["options: null", () => new RateLimit(1, null), /the options must be an object, not null/],
  ["per: boolean", () => new RateLimit(1, { per: true }), /per must be a string such as/],
  ["per: null", () => new RateLimit(1, { per: null }), /per must be a string such as/],
  ["burst: object", () => new RateLimit(1, { burst: {} }), /burst must be a whole number .*, not an object/],
  ["places: array", () => places([3]), /maxInFlight must be a whole number .*, not an array/],
  ["lease: boolean", () => places(1, { lease: false }), /lease must be a string such as '250ms' or whole/],
  ["trip: boolean", () => places(1, { rejectTrip: true }), /rejectTrip must be a whole number/],
  ["probes: string", () => places(1, { halfOpenProbes: "1" }), /halfOpenProbes must be a whole number/],
  ["units: string", () => new Quota("1"), /limit must be a whole number/],
  ["tz: number", () => new Quota(1, { tz: 8 }), /tz must be an IANA name .*, not a number/],
  ["anchor: string", () => new Quota(1, { anchorUnixS: "0" }), /anchorUnixS must be a whole number/],
  ["mustSeed: number", () => new Quota(1, { mustSeed: 1 }), /mustSeed must be a boolean, not a number/],
  ["no options", () => new Gate(), /options of a Gate must be an object, not undefined/],
  ["capacity: string", () => gate({ capacity: "10" }), /capacity must be a whole number/],
  ["secret: string", () => gate({ secret: "x".repeat(16) }), /secret must be 16 bytes, a Uint8Array, not a string/],
  ["limits: array", () => gate({ limits: [LIMIT] }), /limits must be an object or a Map of names, not an array/],
  ["limits: number as name", () => gate({ limits: new Map([[1, LIMIT]]) }), /limits: a name must be a string, not a number/],
  ["limit: number", () => gate({ limits: { rate: 30 } }), /limits\['rate'\] must be a RateLimit, /],
  ["policies: null", () => gate({ policies: null }), /policies must be an object or a Map of names, not null/],
  ["policy: string", () => gate({ policies: { p: "rate" } }), /policies\['p'\] must be an array/],
  ["rule: string", policy("ab"), /policies\['broken'\]: a rule must be a pair/],
  ["rule: one", policy(["rate"]), /policies\['broken'\]: a rule must be a pair/],
  ["rule: three", policy(["rate", "tool", 1]), /policies\['broken'\]: a rule must be a pair/],
  ["rule: number", policy([0, "tool"]), /policies\['broken'\]: a rule must be a pair of strings/],
];

for (const [name, make, message] of WRONG_TYPES) {
  test(`a wrong type is a TypeError that names the argument: ${name}`, () => {
    throws(make, TypeError, { message });
  });
}

test("the bounds themselves are allowed", () => {
  new RateLimit(2n ** 64n - 1n, { per: 1, burst: 2n ** 64n - 1n });
  new RateLimit(1, { per: 2n ** 61n, burst: 1 });
  places(1, { lease: "1ms" });
  places(4095, { lease: 2n ** 61n, rejectTrip: 63, failureTrip: 63, cooldown: 2n ** 61n, halfOpenProbes: 15 });
  places(1, { lease: MS, rejectTrip: 1, cooldown: 50_000 * MS });
  new Quota(1, { per: "1s", anchorUnixS: -(2n ** 63n) });
  new Quota(2 ** 47, { per: 2n ** 33n * 10n ** 9n, anchorUnixS: 2n ** 63n - 1n });
  new Quota(1, { tz: "Pacific/Kiritimati", mustSeed: true });
  const limits = many(64, (n) => [`l${n}`, LIMIT]);
  const eight = Array.from({ length: 8 }, (_, n) => [`l${n}`, "caller"]);
  const wide = gate({ limits, policies: many(64, (n) => [`p${n}`, eight]), capacity: 1 });
  assert.equal(wide.tryAdmit("p63", { caller: "alice", nowNs: 0 }).remaining, 59);
  assert.deepEqual(wide.peek("p63", { caller: "alice", nowNs: 0 }).map((r) => r.limitName), eight.map(([n]) => n));
});

test("limits keep what they were made from, and can't be changed", () => {
  const limit = new RateLimit(30, { per: "250ms" });
  assert.deepEqual({ ...limit }, { count: 30, periodNs: 250_000_000n, burst: 30 });
  assert.throws(() => (limit.count = 1), TypeError);
  const guard = places(3, { lease: "2h", rejectTrip: 5, cooldown: "30s", halfOpenProbes: 1 });
  const guarded = { maxInFlight: 3, leaseNs: 7200n * 10n ** 9n, rejectTrip: 5, failureTrip: 0 };
  assert.deepEqual({ ...guard }, { ...guarded, cooldownNs: 30n * 10n ** 9n, halfOpenProbes: 1 });
  const quota = new Quota(50_000, { tz: "Asia/Shanghai" });
  const day = { periodS: 86_400, anchorUnixS: 0, mustSeed: false };
  assert.deepEqual({ ...quota }, { limit: 50_000, ...day, tz: "Asia/Shanghai" });
  assert.equal(new RateLimit(2n ** 60n, { burst: 1 }).count, 2n ** 60n, "above 2^53-1 it stays exact");
});

for (const [text, ns] of [
  ["1ns", 1n],
  ["2us", 2_000n],
  ["250ms", 250_000_000n],
  ["1s", 10n ** 9n],
  ["5 m", 300n * 10n ** 9n],
  ["2h", 7_200n * 10n ** 9n],
  ["1d", 86_400n * 10n ** 9n],
  ["1w", 604_800n * 10n ** 9n],
]) {
  test(`durations have units: ${text}`, () => {
    assert.equal(new RateLimit(1, { per: text }).periodNs, ns);
  });
}

for (const text of ["", "1", "s", "1.5s", "-1s", "1S", "1 sec", "1h30m", " 1s", "1s\n", "\u0661s", "1e3s"]) {
  test(`what is not a duration is refused: ${JSON.stringify(text)}`, () => {
    throws(() => new RateLimit(1, { per: text }), ConfigError, { message: /is not a duration/, field: "periodNs" });
  });
}

test("what a gate was made from can be read and not written", () => {
  const made = gateOf({ capacity: 7 });
  assert.deepEqual(made.limits, new Map([["rate", LIMIT]]));
  assert.deepEqual(made.policies, new Map([["default", [["rate", "caller"]]]]));
  assert.equal(made.capacity, 7);
  made.limits.set("rate", OFF);
  made.policies.clear();
  assert.equal(made.limits.get("rate") instanceof RateLimit, true);
  assert.equal(made.policies.size, 1);
  assert.throws(() => made.policies.get("default").push(["rate", "tool"]), TypeError);
  assert.throws(() => (made.capacity = 8), TypeError);
});

test("what a policy was made from may change afterwards", () => {
  const rules = [["rate", "caller"]];
  const made = gate({ policies: { default: rules } });
  rules[0][1] = "shared";
  rules.length = 0;
  assert.deepEqual(made.policies.get("default"), [["rate", "caller"]]);
});
