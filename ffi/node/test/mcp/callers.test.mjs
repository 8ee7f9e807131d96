// Who is charged.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConfigError, Gate, RateLimit } from "../../dist/index.js";
import { Caller, callerOfRequest, tokenIdentity } from "../../dist/mcp/index.js";
import { CallerResolver } from "../../dist/mcp/callers.js";
import { makeGate } from "./support.mjs";

const facts = (authorization, authInfo) => ({
  header: (name) => (name === "authorization" ? authorization : undefined),
  authInfo,
});
const auth = (clientId = "client", extra = undefined) => ({ token: "t0ken", clientId, scopes: [], extra });
const anonymous = new Caller("anonymous");
const gateWith = (policies) => new Gate({ limits: { x: new RateLimit(1, { per: "1h" }) }, policies, capacity: 16 });
const bearer = (token) => new Caller("forwarded-bearer", Buffer.from(`\0bearer\0${token}`));

test("a verified token is charged under authenticated", () => {
  assert.deepEqual(callerOfRequest(facts("Bearer t0ken", auth())), new Caller("authenticated", tokenIdentity(auth())));
});

test("the identity of a token does not hold the token", () => assert.ok(!tokenIdentity(auth()).includes("t0ken")));

test("two clients of one subject are one caller, and one subject at two issuers is two", () => {
  const identity = (client, iss) => tokenIdentity(auth(client, { sub: "ann", iss }));
  assert.equal(identity("a", "x"), identity("b", "x"));
  assert.notEqual(identity("a", "x"), identity("a", "y"));
  assert.notEqual(identity("a"), tokenIdentity(auth("a", { sub: "bob" })));
});

for (const clientId of ["ann", 'subject","ann', '["subject","ann"]', 'token:[null,"subject","ann"]', "\0bearer\0x"]) {
  test(`the client ${JSON.stringify(clientId)} can't be spelled to equal a subject`, () => {
    assert.notEqual(tokenIdentity(auth(clientId)), tokenIdentity(auth("x", { sub: "ann" })));
  });
}

for (const clientId of ["", null, 7, undefined]) {
  test(`a token of the client ${JSON.stringify(clientId)} is no identity`, () => {
    assert.equal(tokenIdentity({ clientId }), undefined);
  });
}

test("an unverified bearer can't be spelled like a verified caller", () => {
  const victim = tokenIdentity(auth());
  assert.notEqual(callerOfRequest(facts(`Bearer ${victim}`)).identity.toString(), victim);
});

for (const field of ["Bearer abc", "bearer abc", "BEARER abc", "Bearer  abc", " Bearer abc ", "Bearer abc, Bearer other"]) {
  test(`the bearer of ${JSON.stringify(field)} is the same bearer`, () => {
    assert.deepEqual(callerOfRequest(facts(field)), bearer("abc"));
  });
}

for (const field of [undefined, "", "Bearer", "Bearer ", "Basic dTpw", "abc", "Basic dTpw, Bearer abc"]) {
  test(`${JSON.stringify(field)} is anonymous`, () => assert.deepEqual(callerOfRequest(facts(field)), anonymous));
}

test("a transport without HTTP is anonymous", () => assert.deepEqual(callerOfRequest(undefined), anonymous));

test("whom a middleware has verified is taken as he is", () => {
  const caller = new Caller("polling", "ann");
  assert.equal(callerOfRequest({ ...facts("Bearer abc", auth()), caller }), caller);
});

for (const answer of [null, undefined, "", new Uint8Array()]) {
  test(`no identity (${answer === null ? "null" : typeof answer}) is anonymous, never an empty key`, async () => {
    const resolver = new CallerResolver(makeGate(), () => answer);
    assert.deepEqual(await resolver.resolve(null, facts("Bearer abc")), anonymous);
  });
}

for (const identity of [null, undefined, "", new Uint8Array()]) {
  const what = identity === null ? "null" : typeof identity;
  test(`a caller without an identity (${what}) is anonymous where a policy is kept by caller`, async () => {
    const gate = gateWith({ anonymous: [["x", "shared"]], authenticated: [["x", "caller"]], polling: [["x", "tool"]] });
    const resolved = (policy) => new CallerResolver(gate, () => new Caller(policy, identity)).resolve(null, undefined);
    assert.deepEqual(await resolved("authenticated"), anonymous);
    assert.deepEqual(await resolved("polling"), new Caller("polling"));
  });
}

test("an identity with half of a character is one like others", async () => {
  const gate = makeGate();
  const { policy, identity } = await new CallerResolver(gate, () => "\ud800ann").resolve(null, undefined);
  assert.equal(gate.tryAdmit(policy, { caller: identity }).admitted, true);
});

test("a function answers an identity, a key or a caller, and may be async", async () => {
  const gate = makeGate();
  for (const identity of ["user:1", Buffer.from("user:1"), gate.key("user:1")]) {
    const resolver = new CallerResolver(gate, async () => identity);
    const caller = await resolver.resolve(null, undefined);
    assert.equal(caller.policy, "authenticated");
    assert.equal(caller.identity, identity);
  }
  const chosen = new Caller("forwarded-bearer", "x");
  assert.equal(await new CallerResolver(gate, () => chosen).resolve(null, undefined), chosen);
  assert.equal((await new CallerResolver(gate, (source) => `user:${source}`).resolve(7, undefined)).identity, "user:7");
});

for (const answer of [7, true, ["user:1"], {}]) {
  test(`the answer ${JSON.stringify(answer)} is an error`, async () => {
    await assert.rejects(new CallerResolver(makeGate(), () => answer).resolve(null, undefined), TypeError);
  });
}

test("without a policy for it a forwarded bearer is anonymous", async () => {
  const gate = gateWith({ anonymous: [["x", "shared"]], authenticated: [["x", "caller"]] });
  assert.deepEqual(await new CallerResolver(gate).resolve(null, facts("Bearer abc")), anonymous);
});

test("a gate that lacks a policy is refused at start", () => {
  const needs = (name) => (error) => error instanceof ConfigError && error.message.includes(`'${name}'`);
  assert.throws(() => new CallerResolver(gateWith({ authenticated: [["x", "caller"]] })), needs("anonymous"));
  const gate = gateWith({ anonymous: [["x", "shared"]] });
  assert.throws(() => new CallerResolver(gate), needs("authenticated"));
  new CallerResolver(gate, () => null);
});

for (const scope of ["caller", "caller_tool"]) {
  test(`an anonymous policy with a limit by ${scope} is refused at start`, () => {
    const gate = gateWith({ anonymous: [["x", scope]], authenticated: [["x", "caller"]] });
    assert.throws(() => new CallerResolver(gate), /no caller/);
  });
}
