// A worker thread of workers.test.mjs: it attaches to a gate and does what it is told.

import { parentPort, workerData } from "node:worker_threads";
import { ConcurrencyLimit, Gate, OFF, Quota, RateLimit } from "callgate";

const { handle, task } = workerData;

const tasks = {
  /** Admits until so many attempts are made; says how many were. */
  hammer({ attempts, nowNs }) {
    const gate = Gate.attach(handle);
    let admitted = 0;
    for (let n = 0; n < attempts; n++) admitted += gate.tryAdmit("default", { caller: "alice", nowNs }).admitted ? 1 : 0;
    gate.close();
    return admitted;
  },

  /** Takes a place and gives it back so many times, whenever there is one. */
  places({ times }) {
    const gate = Gate.attach(handle);
    for (let taken = 0; taken < times; ) {
      const { permit } = gate.tryAdmit("default");
      if (permit === null) continue;
      taken += 1;
      if (permit.settle() !== "ok") throw new Error("settled by somebody else");
    }
    return gate.guards("server").inFlight;
  },

  /** Reconfigures and walks the table over and over. */
  disturb({ rounds }) {
    const gate = Gate.attach(handle);
    for (let n = 0; n < rounds; n++) {
      gate.reconfigure("rate", new RateLimit(1, { burst: 3000 }), { nowNs: 0 });
      gate.stats({ nowNs: 0 });
      gate.metrics({ nowNs: 0 });
    }
    return rounds;
  },

  /** What it sees of the gate. */
  describe() {
    const gate = Gate.attach(handle);
    const limits = [...gate.limits].map(([name, limit]) => [name, limit.constructor.name, limit === OFF ? null : { ...limit }]);
    const kinds = [RateLimit, ConcurrencyLimit, Quota].map((kind) => [...gate.limits.values()].filter((l) => l instanceof kind).length);
    return { limits, kinds, policies: [...gate.policies], capacity: gate.capacity, text: String(gate) };
  },

  /** Asks for a caller under a quota with a time zone. */
  quota({ unixNs }) {
    const gate = Gate.attach(handle);
    const { reason, resetAfterNs, remaining } = gate.tryAdmit("default", { caller: "alice", nowNs: 0, unixNs });
    return { reason, resetAfterNs, remaining };
  },

  /** Attaches, and goes on until it is ended from outside. */
  linger() {
    const gate = Gate.attach(handle);
    parentPort.postMessage("attached");
    for (;;) gate.tryAdmit("default", { caller: "alice" });
  },

  /** Why it can't attach. */
  fail() {
    try {
      Gate.attach(handle);
    } catch ({ name, field, message }) {
      return { name, field, message };
    }
    return null;
  },
};

parentPort.postMessage(tasks[task.name](task));
