// Arbitrary HTTP requests to real MCP servers behind the middlewares: what runs was charged.
//
//   node http_requests.mjs [--seconds=N] [--seed=N] [--failing=FOLDER]
//   node http_requests.mjs FILE          sends what has failed once more
//
// Each input is an HTTP request, near to one that calls a tool, to a server of either SDK behind a
// middleware. Then it must hold that
//
// - no more ran than the gate was charged for;
// - nothing ran where the answer was a refusal;
// - on a drained gate, nothing runs at all;
// - a call's place is given back, whichever way the request ended;
// - nothing goes on for ever, nothing is thrown that nobody catches, the middleware itself has not
//   failed, and no answer is a 5xx that is none without the middleware;
// - whoever reads the body as JSON finds no more tool calls in it than were counted, or it is refused.
//
// The smallest input that fails is told, and kept in FOLDER.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";

// Frameworks print what they answer 500 for.
process.env.NODE_ENV = "test";
console.error = () => undefined;
const { default: fc } = await import("fast-check");
const { METERED_METHOD, parse, toolCalls, UnreadableMessage } = await import("../../../ffi/node/dist/mcp/message.js");
const { SERVERS } = await import("../../../ffi/node/test/mcp/servers.mjs");
const { Behind, serverOf } = await import("./behind.mjs");
const { bodyOf, inputs, leavesAfter, piecesOf } = await import("./requests.mjs");
const { keep, watchdog } = await import("./watchdog.mjs");
const { exchange, HANG_MS, Hangs } = await import("./wire.mjs");

const REFUSALS = [400, 413, 415, 429, 503];
const RUNS_AT_A_TIME = 200;
const PLAIN = {
  method: "POST", path: "/mcp", fields: [], calls: 1, isBatch: false, pings: 0, edits: [], raw: null,
  encoding: "none", isEncodingSaid: false, framing: { kind: "length", size: 1 }, cuts: [], leaves: null,
};

const isSeeded = Boolean(process.env.CALLGATE_SEEDED);
const told = { requests: 0, ran: 0 };
const servers = new Map();
let unhandled;
for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (error) => (unhandled ??= error));
}

class Fault extends Error {}

function demand(holds, fault) {
  if (!holds) throw new Fault(fault);
}

async function serversOf(name) {
  if (!servers.has(name)) {
    servers.set(name, {
      open: await Behind.make(name, { isDrained: false, isSeeded }),
      drained: await Behind.make(name, { isDrained: true, isSeeded }),
      bare: await serverOf(name),
    });
  }
  return servers.get(name);
}

/** Sends an input; what it came to. */
async function send(input) {
  const { open, drained, bare } = await serversOf(input.server);
  const request = { body: bodyOf(input, bare), pieces: piecesOf(input, bare), leavesAfter: leavesAfter(input) };
  compareReaders(request.body);
  open.clock.advanceS(100);
  const { status, ran, cost } = await open.send(request);
  demand(ran <= cost, `${ran} ran, ${cost} charged`);
  demand(ran === 0 || !REFUSALS.includes(status), `the answer is ${status}, but ${ran} ran`);
  if (status >= 500) {
    const without = await exchange(bare.server, request.pieces, request.leavesAfter);
    demand(without >= 500, `the answer is ${status}, without the middleware ${without}`);
  }
  if (cost > 0) {
    const refused = await drained.send(request);
    demand(refused.ran === 0, `${refused.ran} ran on a drained gate`);
  }
  for (const { gate } of [open, drained]) demand(gate.internalErrors === 0, "the middleware failed");
  demand(unhandled === undefined, `nobody catches ${unhandled?.stack}`);
  told.requests += 1;
  told.ran += ran;
  return { status, ran, cost };
}

/** What readers find in a body that is read as JSON was counted, or refused. */
function compareReaders(body) {
  let cost;
  try {
    cost = toolCalls(parse(body))?.entries.length ?? 0;
  } catch (error) {
    if (error instanceof UnreadableMessage) return;
    throw error;
  }
  const readers = [(bytes) => bytes.toString(), (bytes) => new TextDecoder().decode(bytes), (bytes) => bytes.toString("latin1")];
  for (const read of readers) {
    let value;
    try {
      value = JSON.parse(read(body));
      if (typeof value === "string") value = JSON.parse(value);
    } catch {
      continue;
    }
    const found = [value].flat().filter((entry) => entry?.method === METERED_METHOD).length;
    demand(found <= cost, `${read} finds ${found} calls, ${cost} were counted`);
  }
}

/** Sends until the time is over; false where something was found. */
async function search(seconds, firstSeed, failing) {
  const watch = watchdog(HANG_MS, failing);
  const endMs = performance.now() + seconds * 1_000;
  const property = fc.asyncProperty(inputs(SERVERS), async (input) => {
    watch(JSON.stringify(input));
    try {
      await send(input);
    } catch (error) {
      // Not to be made smaller: each of its like would take as long.
      if (error instanceof Hangs) {
        keep(JSON.stringify(input), error.message, failing);
        process.exit(1);
      }
      throw error;
    } finally {
      unhandled = undefined;
    }
  });
  for (let seed = firstSeed; performance.now() < endMs; seed += 1) {
    const result = await fc.check(property, { seed, numRuns: RUNS_AT_A_TIME });
    if (!result.failed) continue;
    console.log(`seed ${seed}, made smaller ${result.numShrinks} times`);
    const { counterexample, errorInstance } = result;
    keep(JSON.stringify(counterexample[0]), errorInstance instanceof Fault ? errorInstance.message : errorInstance.stack, failing);
    return false;
  }
  return true;
}

/** Sends what is in a file. */
async function again(file) {
  const input = JSON.parse(readFileSync(file, "utf8"));
  const { bare } = await serversOf(input.server);
  console.log(Buffer.concat(piecesOf(input, bare)).toString("latin1"));
  console.log(await send(input));
  return 0;
}

async function searchAll() {
  for (const server of SERVERS) {
    const { ran, cost } = await send({ ...PLAIN, server });
    demand(ran === 1 && cost === 1, `${server} is not reached: ${ran} ran, ${cost} charged`);
  }
  console.log(`the first seed is ${values.seed}`);
  const isClean = await search(Number(values.seconds), Number(values.seed), values.failing);
  console.log(`Done ${told.requests} requests, ${told.ran} calls ran`);
  return isClean ? 0 : 1;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "20" },
    seed: { type: "string", default: String(Date.now() % 1_000_000_000) },
    failing: { type: "string", default: "." },
  },
});
try {
  process.exit(positionals.length > 0 ? await again(positionals[0]) : await searchAll());
} catch (error) {
  console.log(error instanceof Fault ? error.message : error.stack);
  process.exit(1);
}
