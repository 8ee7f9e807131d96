// How every server of this folder lives: on a free port, until its standard input ends.

import { createServer } from "node:http";

/** Serves with a handler of node's HTTP server. */
export function run(handler) {
  const server = createServer(handler);
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
  process.stdin.on("end", () => process.exit(0)).resume();
}

/** What /stats says. */
export function statsOf(gate, guarded, record) {
  const { decisions, live } = gate.stats();
  return {
    ran: record.ran,
    decisions: decisions.map(({ policy, limit, reason, count }) => [policy, limit, reason, count]),
    live,
    in_flight: guarded.inFlight,
    waiting: guarded.waiting.size,
    gate_ns: record.gateNs,
  };
}
