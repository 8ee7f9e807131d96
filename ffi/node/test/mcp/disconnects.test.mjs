// Clients that are gone at whatever moment: afterwards no place is taken, and the server lives on.
//
// CALLGATE_KILLED says how many clients there are for each middleware, 120 by default.

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";

import { front, fronts, nodeFronts, writing } from "./fronts.mjs";
import { callMessage, guardedGate, inFlight, JSON_FIELDS, noting, send, until } from "./support.mjs";

const CLIENTS = Number(process.env.CALLGATE_KILLED ?? 120);
const AT_ONCE = 20;
const BODY = JSON.stringify(callMessage());
const HEAD = [
  "POST / HTTP/1.1",
  "host: localhost",
  ...Object.entries(JSON_FIELDS).map(([name, value]) => `${name}: ${value}`),
  `content-length: ${BODY.length}`,
  "",
  "",
].join("\r\n");

/** What a client does before it is killed: the text that it sends, and how many bytes of the answer it awaits. */
const WAYS = [
  ["", 0],
  [HEAD, 0],
  [HEAD + BODY.slice(0, -1), 0],
  [HEAD + BODY, 0],
  [HEAD + BODY, 1],
  [HEAD + BODY, 300],
];

async function killed(port, [text, bytes], isReset) {
  const socket = net.connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  await once(socket, "connect");
  if (text !== "") await new Promise((resolve) => socket.write(text, resolve));
  let received = 0;
  while (received < bytes) {
    const chunk = await Promise.race([once(socket, "data"), once(socket, "close")]);
    if (!(chunk[0] instanceof Uint8Array)) break;
    received += chunk[0].length;
  }
  if (isReset) socket.resetAndDestroy();
  else socket.destroy();
}

for (const name of fronts) {
  test(`${name}: ${CLIENTS} clients that are killed leave no place taken`, { timeout: 600_000 }, async (t) => {
    const gate = noting(guardedGate({ places: 4_000 }));
    const answer = async ({ start, write, end }) => {
      start(200, "text/event-stream");
      for (let n = 0; n < 30; n += 1) {
        write("data: 0123456789\n\n");
        await new Promise((resolve) => setImmediate(resolve));
      }
      end();
    };
    // What is written to a client that has gone fails, in a fetch stream.
    const quiet = (it) => answer(it).catch(() => undefined);
    const url = await front(t, name, writing(name, quiet), gate);
    const port = Number(new URL(url).port);
    for (let n = 0; n < CLIENTS; n += AT_ONCE) {
      const batch = Array.from({ length: Math.min(AT_ONCE, CLIENTS - n) }, (_, at) => n + at);
      await Promise.all(batch.map((client) => killed(port, WAYS[client % WAYS.length], client % 4 < 2)));
    }
    await until(() => inFlight(gate) === 0);
    const response = await send(url, callMessage(), JSON_FIELDS);
    assert.equal(response.status, 200);
    await until(() => inFlight(gate) === 0);
    assert.equal(gate.outcomes.at(-1), "success");
    assert.ok(gate.outcomes.every((outcome) => ["success", "abandoned", "cancelled"].includes(outcome)));
    assert.ok(gate.outcomes.includes("abandoned"));
  });
}

// Behind the others, nobody tells a fetch handler of it: its place is free once its response has ended.
for (const name of nodeFronts) {
  test(`${name}: requests that wait behind others on a connection that ends leave no place taken`, { timeout: 120_000 }, async (t) => {
    const gate = noting(guardedGate({ places: 100 }));
    const hangs = ({ start, write }) => {
      start(200, "text/event-stream");
      write("data: 1\n\n");
      return new Promise(() => undefined);
    };
    const port = Number(new URL(await front(t, name, writing(name, hangs), gate)).port);
    const socket = net.connect(port, "127.0.0.1");
    socket.write((HEAD + BODY).repeat(20));
    await once(socket, "data");
    await until(() => inFlight(gate) === 20);
    socket.destroy();
    await until(() => inFlight(gate) === 0);
    assert.ok(gate.outcomes.every((outcome) => outcome === "abandoned"), gate.outcomes.join());
  });
}
