// What is counted is what the server executes: every spelling of a request, on real servers.
//
// Each request is sent through the middleware to a gate with room, where no more may run than was
// charged, and to a drained gate, where nothing may run at all.

import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { Gate, RateLimit } from "../../dist/index.js";
import { protectNode } from "../../dist/mcp/index.js";
import { front } from "./fronts.mjs";
import { serve, SERVERS, UNGUARDED } from "./servers.mjs";
import { callMessage, charged, drain, JSON_FIELDS, makeClock, makeGate, options, send } from "./support.mjs";

const METHOD = '"method":"tools/call"';

const bytes = (served) => Buffer.from(JSON.stringify(served.message()));
const withHeaders = (headers) => (served) => [bytes(served), headers];
const withMessage = (change) => (served) => [change(served.message()), {}];
const withBody =
  (change, headers = {}) =>
  (served) => [change(bytes(served)), headers];

const replaced = (old, fresh) => (text) => {
  const before = text.toString("latin1");
  assert.ok(before.includes(old));
  return Buffer.from(before.replace(old, () => fresh), "latin1");
};
const utf16 = (text, mark = "\ufeff") => Buffer.from(mark + text.toString(), "utf16le");
const inBytes = (text) => Array.from(text, (byte) => Buffer.of(byte));

/** The call as a reader of UTF-7 sees it; to one of UTF-8 it is a method that nobody knows. */
const utf7 = replaced("tools/call", "+AHQ-ools+AC8-call");

const REQUESTS = {
  plain: withBody((text) => text),
  "content type with an empty parameter": withHeaders({ "content-type": "application/json;" }),
  "content type with a charset": withHeaders({ "content-type": "application/json; charset=utf-8" }),
  "content type with a wrong charset": withHeaders({ "content-type": "application/json; charset=utf-16" }),
  "content type in capitals": withHeaders({ "content-type": "APPLICATION/JSON" }),
  "content type with a no-break space": withHeaders({ "content-type": "\u00a0application/json" }),
  "content type missing": withHeaders({ "content-type": null }),
  "content type empty": withHeaders({ "content-type": "" }),
  "content type of plain text": withHeaders({ "content-type": "text/plain" }),
  "content type of a form": withHeaders({ "content-type": "application/x-www-form-urlencoded" }),
  "content type in a list, first": withHeaders({ "content-type": "application/json, text/plain" }),
  "content type in a list, last": withHeaders({ "content-type": "text/plain, application/json" }),
  "content type twice": withHeaders({ "content-type": ["application/json", "text/plain"] }),
  "content type twice, the other first": withHeaders({ "content-type": ["text/plain", "application/json"] }),
  "content type as a parameter": withHeaders({ "content-type": "text/plain; a=application/json" }),
  "content type with a suffix": withHeaders({ "content-type": "application/jsonrequest" }),
  "content type of a vendor": withHeaders({ "content-type": "application/vnd.api+json" }),
  "accept missing": withHeaders({ accept: null }),
  "method escaped": withBody(replaced("tools/call", "tools\\u002fcall")),
  "method with an escaped slash": withBody(replaced("tools/call", "tools\\/call")),
  "member name escaped": withBody(replaced('"method"', '"\\u006dethod"')),
  "member name in capitals": withBody(replaced('"method"', '"Method"')),
  "method respelled": withBody(replaced("tools/call", "Tools/Call")),
  "method with a space": withBody(replaced("tools/call", "tools/call ")),
  "method with a null": withBody(replaced("tools/call", "tools/call\\u0000")),
  "method twice, the call last": withBody(replaced(METHOD, `"method":"ping",${METHOD}`)),
  "method twice, the call first": withBody(replaced(METHOD, `${METHOD},"method":"ping"`)),
  "method twice, escaped": withBody(replaced(METHOD, '"method":"ping","\\u006dethod":"tools/call"')),
  "tool name twice": withBody(replaced('"name":"work"', '"name":"none","name":"work"')),
  "a prototype with the method": withBody(replaced(METHOD, `"method":"ping","__proto__":{${METHOD}}`)),
  "only a prototype with the method": withBody(replaced(METHOD, `"__proto__":{${METHOD}}`)),
  "byte order mark": withBody((text) => Buffer.concat([Buffer.from("\ufeff"), text])),
  "utf-16": withBody((text) => utf16(text)),
  "utf-16 without a mark": withBody((text) => utf16(text, "")),
  "utf-16 and its charset": withBody((text) => utf16(text), { "content-type": "application/json; charset=utf-16" }),
  "utf-16 and its charset quoted": withBody((text) => utf16(text, ""), {
    "content-type": 'application/json; charset="utf-16le"',
  }),
  "utf-16 and no content type": withBody((text) => utf16(text), { "content-type": null }),
  "utf-7 and its charset": withBody(utf7, { "content-type": "application/json; charset=utf-7" }),
  "utf-7 and its charset after another parameter": withBody(utf7, {
    "content-type": "application/json; a=b; charset=UTF-7",
  }),
  "utf-7 and its charset after another": withBody(utf7, {
    "content-type": "application/json; charset=utf-8; charset=utf-7",
  }),
  "what is not UTF-8": withBody(replaced('"arguments":{', '"\xff":1,"arguments":{')),
  "what is not UTF-8, in the method": withBody(replaced("tools/call", "tools/call\xff")),
  "encoded surrogate": withBody(replaced('"arguments":{', '"\xed\xa0\x80":1,"arguments":{')),
  "escaped surrogate": withBody(replaced('"arguments":{', '"x":"\\ud800","arguments":{')),
  "white space around": withBody((text) => Buffer.from(` \r\n\t${text}\r\n `)),
  "trailing text": withBody((text) => Buffer.from(`${text} {}`)),
  truncated: withBody((text) => text.subarray(0, -1)),
  empty: withBody(() => Buffer.alloc(0)),
  "empty, of a form": withBody(() => Buffer.alloc(0), { "content-type": "application/x-www-form-urlencoded" }),
  "a string that holds the call": withBody((text) => Buffer.from(JSON.stringify(text.toString()))),
  "deep nesting": withBody(replaced('"arguments":{', `"x":${"[".repeat(5_000)}${"]".repeat(5_000)},"arguments":{`)),
  "large integer": withBody(replaced('"arguments":{', `"x":${"9".repeat(5_000)},"arguments":{`)),
  chunked: withBody(inBytes),
  compressed: withBody(gzipSync, { "content-encoding": "gzip" }),
  "compressed and chunked": withBody((text) => inBytes(gzipSync(text)), { "content-encoding": "gzip" }),
  "compressed without saying so": withBody(gzipSync),
  "said to be compressed": withHeaders({ "content-encoding": "gzip" }),
  "id of a string": withMessage((m) => ({ ...m, id: "1" })),
  "id of null": withMessage((m) => ({ ...m, id: null })),
  "id of a fraction": withMessage((m) => ({ ...m, id: 1.5 })),
  "id of a boolean": withMessage((m) => ({ ...m, id: true })),
  "id missing": withMessage(({ id: _, ...m }) => m),
  "version missing": withMessage(({ jsonrpc: _, ...m }) => m),
  "version of another kind": withMessage((m) => ({ ...m, jsonrpc: "1.0" })),
  "a result beside the method": withMessage((m) => ({ ...m, result: {} })),
  "a batch of one": withMessage((m) => [m]),
  "a batch of 25": withMessage((m) => Array.from({ length: 25 }, (_, id) => ({ ...m, id }))),
  "a batch in a batch": withMessage((m) => [[m]]),
  "a batch with others": withMessage((m) => [{ ...m, id: 2, method: "ping" }, m]),
  "a session nobody opened": withHeaders({ "mcp-session-id": "0123456789abcdef" }),
  "protocol version unknown": withHeaders({ "mcp-protocol-version": "1999-01-01" }),
  "protocol version missing": withHeaders({ "mcp-protocol-version": null }),
  "protocol version old": withHeaders({ "mcp-protocol-version": "2025-03-26" }),
  "another method in the header": withHeaders({ "mcp-method": "ping" }),
};

const MUST_RUN = new Set([
  "plain",
  "content type with an empty parameter",
  "content type with a charset",
  "content type in capitals",
  "method escaped",
  "method with an escaped slash",
  "member name escaped",
  "white space around",
  "chunked",
  "id of a string",
]);

for (const server of SERVERS) {
  test(`${server}: no more runs than was charged, and what must run does`, options, async (t) => {
    const [gate, clock] = [makeGate({ anonymous: 1_000 }), makeClock()];
    const served = await serve(t, server, gate, { clock });
    for (const [name, request] of Object.entries(REQUESTS)) {
      await t.test(name, options, async () => {
        const before = charged(gate, clock);
        served.ran.length = 0;
        const response = await served.post(...request(served));
        const cost = charged(gate, clock) - before;
        assert.ok(served.ran.length <= cost, `${served.ran.length} ran, ${cost} charged`);
        if ([400, 415].includes(response.status)) assert.deepEqual(served.ran, []);
        if (MUST_RUN.has(name)) {
          assert.equal(response.status, 200, response.text);
          assert.deepEqual([served.ran, cost], [["work"], 1]);
        }
      });
    }
  });

  test(`${server}: nothing runs on a drained gate`, options, async (t) => {
    const [gate, clock] = [makeGate({ anonymous: 100 }), makeClock()];
    drain(gate, clock);
    const served = await serve(t, server, gate, { clock });
    for (const [name, request] of Object.entries(REQUESTS)) {
      await t.test(name, options, async () => {
        const response = await served.post(...request(served));
        assert.deepEqual(served.ran, []);
        if (MUST_RUN.has(name)) assert.equal(response.status, 429);
      });
    }
    const batch = await served.post(Array.from({ length: 25 }, (_, id) => served.message(id)));
    assert.equal(batch.status, 429);
    assert.equal(batch.json.error.data.reason, "rate");
    assert.equal(batch.headers["retry-after"], String(25 * 3_600));
    assert.deepEqual(served.ran, []);
  });

  test(`${server}: what is no call is answered through a drained gate as without one`, options, async (t) => {
    const [gate, clock] = [makeGate(), makeClock()];
    drain(gate, clock);
    const guarded = await serve(t, server, gate, { clock });
    const bare = await serve(t, server, UNGUARDED);
    const info = { clientInfo: { name: "test", version: "1" } };
    const opening = { protocolVersion: "2025-11-25", capabilities: {}, ...info };
    for (const method of ["tools/list", "ping", "initialize", "server/discover", "notifications/initialized"]) {
      const params = method === "initialize" ? opening : { ...guarded.params };
      const id = method.startsWith("notifications/") ? {} : { id: 1 };
      const message = { jsonrpc: "2.0", ...id, method, params };
      const fields = { "mcp-method": method, "mcp-name": null };
      const [answer, wanted] = [await guarded.post(message, fields), await bare.post(message, fields)];
      assert.deepEqual([answer.status, answer.text], [wanted.status, wanted.text], method);
    }
    const fields = { accept: "application/json", "mcp-session-id": "unknown" };
    for (const method of ["GET", "DELETE", "PUT"]) {
      const [answer, wanted] = [
        await send(guarded.url, Buffer.alloc(0), fields, method),
        await send(bare.url, Buffer.alloc(0), fields, method),
      ];
      assert.deepEqual([answer.status, answer.text], [wanted.status, wanted.text], method);
    }
  });

  test(`${server}: rotating bearers share one allowance`, options, async (t) => {
    const [gate, clock] = [makeGate({ forwarded: 4 }), makeClock()];
    const served = await serve(t, server, gate, { clock });
    for (let n = 0; n < 20; n += 1) await served.post(served.message(), { authorization: `Bearer ${n}` });
    assert.equal(served.ran.length, 4);
    // The shared allowance, and one bucket for each bearer that it admitted.
    assert.equal(gate.stats({ nowNs: clock() }).live, 5);
  });
}

for (const server of ["1.x, node", "1.x, express", "2.x, fetch", "2.x, hono"]) {
  test(`${server}: executes batches: 100 calls without a protocol version cost 100`, options, async (t) => {
    const [gate, clock] = [makeGate({ anonymous: 150 }), makeClock()];
    const served = await serve(t, server, gate, { clock });
    const batch = Array.from({ length: 100 }, (_, id) => served.message(id));
    assert.equal((await served.post(batch)).status, 200);
    assert.deepEqual([served.ran.length, charged(gate, clock)], [100, 100]);
    assert.equal((await served.post(batch)).status, 429);
    assert.equal(served.ran.length, 100);
  });
}

test("2.x turns batches away under its newest protocol, and they are charged all the same", options, async (t) => {
  const [gate, clock] = [makeGate({ anonymous: 100 }), makeClock()];
  const served = await serve(t, "2.x, fetch, modern", gate, { clock });
  const batch = Array.from({ length: 5 }, (_, id) => served.message(id));
  assert.equal((await served.post(batch)).status, 400);
  assert.deepEqual([served.ran, charged(gate, clock)], [[], 5]);
});

// Up to 1.29, SDK 1.x takes for JSON whatever has that word in its content type.
for (const type of ['text/plain; a="application/json"', "x;APPLICATION/JSON", "text/plain;a=application/json; charset=utf-16le"]) {
  for (const [what, body] of [
    ["a name twice", bytes({ message: callMessage }).toString().replace('"id":1', '"id":0,"id":1')],
    ["UTF-16", utf16(bytes({ message: callMessage }), "")],
  ]) {
    test(`${what} is refused under the content type ${type}`, options, async (t) => {
      let ran = 0;
      const url = await front(t, "node", (_request, response) => response.end(`${(ran += 1)}`), makeGate());
      const response = await send(url, body, { ...JSON_FIELDS, "content-type": type });
      assert.deepEqual([response.status, ran], [400, 0]);
    });
  }
}

test("half of a character in a tool's name makes no call free", options, async (t) => {
  const gate = new Gate({
    limits: { tool: new RateLimit(1, { per: "1h", burst: 2 }) },
    policies: { anonymous: [["tool", "tool"]], authenticated: [["tool", "tool"]] },
    capacity: 10,
  });
  let ran = 0;
  const url = await front(t, "node", (_request, response) => response.end(`${(ran += 1)}`), gate);
  const post = (content) => send(url, content, JSON_FIELDS);
  const half = callMessage("\ud800");
  const [first, second, third] = [await post(half), await post(half), await post(half)];
  assert.deepEqual([first.status, second.status, third.status, ran], [200, 200, 429, 2]);
  const batch = await post([half, ...Array.from({ length: 30 }, () => callMessage("work"))]);
  assert.deepEqual([batch.status, ran, gate.internalErrors], [429, 2, 0]);
});

test("over HTTP/2 a method is one however it is spelled", options, async (t) => {
  const gate = makeGate({ anonymous: 1 });
  let ran = 0;
  const server = http2.createServer(protectNode((_request, response) => response.end(`${(ran += 1)}`), gate, { apiKeys: null }));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = http2.connect(`http://127.0.0.1:${server.address().port}`);
  t.after(() => {
    client.destroy();
    server.close();
  });
  const statuses = [];
  for (const method of ["POST", "post", "PoST"]) {
    const stream = client.request({ ":method": method, ...JSON_FIELDS });
    stream.end(JSON.stringify(callMessage()));
    const [headers] = await once(stream, "response");
    statuses.push(headers[":status"]);
    stream.resume();
  }
  assert.deepEqual([statuses, ran], [[200, 429, 429], 1]);
});
