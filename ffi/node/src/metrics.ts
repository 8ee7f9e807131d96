/**
 * A gate's metrics: OpenMetrics text, and a request handler that serves it. No label ever holds an
 * identity: labels are the names of policies and limits, reasons, and states of the table.
 */
import type { IncomingMessage, ServerResponse } from "node:http";

import type { Clock } from "./call.js";
import type { Gate } from "./gate.js";
import type { Guards } from "./reports.js";
import { kindOf } from "./text.js";

export const END = "# EOF\n";

/** The Content-Type of the text of metrics. */
export const METRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8";

export type Labels = Readonly<Record<string, string>>;

/** One metric: its name (a counter's without `_total`), and its samples. */
export interface Family {
  readonly name: string;
  readonly kind: "counter" | "gauge";
  readonly help: string;
  readonly samples: (readonly [Labels, number])[];
}

/** The attribute of `Guards`, the metric's name, its kind, its help. */
const GUARDS: readonly (readonly [keyof Guards, string, Family["kind"], string])[] = [
  ["inFlight", "callgate_in_flight", "gauge", "Calls that hold a place"],
  ["open", "callgate_breaker_open", "gauge", "Breakers that are open"],
  ["halfOpen", "callgate_breaker_half_open", "gauge", "Breakers that are half-open"],
  ["trips", "callgate_breaker_trips", "counter", "How often a breaker opened"],
  ["lapsed", "callgate_permits_lapsed", "counter", "Permits settled after their lease"],
];

function family(name: string, kind: Family["kind"], help: string): Family {
  return { name, kind, help, samples: [] };
}

/**
 * The metrics of the gates, as the engine tells them in `gate.metrics()`. Where there are several,
 * the label `gate` is their place.
 */
export function familiesOf(gates: readonly Gate[], clock?: Clock): Family[] {
  const families = [
    family("callgate_decisions", "counter", "Calls decided, by policy, limit and reason"),
    ...GUARDS.map(([, name, kind, help]) => family(name, kind, help)),
    family("callgate_table_slots", "gauge", "Slots of the table, by what they hold"),
    internalErrorsOf(),
  ];
  const byName = new Map(families.map((found) => [found.name, found]));
  gates.forEach((gate, place) => {
    const common: Labels = gates.length > 1 ? { gate: String(place) } : {};
    for (const [name, labels, value] of samplesOf(gate, clock)) {
      byName.get(name)?.samples.push([{ ...common, ...labels }, value]);
    }
  });
  return families;
}

/** What the engine can't know: how often the limiter itself has failed. */
export function internalErrorsOf(gate?: Gate): Family {
  const found = family("callgate_internal_errors", "counter", "Failures of the limiter itself");
  if (gate !== undefined) found.samples.push([{}, gate.internalErrors]);
  return found;
}

function* samplesOf(gate: Gate, clock?: Clock): Generator<[string, Labels, number]> {
  const stats = gate.stats(clock);
  for (const { policy, limit, reason, count } of stats.decisions) {
    yield ["callgate_decisions", { policy, limit: limit ?? "", reason: reason ?? "admitted" }, count];
  }
  for (const [limit, guards] of gate.allGuards(clock)) {
    for (const [attribute, name] of GUARDS) yield [name, { limit }, guards[attribute]];
  }
  const { live, atRest, claimed, empty } = stats;
  for (const [state, count] of Object.entries({ live, at_rest: atRest, claimed, empty })) {
    yield ["callgate_table_slots", { state }, count];
  }
  yield ["callgate_internal_errors", {}, gate.internalErrors];
}

/** The metrics as OpenMetrics text. */
export function textOf(families: readonly Family[]): string {
  const lines = families.flatMap(({ name, kind, help, samples }) => {
    const suffix = kind === "counter" ? "_total" : "";
    return [
      `# HELP ${name} ${help}.`,
      `# TYPE ${name} ${kind}`,
      ...samples.map(([labels, value]) => `${name}${suffix}${labelsText(labels)} ${value}`),
    ];
  });
  return [...lines, END].join("\n");
}

function labelsText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escaped(value)}"`);
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

function escaped(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

/** The metrics of one or more gates, as OpenMetrics text. */
export function metricsText(...gates: Gate[]): string {
  const [first] = checkedGates("metricsText", gates);
  return gates.length === 1 ? first.metrics() : textOf(familiesOf(gates));
}

/**
 * A handler of node:http, and of what is built on it, that serves the metrics of the gates on GET
 * /metrics, and at the path that it is mounted at. Others get 404, other methods 405.
 */
export function metricsHandler(
  ...gates: Gate[]
): (request: IncomingMessage, response: ServerResponse) => void {
  checkedGates("metricsHandler", gates);
  return (request, response) => {
    const path = (request.url ?? "").replace(/\?.*/, "");
    if (!["", "/", "/metrics"].includes(path)) {
      respond(response, 404, "there is nothing here but /metrics\n");
    } else if (request.method !== "GET" && request.method !== "HEAD") {
      respond(response, 405, "GET or HEAD\n", { allow: "GET, HEAD" });
    } else {
      let text: string;
      try {
        text = metricsText(...gates);
      } catch (error) {
        // Nobody would catch it here, and a gate may be closed while its server still answers.
        return respond(response, 503, `${(error as Error).message}\n`);
      }
      respond(response, 200, text, { "content-type": METRICS_CONTENT_TYPE });
    }
  };
}

function respond(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Record<string, string> = {},
): void {
  const size = String(Buffer.byteLength(text));
  const type = { "content-type": "text/plain; charset=utf-8", "content-length": size };
  response.writeHead(status, { ...type, ...headers });
  response.end(text); // Node leaves the body of an answer to HEAD out
}

/** One or more gates; else a TypeError. */
export function checkedGates(who: string, gates: readonly Gate[]): readonly [Gate, ...Gate[]] {
  for (const gate of gates) {
    if (typeof (gate as Partial<Gate> | null)?.metrics === "function") continue;
    throw new TypeError(`${who} takes gates, not ${kindOf(gate)}`);
  }
  if (gates.length === 0) throw new TypeError(`${who} needs 1 or more gates`);
  return gates as [Gate, ...Gate[]];
}
