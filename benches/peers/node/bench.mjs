// callgate and its peers in Node, a subject in a process. README.md, one folder up, says what is
// measured and what the program does.
import assert from "node:assert/strict";
import readline from "node:readline";

import { MemoryStore } from "express-rate-limit";
import { RateLimiterMemory } from "rate-limiter-flexible";

import { Gate, RateLimit } from "../../../ffi/node/dist/index.mjs";

const PARTS = 10;
const PART = 2_000;
const UNLIMITED = 1_000_000_000;
const AN_HOUR_MS = 3_600_000;

// Each makes `keys`, `allows(key)` and `run(keys)`; the last is what is timed, a loop of its own for each, so
// that no call site is shared. What answers by a promise is waited for, as its users have to.
const SUBJECTS = {
  callgate(verdict, callers) {
    const limit = verdict === "admit" ? new RateLimit(UNLIMITED, { per: "1s" }) : new RateLimit(1, { per: "1h" });
    const gate = new Gate({
      limits: { caller: limit },
      policies: { authenticated: [["caller", "caller"]] },
      capacity: callers.length,
    });
    return {
      keys: callers.map((caller) => gate.key(caller)),
      allows: (caller) => gate.tryAdmit("authenticated", { caller }).admitted,
      run(keys) {
        let admitted = 0;
        for (const caller of keys) if (gate.tryAdmit("authenticated", { caller }).admitted) admitted += 1;
        return admitted;
      },
    };
  },

  "Map of buckets"(verdict, callers) {
    const [rate, burst] = verdict === "admit" ? [UNLIMITED, UNLIMITED] : [1 / 3600, 1];
    const buckets = new Map();
    const allows = (caller) => {
      const now = performance.now();
      let bucket = buckets.get(caller);
      if (bucket === undefined) {
        bucket = { tokens: burst, then: now };
        buckets.set(caller, bucket);
      }
      bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.then) / 1000) * rate);
      bucket.then = now;
      if (bucket.tokens < 1) return false;
      bucket.tokens -= 1;
      return true;
    };
    return {
      keys: callers,
      allows,
      run(keys) {
        let admitted = 0;
        for (const caller of keys) if (allows(caller)) admitted += 1;
        return admitted;
      },
    };
  },

  "express-rate-limit"(verdict, callers) {
    const limit = verdict === "admit" ? UNLIMITED : 1;
    const store = new MemoryStore();
    store.init({ windowMs: AN_HOUR_MS });
    return {
      keys: callers,
      allows: async (caller) => (await store.increment(caller)).totalHits <= limit,
      async run(keys) {
        let admitted = 0;
        for (const caller of keys) if ((await store.increment(caller)).totalHits <= limit) admitted += 1;
        return admitted;
      },
    };
  },

  "rate-limiter-flexible"(verdict, callers) {
    const points = verdict === "admit" ? UNLIMITED : 1;
    const limiter = new RateLimiterMemory({ points, duration: AN_HOUR_MS / 1000 });
    const allows = async (caller) => {
      try {
        await limiter.consume(caller);
        return true;
      } catch {
        return false;
      }
    };
    return {
      keys: callers,
      allows,
      async run(keys) {
        let admitted = 0;
        for (const caller of keys) {
          try {
            await limiter.consume(caller);
            admitted += 1;
          } catch {
            // Refused: that is how it says so.
          }
        }
        return admitted;
      },
    };
  },
};

/** Numbers below `count`, the same ones for the same seed. */
function draw(seed, count, length) {
  const drawn = new Int32Array(length);
  let state = (seed * 2_654_435_761 + 1) >>> 0;
  for (let n = 0; n < length; n += 1) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    drawn[n] = (state >>> 0) % count;
  }
  return drawn;
}

async function serve(subject, verdict) {
  for (const key of subject.keys) assert.equal(await subject.allows(key), true);
  for (const key of subject.keys.slice(0, 100)) assert.equal(await subject.allows(key), verdict === "admit");
  console.log("ready");
  for await (const seed of readline.createInterface({ input: process.stdin })) {
    const keys = Array.from(draw(Number(seed), subject.keys.length, PARTS * PART), (n) => subject.keys[n]);
    const spent = [];
    for (let at = 0; at < keys.length; at += PART) {
      const part = keys.slice(at, at + PART);
      const started = process.hrtime.bigint();
      const admitted = await subject.run(part);
      spent.push(Number(process.hrtime.bigint() - started) / PART);
      assert.equal(admitted, verdict === "admit" ? PART : 0);
    }
    console.log(median(spent));
  }
}

function median(values) {
  values.sort((a, b) => a - b);
  return (values[(values.length - 1) >> 1] + values[values.length >> 1]) / 2;
}

const [name, , count, verdict] = process.argv.slice(2);
if (name === undefined) {
  console.log(JSON.stringify(Object.keys(SUBJECTS).map((subject) => [subject, 1])));
} else {
  const callers = Array.from({ length: Number(count) }, (_, n) => `user:${n}`);
  await serve(SUBJECTS[name](verdict, callers), verdict);
  process.exit(0);
}
