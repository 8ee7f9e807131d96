// What a program in TypeScript may say, and what its compiler must not let pass. It is compiled, not run.

import {
  CallError,
  CallgateError,
  ConcurrencyLimit,
  ConfigError,
  type Decision,
  Gate,
  type GateHandle,
  type Key,
  metricsHandler,
  OFF,
  type Outcome,
  type Permit,
  Quota,
  RateLimit,
  type Reason,
  Refused,
  type Report,
  Seeder,
  type Settled,
  type Stats,
  version,
} from "callgate";
import { protectNode } from "callgate/mcp";
import { CallgateCollector } from "callgate/prometheus";
import { createServer } from "node:http";
import { register } from "prom-client";

const gate = new Gate({
  limits: {
    caller: new RateLimit(30, { per: "1s", burst: 60n }),
    server: new ConcurrencyLimit(3, { lease: "2h", rejectTrip: 5, cooldown: 30_000_000_000 }),
    tokens: new Quota(50_000, { per: "1d", tz: "Asia/Shanghai", mustSeed: true }),
    spare: OFF,
  },
  policies: { authenticated: [["caller", "caller"], ["tokens", "caller"], ["server", "shared"]] },
  capacity: 10_000,
  secret: new Uint8Array(16),
});
new Gate({ limits: new Map([["a", new RateLimit(1)]]), policies: new Map([["p", [["a", "caller_tool"] as const]]]) });

const key: Key = gate.key("user:1001");
const toolKey: Key = gate.key(new Uint8Array([1]), "tool");
const decision: Decision = gate.tryAdmit("authenticated", { caller: key, tool: toolKey, cost: 2n, reserve: 5, nowNs: 0n, unixNs: 0 });
const admitted: boolean = decision.admitted;
const reason: Reason | null = decision.reason;
const by: string | null = decision.by;
const wait: bigint = decision.retryAfterNs;
const left: number | bigint = decision.remaining;
const maybe: Permit | null = decision.permit;
const decisions: Decision[] = gate.tryAdmitMany([{ policy: "authenticated", caller: key }], { nowNs: 0, unixNs: 0 });
gate.tryAdmit("authenticated", { caller: undefined, tool: undefined, cost: undefined, nowNs: undefined });
const reports: Report[] = gate.peek("authenticated", { caller: null });
const stats: Stats = gate.stats();
const handle: GateHandle = gate.handle();

{
  using again = Gate.attach(handle);
  using permit = again.admit("authenticated", { caller: "user:1001" });
  permit.used(5);
  const settled: Settled = permit.settle("failure", { used: 3n });
  console.log(settled, permit.cancel());
}
if (maybe !== null) gate.settle(maybe, { outcome: "abandoned" satisfies Outcome, used: 1 });

const answer: Promise<string> = gate.run("authenticated", { caller: "x", signal: AbortSignal.timeout(5) }, async (permit) => {
  permit.used(1);
  return "answer";
});
const seeder = new Seeder(gate, "tokens", async (caller) => caller.length, { onError: "zero", retryAfter: "5s" });
const seeded: Promise<Permit> = seeder.admit("authenticated", { caller: "x" });
const told: boolean = gate.seed("tokens", "x", 5, { scope: "caller" });
gate.reconfigure("caller", OFF, { nowNs: 0 });
createServer(metricsHandler(gate));
createServer(protectNode((_request, response) => response.end(), gate, { tools: { search: "authenticated" } }));
new CallgateCollector(gate).register(register);

try {
  gate.admit("authenticated");
} catch (error) {
  if (error instanceof Refused) console.log(error.reason, error.by.length, error.retryAfterNs + 1n, error.decision.limit);
  if (error instanceof ConfigError) console.log(error.field.length, error.limit, error.policy);
  if (error instanceof CallError) console.log(error.field);
  if (error instanceof CallgateError) console.log(error.message);
}
console.log(version.length, admitted, reason, by, wait, left, decisions, reports, stats, answer, seeded, told);

// @ts-expect-error a policy is named first
gate.tryAdmit({ caller: "x" });
// @ts-expect-error there is no such option
gate.tryAdmit("authenticated", { caller: "x", costs: 2 });
// @ts-expect-error a caller is no number
gate.tryAdmit("authenticated", { caller: 5 });
// @ts-expect-error a batch has one clock
gate.tryAdmitMany([{ policy: "authenticated", caller: "x", nowNs: 0 }]);
// @ts-expect-error there is no such outcome
gate.settle(gate.admit("authenticated"), { outcome: "done" });
// @ts-expect-error a refused call has no permit
gate.settle(decision.permit);
// @ts-expect-error there is no such scope
new Gate({ limits: { a: OFF }, policies: { p: [["a", "user"]] } });
// @ts-expect-error a limit is no number
new Gate({ limits: { a: 5 }, policies: {} });
// @ts-expect-error limits can't be changed
gate.limits.set("a", OFF);
// @ts-expect-error fields are read only
new RateLimit(1).count = 5;
// @ts-expect-error nanoseconds are bigints
const number: number = decision.retryAfterNs;
// @ts-expect-error a ledger is not asked about keys
void seeder.tryAdmit("authenticated", { caller: key });
// @ts-expect-error what a load returns are units
new Seeder(gate, "tokens", async () => "7");
console.log(number);
