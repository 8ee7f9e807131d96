// Metrics: OpenMetrics text, the same by all ways, and no identity in any label.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import test from "node:test";
import express from "express";
import { Registry } from "prom-client";
import { ConcurrencyLimit, Gate, METRICS_CONTENT_TYPE, metricsHandler, metricsText, OFF, Quota, RateLimit } from "callgate";
import { CallgateCollector } from "callgate/prometheus";
import { HOUR_NS } from "./support.mjs";

const SECRET = "user:1001-sk-verysecret";
const NOW = { nowNs: 0, unixNs: 0 };

function gateWithAPast() {
  const gate = new Gate({
    limits: {
      caller: new RateLimit(1, { per: "1h", burst: 4 }),
      tokens: new Quota(100),
      server: new ConcurrencyLimit(2, { lease: "1s", rejectTrip: 1, cooldown: "1h" }),
    },
    policies: {
      known: [["caller", "caller"], ["tokens", "caller"], ["server", "shared"]],
      anonymous: [["server", "shared"]],
    },
    capacity: 16,
  });
  const ask = (call) => gate.tryAdmit("known", { caller: SECRET, ...NOW, ...call });
  const [first] = [ask(), ask(), ask()]; // the third trips the breaker
  gate.tryAdmit("anonymous", NOW);
  ask({ cost: 3 });
  ask({ cost: 5 });
  ask({ reserve: 101 });
  gate.settle(first.permit, { used: 5, ...NOW });
  gate.countInternalError();
  return gate;
}

/** The samples of a text by their line without the value; the syntax of OpenMetrics is checked. */
function parsed(text) {
  const samples = {};
  const types = {};
  const lines = text.split("\n");
  assert.deepEqual(lines.splice(-2), ["# EOF", ""]);
  for (const line of lines) {
    const type = /^# TYPE (\w+) (counter|gauge)$/.exec(line);
    if (type) types[type[1]] = type[2];
    if (type || /^# HELP \w+ .+\.$/.test(line)) continue;
    const label = String.raw`\w+="(?:[^"\\\n]|\\[\\n"])*"`;
    const found = new RegExp(String.raw`^(\w+)((?:\{${label}(?:,${label})*\})?) (\d+)$`).exec(line);
    assert.ok(found, `not OpenMetrics: ${line}`);
    const [, name, labels, value] = found;
    assert.equal(types[name.replace(/_total$/, "")], name.endsWith("_total") ? "counter" : "gauge", line);
    assert.ok(!(name + labels in samples), `twice: ${line}`);
    samples[name + labels] = Number(value);
  }
  return samples;
}

test("the text says what happened", () => {
  const gate = gateWithAPast();
  const samples = parsed(gate.metrics(NOW));
  const decisions = Object.entries(samples).filter(([name]) => name.startsWith("callgate_decisions_total"));
  assert.deepEqual(Object.fromEntries(decisions), {
    'callgate_decisions_total{policy="known",limit="",reason="admitted"}': 2,
    'callgate_decisions_total{policy="known",limit="caller",reason="rate"}': 1,
    'callgate_decisions_total{policy="known",limit="caller",reason="never"}': 1,
    'callgate_decisions_total{policy="known",limit="tokens",reason="never"}': 1,
    'callgate_decisions_total{policy="known",limit="server",reason="breaker_open"}': 1,
    'callgate_decisions_total{policy="anonymous",limit="",reason="admitted"}': 0,
    'callgate_decisions_total{policy="anonymous",limit="server",reason="breaker_open"}': 1,
  });
  assert.equal(samples['callgate_in_flight{limit="server"}'], 1);
  assert.equal(samples['callgate_breaker_open{limit="server"}'], 1);
  assert.equal(samples['callgate_breaker_half_open{limit="server"}'], 0);
  assert.equal(samples['callgate_breaker_trips_total{limit="server"}'], 1);
  assert.equal(samples['callgate_table_slots{state="live"}'], 3);
  assert.equal(samples.callgate_internal_errors_total, 1);
  const states = ["live", "at_rest", "claimed", "empty"];
  const slots = states.reduce((sum, state) => sum + samples[`callgate_table_slots{state="${state}"}`], 0);
  assert.equal(slots, gate.stats(NOW).slots);
  assert.deepEqual(Object.keys(parsed(gate.metrics())), Object.keys(samples), "by the system's clock too");
});

test("a lapsed permit is counted", () => {
  const gate = gateWithAPast();
  const { permit } = gate.tryAdmit("anonymous", { nowNs: 2n * HOUR_NS, unixNs: 0 });
  const later = { nowNs: 3n * HOUR_NS, unixNs: 0 };
  assert.equal(gate.settle(permit, later), "lapsed");
  assert.equal(parsed(gate.metrics(later))['callgate_permits_lapsed_total{limit="server"}'], 1);
});

test("no label holds an identity", () => {
  const text = gateWithAPast().metrics();
  assert.ok(!text.includes("1001") && !text.includes("secret"));
  const labels = new Set([...text.matchAll(/[{,](\w+)="/g)].map((found) => found[1]));
  assert.deepEqual(labels, new Set(["policy", "limit", "reason", "state"]));
});

const NAMES = ['quo"te', "back\\slash", "new\nline", "ünïcode", '{a="b"} 7', "\\n"];

test("names of any kind survive, also where several gates are told of", () => {
  const gate = new Gate({
    limits: Object.fromEntries(NAMES.map((name) => [name, new ConcurrencyLimit(1)])),
    policies: Object.fromEntries(NAMES.map((name) => [name, [[name, "shared"]]])),
  });
  const escaped = NAMES.map((name) => name.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n"));
  const [one, two] = [parsed(gate.metrics()), parsed(metricsText(gate, gate))];
  for (const name of escaped) {
    assert.equal(one[`callgate_in_flight{limit="${name}"}`], 0);
    assert.equal(two[`callgate_in_flight{gate="1",limit="${name}"}`], 0);
  }
});

test("text of any length is told whole", () => {
  const names = Array.from({ length: 64 }, (_, n) => `${n} ${"x".repeat(500)}`);
  const gate = new Gate({
    limits: Object.fromEntries(names.map((name) => [name, new ConcurrencyLimit(1)])),
    policies: Object.fromEntries(names.map((name) => [name, [[name, "shared"]]])),
  });
  const text = gate.metrics();
  assert.ok(text.length > 64 * 500 * 6);
  assert.equal(parsed(text)[`callgate_in_flight{limit="${names[63]}"}`], 0);
});

test("a guard that is switched off is still told of", () => {
  const gate = gateWithAPast();
  gate.reconfigure("server", OFF, { nowNs: 0 });
  assert.equal(parsed(gate.metrics(NOW))['callgate_breaker_trips_total{limit="server"}'], 1);
});

function registryOf(contentType, ...gates) {
  const registry = new Registry(contentType);
  new CallgateCollector(...gates).register(registry);
  return registry;
}

test("prom-client's OpenMetrics text is the gate's own, letter for letter", async () => {
  const gate = gateWithAPast();
  const registry = registryOf(Registry.OPENMETRICS_CONTENT_TYPE, gate);
  assert.equal(await registry.metrics(), gate.metrics());
  gate.tryAdmit("anonymous");
  assert.equal(await registry.metrics(), gate.metrics(), "it is as it is when it is asked for");
  assert.throws(() => new CallgateCollector(gate).register(registry), /already been registered/);
});

test("prom-client's classic text has the same samples", async () => {
  const gate = gateWithAPast();
  const lines = (text) => text.split("\n").filter((line) => line && !line.startsWith("#")).sort();
  const registry = registryOf(Registry.PROMETHEUS_CONTENT_TYPE, gate);
  const text = await registry.metrics();
  assert.deepEqual(lines(text), lines(gate.metrics()));
  assert.match(text, /^# TYPE callgate_decisions_total counter$/m);
  const json = await registry.getMetricsAsJSON();
  assert.equal(json.find(({ name }) => name === "callgate_breaker_trips_total").values[0].value, 1);
});

test("a scrape walks the table once, however many metrics there are", async (t) => {
  const gate = gateWithAPast();
  const registry = registryOf(Registry.OPENMETRICS_CONTENT_TYPE, gate);
  const spy = t.mock.method(gate, "stats");
  await registry.metrics();
  await registry.metrics();
  assert.equal(spy.mock.callCount(), 2);
});

test("several gates are told apart by all ways", async () => {
  const other = new Gate({ limits: { server: new ConcurrencyLimit(1) }, policies: { anonymous: [["server", "shared"]] } });
  const gates = [gateWithAPast(), other];
  const samples = parsed(metricsText(...gates));
  assert.equal(samples['callgate_breaker_trips_total{gate="0",limit="server"}'], 1);
  assert.equal(samples['callgate_breaker_trips_total{gate="1",limit="server"}'], 0);
  assert.equal(await registryOf(Registry.OPENMETRICS_CONTENT_TYPE, ...gates).metrics(), metricsText(...gates));
});

/** What a server with that handler answers. */
async function answer(handler, method, path) {
  const server = createServer(handler).listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { method });
    return { status: response.status, headers: response.headers, body: await response.text() };
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

const mounted = (gate) => express().use("/app", metricsHandler(gate));

for (const [method, path, make, status] of [
  ["GET", "/metrics", metricsHandler, 200],
  ["GET", "/metrics?x=1", metricsHandler, 200],
  ["GET", "/", metricsHandler, 200],
  ["HEAD", "/metrics", metricsHandler, 200],
  ["GET", "/app", mounted, 200],
  ["GET", "/app/metrics", mounted, 200],
  ["GET", "/metrics/x", metricsHandler, 404],
  ["GET", "/secrets", metricsHandler, 404],
  ["POST", "/metrics", metricsHandler, 405],
]) {
  test(`the handler answers ${method} ${path} with ${status}`, async () => {
    const gate = gateWithAPast();
    const { status: found, headers, body } = await answer(make(gate), method, path);
    assert.equal(found, status);
    assert.equal(headers.get("allow"), status === 405 ? "GET, HEAD" : null);
    if (status !== 200) return;
    assert.equal(headers.get("content-type"), METRICS_CONTENT_TYPE);
    assert.equal(body, method === "HEAD" ? "" : gate.metrics());
  });
}

test("metrics of no gate are an error", () => {
  for (const make of [metricsText, metricsHandler, (...gates) => new CallgateCollector(...gates)]) {
    assert.throws(() => make(), /1 or more gates/);
    assert.throws(() => make(5), /takes gates, not a number/);
  }
});

test("a scrape of a closed gate gets 503, and the server lives on", async () => {
  const gate = gateWithAPast();
  gate.close();
  const { status, body } = await answer(metricsHandler(gate), "GET", "/metrics");
  assert.deepEqual([status, body], [503, "the gate is closed\n"]);
});
