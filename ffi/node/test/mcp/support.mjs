// What the tests of callgate/mcp share: a clock, gates, messages, and an HTTP client that sends what it is told.

import { once } from "node:events";
import http from "node:http";

import { ConcurrencyLimit, Gate, RateLimit } from "../../dist/index.js";

export const MODERN_VERSION = "2026-07-28";
export const META = {
  "io.modelcontextprotocol/protocolVersion": MODERN_VERSION,
  "io.modelcontextprotocol/clientCapabilities": {},
};
const NS_PER_S = 1_000_000_000n;

/** Tests wait for things, never for a time; this is only when they give up. */
export const options = { timeout: 120_000 };

/** A clock that stands still until a test moves it. */
export function makeClock(nowNs = NS_PER_S) {
  const clock = () => clock.nowNs;
  clock.nowNs = nowNs;
  clock.advanceS = (seconds) => (clock.nowNs += BigInt(Math.round(seconds * 1e9)));
  return clock;
}

/** One call an hour comes back, so that no test depends on how fast it runs. */
export function makeGate({ burst = 3, anonymous = 3, forwarded = 4 } = {}) {
  return new Gate({
    limits: {
      caller: new RateLimit(1, { per: "1h", burst }),
      anonymous: new RateLimit(1, { per: "1h", burst: anonymous }),
      forwarded: new RateLimit(1, { per: "1h", burst: forwarded }),
    },
    policies: {
      authenticated: [["caller", "caller"]],
      anonymous: [["anonymous", "shared"]],
      "forwarded-bearer": [["forwarded", "shared"], ["caller", "caller"]],
    },
    capacity: 1_000,
  });
}

export const MANY = 100_000;

/** A gate with places, and a rate that tells how many calls were charged. */
export function guardedGate({ places = 2, rejectTrip = 0, failureTrip = 0 } = {}) {
  const rules = [["shared", "shared"], ["server", "shared"]];
  return new Gate({
    limits: {
      shared: new RateLimit(1, { per: "1h", burst: MANY }),
      server: new ConcurrencyLimit(places, { rejectTrip, failureTrip, cooldown: "30s" }),
    },
    policies: { anonymous: rules, authenticated: rules },
    capacity: 100,
  });
}

export function inFlight(gate, clock) {
  return gate.guards("server", clock && { nowNs: clock() }).inFlight;
}

/** A gate that notes how its permits are settled, in front of a real one. */
export function noting(gate, changes = {}) {
  const notes = { outcomes: [], used: [] };
  const changed = {
    ...notes,
    settle(permit, settlement = {}) {
      const answer = gate.settle(permit, settlement);
      notes.outcomes.push(settlement.outcome);
      notes.used.push(settlement.used);
      return answer;
    },
    ...changes,
  };
  return new Proxy(gate, {
    get(target, name) {
      if (name in changed) return changed[name];
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

export class DivisionByZero extends Error {}

export function broken(gate) {
  return noting(gate, {
    tryAdmit() {
      throw new DivisionByZero("user:1001 divided by nothing");
    },
  });
}

/** Tokens taken so far from the first limit of a policy. */
export function charged(gate, clock, policy = "anonymous", caller = undefined) {
  const [report] = gate.peek(policy, { caller, cost: 0, nowNs: clock() });
  return report.limit - report.remaining;
}

/** Takes all there is. */
export function drain(gate, clock, policy = "anonymous", caller = undefined) {
  while (gate.tryAdmit(policy, { caller, nowNs: clock() }).admitted);
}

export function callMessage(tool = "work", id = 1, params = {}) {
  return { jsonrpc: "2.0", id, method: "tools/call", params: { name: tool, arguments: {}, ...params } };
}

export const JSON_FIELDS = {
  accept: "application/json, text/event-stream",
  "content-type": "application/json",
};

/** The fields that are not null. */
function present(headers) {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== null));
}

/** A request under way, without its answer; it can be destroyed. */
export function begin(url, content, headers = {}) {
  const request = http.request(url, { method: "POST", headers: present(headers), agent: false });
  request.on("error", () => undefined);
  request.end(JSON.stringify(content));
  return request;
}

/** The whole answer to a request. Bytes and lists of chunks go as they are; anything else as JSON. */
export async function send(url, content, headers = {}, method = "POST") {
  const isChunked = Array.isArray(content) && content.length > 0 && content.every((chunk) => chunk instanceof Uint8Array);
  const body = content instanceof Uint8Array || isChunked ? content : Buffer.from(JSON.stringify(content));
  const length = isChunked ? {} : { "content-length": body.length };
  const request = http.request(url, { method, headers: present({ ...length, ...headers }), agent: false });
  // A server may answer, and close, before all was sent.
  let failure;
  request.on("error", (error) => (failure = error));
  const answered = once(request, "response");
  const closed = new Promise((resolve) => request.once("close", resolve));
  for (const chunk of isChunked ? body : [body]) request.write(chunk);
  request.end();
  const [response] = await Promise.race([
    answered,
    closed.then(() => {
      throw failure ?? new Error("the server closed without an answer");
    }),
  ]);
  const parts = [];
  for await (const part of response) parts.push(part);
  const text = Buffer.concat(parts).toString();
  return {
    status: response.statusCode,
    headers: response.headers,
    text,
    get json() {
      return JSON.parse(text);
    },
  };
}

/** Serves with a handler or a server of node's, for the time of a test. */
export async function listen(t, handler) {
  const server = typeof handler.listen === "function" && !handler.handle ? handler : http.createServer(handler);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** Waits until something holds. */
export async function until(holds) {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 1));
}

/** Notes what is logged, for the time of a test. */
export function noteLog(t, logger) {
  const lines = { info: [], warn: [], error: [] };
  for (const level of Object.keys(lines)) {
    t.mock.method(logger, level, (message) => lines[level].push(message));
  }
  return lines;
}
