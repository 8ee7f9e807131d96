// Runs decision vectors through the package.
//
//     node vectors.mjs DIR
//
// prints a JSON line for each *.jsonl file of DIR, and exits with 1 where a scenario fails. A
// scenario that needs a kind of limit which is not built yet is listed as unsupported, never passed.
// The format is described beside the vectors.

import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { ConcurrencyLimit, ConfigError, Gate, Quota, RateLimit } from "callgate";

const BUILT_OPS = ["admit", "settle", "seed"];
const SECOND_NS = 1_000_000_000n;
const FIGURES = {
  retry_after_ns: "retryAfterNs",
  limit: "limit",
  remaining: "remaining",
  reset_after_ns: "resetAfterNs",
};

/** The files of a folder of vectors, in order. */
export function filesOf(directory) {
  const names = readdirSync(directory).filter((name) => name.endsWith(".jsonl"));
  return names.sort().map((name) => path.join(directory, name));
}

/** The scenarios of a file, one a line. */
export function scenariosOf(file) {
  const lines = readFileSync(file, "utf8").split("\n").filter((line) => line.trim());
  return lines.map((line) => JSON.parse(line));
}

/** Runs all scenarios of a file; returns what is printed of it. */
export function runFile(file) {
  const summary = { surface: "node", file: path.basename(file), passed: 0, failed: 0, unsupported: 0, first_difference: null, unsupported_names: [] };
  for (const scenario of scenariosOf(file)) {
    if (!isSupported(scenario)) {
      summary.unsupported_names.push(scenario.name);
      summary.unsupported += 1;
      continue;
    }
    const difference = runScenario(scenario);
    if (difference === null) {
      summary.passed += 1;
      continue;
    }
    summary.failed += 1;
    summary.first_difference ??= `${scenario.name}: ${difference}`;
  }
  return summary;
}

/** Whether the scenario needs only what is built. */
export function isSupported(scenario) {
  const steps = scenario.steps ?? [];
  return scenario.limits.every(({ kind }) => kind in MAKERS) && steps.every(({ op }) => BUILT_OPS.includes(op));
}

/** Runs a scenario; returns its first difference, or null. */
export function runScenario(scenario) {
  const wanted = scenario.config_error;
  let gate;
  try {
    gate = gateOf(scenario);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const field = error.field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    if (field === wanted) return null;
    return `making the gate blames '${field}' (${error.message}), expected '${wanted}'`;
  }
  if (wanted !== undefined) return `making the gate succeeds, expected an error that blames '${wanted}'`;
  try {
    return new Run(gate, BigInt(scenario.unix_base_ns)).run(scenario.steps);
  } finally {
    gate.close();
  }
}

function gateOf(scenario) {
  const limits = new Map(scenario.limits.map((limit, n) => [String(n), limitOf(limit)]));
  const policies = new Map();
  for (const [name, rules] of Object.entries(scenario.policies)) {
    policies.set(name, rules.map(([limit, scope]) => [limit, scope.toLowerCase()]));
  }
  const steps = scenario.steps ?? [];
  const callers = new Set(steps.map(({ caller, tool }) => JSON.stringify([caller, tool])));
  return new Gate({ limits, policies, capacity: 64 + callers.size, secret: Uint8Array.from({ length: 16 }, (_, n) => n) });
}

const MAKERS = {
  rate: (get) => new RateLimit(get("count"), { per: get("period_ns"), burst: get("burst") }),
  concurrency: (get) =>
    new ConcurrencyLimit(get("max_in_flight"), {
      lease: get("lease_ns"),
      rejectTrip: get("reject_trip"),
      failureTrip: get("failure_trip"),
      cooldown: get("cooldown_ns"),
      halfOpenProbes: get("half_open_probes"),
    }),
  quota: (get) =>
    new Quota(get("limit"), { per: get("period_s") * SECOND_NS, anchorUnixS: get("anchor_unix_s"), mustSeed: get("must_seed") !== 0n }),
};

function limitOf({ kind, ...fields }) {
  return MAKERS[kind]((name) => BigInt(fields[name] ?? 0));
}

class Run {
  #gate;
  #unixBaseNs;
  #permits = new Map();

  constructor(gate, unixBaseNs) {
    this.#gate = gate;
    this.#unixBaseNs = unixBaseNs;
  }

  run(steps) {
    for (const [n, step] of steps.entries()) {
      const difference = { admit: this.#admit, settle: this.#settle, seed: this.#seed }[step.op].call(this, step);
      if (difference !== null) return `step ${n}: ${difference}`;
    }
    return null;
  }

  #admit(step) {
    const call = {
      caller: this.#gate.key(step.caller ?? "alice"),
      tool: step.tool || null,
      cost: BigInt(step.cost ?? 1),
      reserve: BigInt(step.reserve ?? 0),
    };
    let admitted = 0;
    let decision;
    for (const nowNs of timesOf(step)) {
      decision = this.#gate.tryAdmit(step.policy ?? "default", { ...call, nowNs, unixNs: this.#unixBaseNs + nowNs });
      if (decision.admitted) admitted += 1;
      if (step.permit !== undefined) this.#permits.set(step.permit, decision.permit);
    }
    if (step.expect.last === undefined) return differenceOf(decision, step.expect);
    if (admitted !== Number(step.expect.admitted)) return `admitted ${admitted}, expected ${step.expect.admitted}`;
    return differenceOf(decision, step.expect.last);
  }

  #settle(step) {
    const nowNs = BigInt(step.at);
    const permit = this.#permits.get(step.permit);
    // A refused call has no permit here. Elsewhere it has an empty one, settled already.
    let status = "already_settled";
    if (permit !== null) {
      const outcome = step.outcome.toLowerCase();
      const clock = { nowNs, unixNs: this.#unixBaseNs + nowNs };
      status = this.#gate.settle(permit, { outcome, used: BigInt(step.actual ?? 0), ...clock });
    }
    const expected = step.expect.status.toLowerCase();
    return status === expected ? null : `status '${status}', expected '${expected}'`;
  }

  #seed(step) {
    const nowNs = BigInt(step.at);
    const clock = { nowNs, unixNs: this.#unixBaseNs + nowNs };
    const seeded = this.#gate.seed(String(step.limit), step.caller ?? "alice", BigInt(step.used), clock);
    const expected = step.expect.seeded;
    return seeded === expected ? null : `seeded ${seeded}, expected ${expected}`;
  }
}

function* timesOf(step) {
  const repeat = Number(step.repeat ?? 1);
  const ats = step.ats?.map(BigInt);
  for (let n = 0; n < repeat; n++) {
    yield ats ? ats[n % ats.length] : BigInt(step.at) + BigInt(n) * BigInt(step.every_ns ?? 0);
  }
}

function differenceOf(decision, expected) {
  const found = {
    verdict: decision.admitted ? "ADMITTED" : "REFUSED",
    reason: decision.reason?.toUpperCase() ?? null,
    by: decision.by,
  };
  for (const [name, attribute] of Object.entries(FIGURES)) found[name] = String(decision[attribute]);
  const unknown = Object.keys(expected).filter((name) => !(name in found));
  if (unknown.length > 0) return `expects what this runner doesn't know: ${unknown.sort()}`;
  for (const [name, value] of Object.entries(expected)) {
    if (found[name] !== value) return `${name} ${found[name]}, expected ${value}`;
  }
  return null;
}

/** Runs the folder that the command line names. */
function main(args) {
  const files = args.length === 1 ? filesOf(args[0]) : [];
  if (files.length === 0) {
    console.error(args.length === 1 ? `no *.jsonl files in ${args[0]}` : "usage: node vectors.mjs DIR");
    return 2;
  }
  const summaries = files.map((file) => {
    const summary = runFile(file);
    console.log(JSON.stringify(summary));
    return summary;
  });
  return summaries.some(({ failed }) => failed > 0) ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2));
