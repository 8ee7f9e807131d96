// One connection to a server of node's in this process, without a socket.

import { duplexPair } from "node:stream";
import { setImmediate, setTimeout } from "node:timers/promises";

/** How long a client waits for more of an answer, and for its beginning, before it leaves: a stream may
 * stay open for ever, and so may a batch whose answers an SDK can't tell apart. */
const PATIENCE_MS = 50;
const FIRST_PATIENCE_MS = 1_000;
const SETTLING_TURNS = 30;
const SPINNING_TURNS = 100;
/** A hang, on a machine that does other things as well. */
export const HANG_MS = Number(process.env.HANG_S ?? 120) * 1_000;

/** It does not end, though its client has left. */
export class Hangs extends Error {}

/** The status of the answer to a request that comes in pieces, once all that it has set off is over;
 * undefined without an answer. The client may leave so many turns of the event loop after it has sent
 * them. */
export async function exchange(server, pieces, leavesAfter) {
  const [ours, theirs] = duplexPair();
  let answer = "";
  let heardMs = performance.now();
  let isOver = false;
  let isClosed = false;
  ours.on("data", (part) => {
    answer += part.toString("latin1");
    heardMs = performance.now();
  });
  ours.on("end", () => (isOver = true));
  for (const end of [ours, theirs]) end.on("error", () => undefined);
  theirs.on("close", () => (isClosed = true));
  // A server may keep the connection open, whatever the request says of it.
  const onRequest = (_request, response) => response.once("close", () => (isOver = true));
  server.once("request", onRequest);
  server.emit("connection", theirs);
  for (const piece of pieces) {
    ours.write(piece);
    await setImmediate();
  }
  const hasPatience = () => performance.now() - heardMs < (answer === "" ? FIRST_PATIENCE_MS : PATIENCE_MS);
  if (leavesAfter === undefined) await until(() => isOver || isClosed || !hasPatience());
  await turns(leavesAfter);
  server.off("request", onRequest);
  ours.destroy();
  theirs.destroy();
  await until(() => isClosed);
  // A message that is answered 202 is handled after that.
  await turns();
  return statusOf(answer);
}

/** Throws `Hangs` where that does not come about. */
export async function until(holds) {
  const startedMs = performance.now();
  for (let turn = 0; !holds(); turn += 1) {
    if (performance.now() - startedMs > HANG_MS) throw new Hangs(`no end after ${HANG_MS / 1_000} s`);
    await (turn < SPINNING_TURNS ? setImmediate() : setTimeout(1));
  }
}

export async function turns(count = SETTLING_TURNS) {
  for (let turn = 0; turn < count; turn += 1) await setImmediate();
}

function statusOf(answer) {
  const [, status] = /^(?:HTTP\/1\.1 1\d\d .*\r\n(?:.+\r\n)*\r\n)*HTTP\/1\.1 (\d{3})/.exec(answer) ?? [];
  return status && Number(status);
}
