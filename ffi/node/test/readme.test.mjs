// The README's program does what its comments say.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import * as callgate from "callgate";

const TEXT = readFileSync(new URL("../README.md", import.meta.url), "utf8");

test("the program of the README runs as it is written", async () => {
  const [, program] = /```js\nimport {([^}]*)} from "callgate";\n([\s\S]*?)```/.exec(TEXT).slice(1);
  const lines = [];
  const runTheTool = async () => ({ text: "answer", tokens: 7 });
  const names = Object.keys(callgate);
  const AsyncFunction = (async () => {}).constructor;
  const run = new AsyncFunction(...names, "runTheTool", "console", `${program}; return gate;`);
  const gate = await run(...names.map((name) => callgate[name]), runTheTool, { log: (...line) => lines.push(line) });
  assert.deepEqual(lines, [[true, 199, 0n], ["answer"]]);
  assert.equal(gate.peek("authenticated", { caller: "user:1001" })[1].remaining, 50_000 - 7);
});

test("the refusal that the README quotes is the one that is thrown", () => {
  const gate = new callgate.Gate({ limits: { caller: new callgate.RateLimit(30, { burst: 1 }) }, policies: { p: [["caller", "caller"]] } });
  const admit = () => gate.admit("p", { caller: "user:1001", nowNs: 0 });
  admit();
  const quoted = /\/\/ (refused by .*)$/m.exec(TEXT)[1];
  assert.throws(admit, { message: quoted });
});
