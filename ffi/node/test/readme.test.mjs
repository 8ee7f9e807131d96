// The README's program does what its comments say.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import * as callgate from "callgate";
import * as mcp from "callgate/mcp";

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

for (const [which, path] of [["package's", "../README.md"], ["project's", "../../../README.md"]]) {
  test(`the ${which} README protects a handler as it is written`, async () => {
    const text = readFileSync(new URL(path, import.meta.url), "utf8");
    const [, program] = /```js\nimport { protect } from "callgate\/mcp";\n([\s\S]*?)```/.exec(text);
    const name = /^const (\w+) =/m.exec(program)[1];
    const answered = [];
    const createMcpHandler = (make) => async () => (answered.push(make()), new Response("{}"));
    const protectIt = new Function("protect", "createMcpHandler", "makeServer", `${program}; return ${name};`);
    const handler = protectIt(mcp.protect, createMcpHandler, () => "server");
    const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "echo", arguments: {} } };
    const body = JSON.stringify(call);
    const request = () => new Request("http://localhost/mcp", { method: "POST", headers: { "content-type": "application/json" }, body });
    const handle = handler.fetch ?? handler;
    assert.equal((await handle(request())).status, 200);
    assert.deepEqual(answered, ["server"]);
  });
}
