// What counts as a tool call, and what is refused because nobody can tell.

import assert from "node:assert/strict";
import { test } from "node:test";

import { echoedId, INVALID_REQUEST, parse, PARSE_ERROR, toolCalls, UnreadableMessage } from "../../dist/mcp/message.js";
import { elementsAt, membersAt } from "../../dist/mcp/json-text.js";
import { protect } from "../../dist/mcp/index.js";
import { callMessage, makeGate } from "./support.mjs";

const callsIn = (body) => toolCalls(parse(typeof body === "string" ? Buffer.from(body, "latin1") : body));
const tools = (calls) => calls?.entries.map((entry) => entry.tool);
const isRefused = (code) => (error) => error instanceof UnreadableMessage && error.code === code;

test("a tool call is counted with its tool and id", () => {
  const calls = toolCalls({ value: callMessage("search", "a-1") });
  assert.deepEqual([tools(calls), calls.requestId], [["search"], "a-1"]);
});

for (const method of [
  "initialize", "ping", "tools/list", "resources/read", "prompts/get", "server/discover", "subscriptions/listen",
  "notifications/initialized", "notifications/cancelled", "completion/complete", "tools/call ", "Tools/Call",
  "TOOLS/CALL", "tools//call", "tools/calls", "", null, 1, ["tools/call"], { "tools/call": 1 }, true,
]) {
  test(`the method ${JSON.stringify(method)} is not metered`, () => {
    assert.equal(toolCalls({ value: { jsonrpc: "2.0", id: 1, method } }), undefined);
  });
}

for (const value of [null, true, 0, 1.5, [], {}, [[]], [1, null], { jsonrpc: "2.0", id: 1, result: { method: "tools/call" } }]) {
  test(`${JSON.stringify(value)} holds no call`, () => assert.equal(toolCalls({ value }), undefined));
}

test("a message that is a string is refused: the older transport of SDK 1.x parses it once more", () => {
  assert.throws(() => callsIn(JSON.stringify(JSON.stringify(callMessage()))), isRefused(INVALID_REQUEST));
});

for (const spelling of ['"tools\\/call"', '"tools\\u002fcall"', '"\\u0074ools/call"']) {
  test(`the method spelled ${spelling} is the method`, () => {
    assert.equal(callsIn(`{"jsonrpc":"2.0","id":1,"method":${spelling}}`).entries.length, 1);
  });
}

test("an escaped spelling of the member's name is the member", () => {
  assert.equal(callsIn('{"jsonrpc":"2.0","id":1,"\\u006dethod":"tools/call"}').entries.length, 1);
});

test("a batch counts one for each call and nothing for the rest", () => {
  const rest = [{ jsonrpc: "2.0", method: "notifications/initialized" }, { jsonrpc: "2.0", id: 3, method: "ping" }, "noise"];
  const calls = toolCalls({ value: [callMessage("a"), ...rest, callMessage("b"), callMessage("a")] });
  assert.deepEqual([tools(calls), calls.requestId], [["a", "b", "a"], undefined]);
  assert.equal(toolCalls({ value: rest }), undefined);
});

for (const count of [1, 25, 1_000]) {
  test(`a batch of ${count} is counted in full`, () => {
    assert.equal(callsIn(JSON.stringify(new Array(count).fill(callMessage()))).entries.length, count);
  });
}

for (const params of [null, [], "work", {}, { name: 7 }, { name: "" }, { name: null }]) {
  test(`a call with the parameters ${JSON.stringify(params)} names no tool and still counts`, () => {
    assert.deepEqual(tools(toolCalls({ value: { jsonrpc: "2.0", id: 1, method: "tools/call", params } })), [undefined]);
  });
}

for (const extra of [{}, { jsonrpc: "1.0" }, { id: null }, { result: {} }]) {
  test(`a call malformed by ${JSON.stringify(extra)} is not a free one`, () => {
    assert.equal(toolCalls({ value: { method: "tools/call", params: { name: "work" }, ...extra } }).entries.length, 1);
  });
}

for (const body of [
  '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}',
  '{"jsonrpc":"2.0","id":1,"method":"ping","\\u006dethod":"tools/call"}',
  '{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}',
  '[{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}]',
  ' [ {"a":[1,{"b":"]}"}]} , {"method" : "ping" , "x":{"y":[]} , "method" : "tools/call" } ] ',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
  '{"jsonrpc":"2.0","id":1,"method":"tools/call","params": {"name":"a\\\\", "\\u006eame":"b"}}',
  '{"method":"x","a\\"b":1,"a\\u0022b":2}',
]) {
  test(`a repeated name that decides what runs is refused: ${body}`, () => {
    assert.throws(() => callsIn(body), isRefused(INVALID_REQUEST));
  });
}

test("a repeated name elsewhere is the tool's own affair", () => {
  const body = '{"id":1,"method":"tools/call","params":{"name":"work","arguments":{"x":1,"x":2}},"m":[{"a":1,"a":2}]}';
  assert.deepEqual(tools(callsIn(body)), ["work"]);
  assert.equal(callsIn('{"id":1,"method":"ping","params":{"name":1,"name":2}}'), undefined);
});

const TEXT = '{"method":"tools/call"}';
for (const body of [
  "", " ", "{", '{"method":"tools/call"', '{"method":"tools/call",}', "{'method':'tools/call'}",
  `${TEXT} trailing`, `${TEXT}\0`, `${TEXT}{"method":"ping"}`, `\xef\xbb\xbf${TEXT}`,
  Buffer.from(`\ufeff${TEXT}`, "utf16le"), Buffer.from(TEXT, "utf16le"), Buffer.from(TEXT, "utf16le").swap16(),
  '{"method":"tools/call","x":"\xed\xa0\x80"}', '{"method":"tools/call","x":"\xff"}', '{"method":"tools/call","x":"\x01"}',
  "\x1f\x8b\x08\x00", '{"a":NaN}',
]) {
  test(`what is not one UTF-8 JSON text is refused: ${JSON.stringify(String(body).slice(0, 40))}`, () => {
    assert.throws(() => callsIn(body), isRefused(PARSE_ERROR));
  });
}

test("an unreadable body is not quoted back", () => {
  assert.throws(() => callsIn('{"token": "s3cret"'), (error) => !error.message.includes("s3cret"));
});

test("deep nesting is read or refused, and never a crash", () => {
  const body = `{"method":"tools/call","x":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
  try {
    assert.equal(callsIn(body).entries.length, 1);
  } catch (error) {
    assert.ok(isRefused(PARSE_ERROR)(error), String(error));
  }
});

for (const text of ['{"a":1,"b":[]}', '{"a":1e999}', ' \t\r\n{"a":1} \n', '{"\\u0061":"\\ud83d\\ude00"}', '{"a":"\x7f"}']) {
  test(`what is readable reads as the SDKs read it: ${text}`, () => {
    assert.deepEqual(parse(Buffer.from(text)).value, JSON.parse(new TextDecoder().decode(Buffer.from(text))));
  });
}

for (const value of [7, "7", 0, "", 1.5, -1]) {
  test(`the id ${JSON.stringify(value)} is echoed with its type`, () => assert.equal(echoedId(value), value));
}

for (const value of [null, undefined, true, false, [], {}, [1], Number.NaN, Number.POSITIVE_INFINITY]) {
  test(`${String(value)} is no id and is not echoed`, () => assert.equal(echoedId(value), undefined));
}

test("an id beyond what a number holds is echoed as it came", () => {
  assert.equal(callsIn('{"method":"tools/call","id": 9007199254740993 }').requestId, 9007199254740993n);
  assert.equal(callsIn('{"id":-123456789012345678901234567890,"method":"tools/call"}').requestId, -123456789012345678901234567890n);
  assert.equal(callsIn('{"id":1e400,"method":"tools/call"}').requestId, undefined);
});

test("members and elements are where JSON.parse finds them, whatever is between them", () => {
  let seed = 7;
  const below = (count) => (seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff) % count;
  const one = (...choices) => choices[below(choices.length)];
  const space = () => one("", "", " ", "\n\t");
  const string = () => JSON.stringify(one("a", "b\\", '"', "]}{[", '\\"x', "é", "\\\\", "", ":,"));
  const list = (count, make) => Array.from({ length: below(count) }, () => make() + space()).join(`,${space()}`);
  const array = (depth) => `[${space()}${list(4, () => value(depth - 1))}]`;
  const object = (depth) => `{${space()}${list(5, () => `${string()}${space()}:${space()}${value(depth - 1)}`)}}`;
  const value = (depth) => {
    const kind = below(depth > 0 ? 5 : 3);
    if (kind < 3) return [string(), one("0", "-1", "2.5e3", "1E-2"), one("true", "false", "null")][kind];
    return kind === 3 ? array(depth) : object(depth);
  };
  for (let n = 0; n < 20_000; n += 1) {
    const text = object(3);
    const found = membersAt(text, 0).map(({ name, start, end }) => [name, JSON.parse(text.slice(start, end))]);
    assert.deepEqual(Object.fromEntries(found), JSON.parse(text), text);
    const elements = array(3);
    assert.equal(elementsAt(elements, 0).length, JSON.parse(elements).length, elements);
  }
});

for (const contentType of ["application/json", "APPLICATION/JSON", "text/plain, Application/Json", "text/plain,\tapplication/json;"]) {
  test(`a body that readers read differently is refused where its content type is ${JSON.stringify(contentType)}`, async () => {
    const handler = protect(async () => new Response("ran"), makeGate());
    const body = '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"echo"}}';
    const request = new Request("http://localhost/mcp", { method: "POST", body, headers: { "content-type": contentType } });
    assert.equal((await handler(request)).status, 400);
  });
}

test("a body that no reader takes for JSON passes", async () => {
  const handler = protect(async () => new Response("ran"), makeGate());
  const request = new Request("http://localhost/mcp", { method: "POST", body: "a=1", headers: { "content-type": "text/plain" } });
  assert.equal(await (await handler(request)).text(), "ran");
});
