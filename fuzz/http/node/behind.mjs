// Real servers of both SDKs behind the middleware, on a gate with room or on a drained one.

import { createServer, Server } from "node:http";

import { ConcurrencyLimit, Gate, RateLimit } from "../../../ffi/node/dist/index.js";
import { make, UNGUARDED } from "../../../ffi/node/test/mcp/servers.mjs";
import { charged, makeClock } from "../../../ffi/node/test/mcp/support.mjs";
import { exchange, turns, until } from "./wire.mjs";

const BURST = 100_000;
const MAX_BODY_BYTES = 8_192;
/** Long enough for a client to leave meanwhile. */
const WORKING_TURNS = 5;

/** A server of that name; without a gate, without a middleware. */
export async function serverOf(name, gate = UNGUARDED, options = {}) {
  const served = await make(name, gate, options, { work: () => turns(WORKING_TURNS) });
  return { ...served, server: served.handler instanceof Server ? served.handler : createServer(served.handler) };
}

export class Behind {
  /** `isSeeded`: a fault that must be found is built in, a call is only seen where its method is spelled
   * out. */
  static async make(name, { isDrained, isSeeded }) {
    const behind = new Behind();
    behind.clock = makeClock();
    // Whoever calls, one bucket pays.
    const rules = [["all", "shared"], ["server", "shared"]];
    behind.gate = new Gate({
      limits: { all: new RateLimit(1, { per: "1ms", burst: isDrained ? 1 : BURST }), server: new ConcurrencyLimit(9) },
      policies: { anonymous: rules, authenticated: rules },
      capacity: 10,
    });
    if (isDrained) {
      const { permit } = behind.gate.tryAdmit("anonymous", { nowNs: behind.clock() });
      behind.gate.settle(permit, { nowNs: behind.clock() });
    }
    behind.guarded = await serverOf(name, behind.gate, { clock: behind.clock, maxBodyBytes: MAX_BODY_BYTES });
    behind.bypass = isSeeded ? await serverOf(name) : undefined;
    return behind;
  }

  /** What a request with that body came to: the status of its answer, how many calls ran, and how many
   * were charged. */
  async send({ pieces, body, leavesAfter }) {
    const [ran, before] = [this.#ran, this.#charged];
    const isOverlooked = this.bypass !== undefined && !body.includes('"tools/call"');
    const status = await exchange((isOverlooked ? this.bypass : this.guarded).server, pieces, leavesAfter);
    // Its places are given back on whichever way it ends.
    await until(() => this.gate.guards("server", { nowNs: this.clock() }).inFlight === 0);
    return { status, ran: this.#ran - ran, cost: this.#charged - before };
  }

  get #ran() {
    return this.guarded.ran.length + (this.bypass?.ran.length ?? 0);
  }

  get #charged() {
    return charged(this.gate, this.clock);
  }
}
