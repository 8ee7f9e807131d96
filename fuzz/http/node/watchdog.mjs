// Notices a loop without end: whoever is in it can't tell. And what becomes of an input that has failed.

import { mkdirSync, writeFileSync, writeSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { isMainThread, Worker, workerData } from "node:worker_threads";

const BEAT_MS = 1_000;
const MAX_INPUT_BYTES = 1 << 16;
const [BEATS, LENGTH] = [0, 1];

/** Tells what has failed and how, and keeps it in a folder. */
export function keep(input, fault, folder) {
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, `${Date.now()}.json`);
  writeFileSync(file, input);
  const program = path.relative(process.cwd(), new URL("http_requests.mjs", import.meta.url).pathname);
  writeSync(1, `${fault}\n${input}\nagain: node ${program} ${file}\n`);
}

/** Watches this thread. Gives a function to be called with each input before it is sent: one that keeps the
 * thread for so long is kept, and the process ends. */
export function watchdog(hangMs, folder) {
  const numbers = new Int32Array(new SharedArrayBuffer(8));
  const input = new Uint8Array(new SharedArrayBuffer(MAX_INPUT_BYTES));
  new Worker(new URL(import.meta.url), { workerData: { numbers, input, hangMs, folder } }).unref();
  setInterval(() => Atomics.add(numbers, BEATS, 1), BEAT_MS).unref();
  return (text) => {
    const { written } = new TextEncoder().encodeInto(text, input);
    Atomics.store(numbers, LENGTH, written);
  };
}

function watch({ numbers, input, hangMs, folder }) {
  let [beats, sinceMs] = [-1, performance.now()];
  setInterval(() => {
    const now = Atomics.load(numbers, BEATS);
    if (now !== beats) [beats, sinceMs] = [now, performance.now()];
    if (performance.now() - sinceMs < hangMs) return;
    const text = Buffer.from(input.slice(0, Atomics.load(numbers, LENGTH))).toString();
    keep(text, `no turn of the event loop in ${hangMs / 1_000} s`, folder);
    process.kill(process.pid, "SIGKILL");
  }, BEAT_MS);
}

if (!isMainThread) watch(workerData);
