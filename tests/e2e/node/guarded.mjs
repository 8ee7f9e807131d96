// What is behind /guarded/mcp, whichever SDK serves it: places, two breakers, a daily quota and API keys.
//
// Its gate has a time of its own, which stands still until somebody moves it: it begins a minute before
// midnight in Shanghai, where the days of its quota are kept.

import { ConcurrencyLimit, Gate, Quota, RateLimit } from "callgate";
import { APIKeys, CALLER, reportUsage } from "callgate/mcp";

const PLACES = 3;
const REJECT_TRIP = 5;
const FAILURE_TRIP = 3;
const COOLDOWN = "30s";
const DAILY_TOKENS = 1_000;
const TOKENS_PER_THOUGHT = 400;
const EXPENSIVE_BURST = 2;
const FAILED_ATTEMPTS = 20;
const ZONE = "Asia/Shanghai";
const A_MINUTE_TO_MIDNIGHT_MS = Date.parse("2026-03-01T23:59:00+08:00");
const USERS = ["erin", "frank", "gina", "hal", "ivy", "jo", "kim", "lee", "max"];
const NS_PER_S = 1_000_000_000n;

/** The gate, its time, and the calls of `slow` that wait for their end. */
export class Guarded {
  nowNs = 1_000n * NS_PER_S;
  unixNs = BigInt(A_MINUTE_TO_MIDNIGHT_MS) * 1_000_000n;
  waiting = new Set();

  constructor() {
    const hourly = (burst) => new RateLimit(1, { per: "1h", burst });
    const server = ["server", "shared"];
    this.gate = new Gate({
      limits: {
        caller: hourly(100),
        expensive: hourly(EXPENSIVE_BURST),
        tokens: new Quota(DAILY_TOKENS, { tz: ZONE }),
        fragile: new ConcurrencyLimit(PLACES, { failureTrip: FAILURE_TRIP, cooldown: COOLDOWN }),
        server: new ConcurrencyLimit(PLACES, { rejectTrip: REJECT_TRIP, cooldown: COOLDOWN }),
      },
      policies: {
        authenticated: [["caller", "caller"], ["tokens", "caller"], server],
        expensive: [["expensive", "caller"], ["tokens", "caller"], server],
        fragile: [["caller", "caller"], ["fragile", "shared"], server],
        anonymous: [server],
      },
      capacity: 1_000,
    });
    this.options = {
      tools: { search: "expensive", fail: "fragile" },
      clock: () => this.nowNs,
      wallClock: () => this.unixNs,
    };
    this.apiKeys = new APIKeys(Object.fromEntries(USERS.map((name) => [`key-of-${name}`, name])), {
      failures: hourly(FAILED_ATTEMPTS),
    });
  }

  get inFlight() {
    return this.gate.guards("server", { nowNs: this.nowNs }).inFlight;
  }

  advance(seconds) {
    this.nowNs += BigInt(seconds) * NS_PER_S;
    this.unixNs += BigInt(seconds) * NS_PER_S;
  }

  release() {
    for (const end of this.waiting) end();
  }

  /** Until it is released; rejects when the signal is aborted. */
  async untilReleased(signal) {
    let end;
    const ended = new Promise((resolve) => (end = resolve));
    this.waiting.add(end);
    signal.addEventListener("abort", end);
    await ended;
    this.waiting.delete(end);
    signal.throwIfAborted();
  }
}

/** The user of a request that came with a known key. */
export function userOf(request) {
  return request[CALLER].identity;
}

/** Adds the tools. `name` says who calls, `signalOf` takes a handler's context. */
export function addGuardedTools(server, guarded, record, name, signalOf) {
  const says = (text) => ({ content: [{ type: "text", text }] });
  server.registerTool("slow", { description: "Runs until it is released." }, async (context) => {
    record.ranFor(name);
    await guarded.untilReleased(signalOf(context));
    return says("done");
  });
  server.registerTool("think", { description: "Uses up tokens." }, () => {
    record.ranFor(name);
    reportUsage(TOKENS_PER_THOUGHT);
    return says("hmm");
  });
  server.registerTool("search", { description: "Is expensive: it has a policy of its own." }, () => {
    record.ranFor(name);
    return says("found");
  });
  server.registerTool("fail", { description: "Fails, and has a breaker of its own." }, () => {
    record.ranFor(name);
    throw new Error("the tool is broken");
  });
  return server;
}
