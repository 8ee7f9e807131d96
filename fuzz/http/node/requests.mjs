// Arbitrary HTTP requests, near to those that a tool call takes.

import { gzipSync } from "node:zlib";

import fc from "fast-check";

import { MODERN_VERSION } from "../../../ffi/node/test/mcp/support.mjs";

/** Fields that the servers and the middlewares go by, with values for each. */
const FIELDS = {
  "content-type": [
    "application/json", "application/json;", "application/json; charset=utf-8", "application/json; charset=utf-16",
    'application/json;charset="utf-16le"', "application/json; charset=utf-7", "application/json; a=b; charset=gbk",
    "application/json; charset=", "application/json ;", "APPLICATION/JSON", "\xa0application/json", "text/plain", "",
    "text/plain; a=application/json", "application/jsonrequest", "application/vnd.api+json", "*/*",
    "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/plain, application/json",
    "application/json, text/plain",
  ],
  accept: ["application/json, text/event-stream", "application/json", "text/event-stream", "*/*", ""],
  "content-encoding": ["gzip", "identity", "deflate", "br", "GZIP", "", "identity, gzip"],
  "mcp-protocol-version": [MODERN_VERSION, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "1999-01-01", ""],
  "mcp-method": ["tools/call", "tools/list", "ping", "TOOLS/CALL"],
  "mcp-name": ["work", "other", ""],
  "mcp-session-id": ["0123456789abcdef", ""],
  authorization: ["Bearer abc", "Basic YTpi", ""],
  "x-api-key": ["abc"],
  origin: ["http://127.0.0.1:8000", "http://elsewhere.example", "null"],
};
const RARE_FIELDS = {
  host: ["127.0.0.1", "localhost:8000", "elsewhere.example", ""],
  "content-length": ["0", "10", "99999999999999999999", "-1"],
  "transfer-encoding": ["chunked", "identity", "gzip, chunked"],
  connection: ["keep-alive", "upgrade"],
  expect: ["100-continue", "200-ok"],
  upgrade: ["websocket", "h2c"],
};
const PATHS = ["/mcp?key=a", "/MCP", "/mcp/", "//mcp", "/%6dcp", "/mcp;a", "/mcp#a", "http://127.0.0.1:8000/mcp", "/"];
const METHODS = ["GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "QUERY", "post"];

/** Strings, numbers and words, and the bytes between them. */
const PARTS = /"(?:[^"\\]|\\[^])*"|[-\w.+]+|[^]/g;
const MEMBERS = [
  '"method":"tools/call"', '"method":"ping"', '"method":null', '"\\u006dethod":"tools/call"', '"Method":"tools/call"',
  '"jsonrpc":"2.0"', '"id":1', '"id":null', '"id":"a"', '"id":1.5', '"params":{}', '"params":[]', '"params":null',
  '"name":"work"', '"name":"other"', '"arguments":{}', '"arguments":[]', '"_meta":{}', '"result":{}', '"error":{}',
  '"__proto__":{"method":"tools/call"}', '"constructor":{}', '"toJSON":1', '"inputResponses":{}', '"":0',
  '"x":"\\ud800"', '"\xed\xa0\x80":1', '"\xff":1', '"x":"\xe2\x80\xa8"', `"x":${"[".repeat(150)}${"]".repeat(150)}`,
  '"x":1e999', `"x":${"9".repeat(400)}`, '"x":-0', '"x":"\\\\"', '"x":"\\",\\"method\\":\\"ping"', '"x\\"":"}"', '"x":{"method":"tools/call"}',
];
const NAMES = [
  '"method"', '"\\u006dethod"', '"Method"', '"method "', '"id"', '"params"', '"name"', '"arguments"', '"jsonrpc"', '"__proto__"',
];
const SCALARS = [
  '"tools/call"', '"tools\\/call"', '"tools\\u002fcall"', '"\\u0074ools/call"', '"Tools/Call"', '"tools/call "',
  '"tools/call\\u0000"', '"tools/call\xff"', '"ping"', '"initialize"', '"tools/list"', '"notifications/initialized"',
  '"work"', '"other"', '"2.0"', '"1.0"', '"a"', '""', "0", "1", "-1", "1.5", "9007199254740993", "1e999", "-0", "null",
  "true", "{}", "[]", '["tools/call"]', '{"method":"tools/call"}',
];
const TOKENS = [
  "{", "}", "[", "]", ",", ":", '"', "\\", "\\u0000", "\x00", " ", "\t", "\r\n", "\f", "NaN", "/**/", "//", "\xff\xfe",
  "\xef\xbb\xbf", "\xe2\x80\xa8", '{"jsonrpc":"2.0","id":9,"method":"ping"}', "[".repeat(150), "]".repeat(150),
  ...MEMBERS,
];

/** What becomes of a text of bytes, and the fields that say so. */
const charset = (name) => ({ "content-type": `application/json; charset=${name}` });
const ENCODINGS = {
  none: { encode: (text) => Buffer.from(text, "latin1"), fields: {} },
  mark: { encode: (text) => Buffer.from(`\xef\xbb\xbf${text}`, "latin1"), fields: charset("utf-8") },
  utf16: { encode: (text) => Buffer.from(`\ufeff${text}`, "utf16le"), fields: charset("utf-16") },
  utf16le: { encode: (text) => Buffer.from(text, "utf16le"), fields: charset("utf-16le") },
  utf16be: { encode: (text) => Buffer.from(text, "utf16le").swap16(), fields: charset("utf-16be") },
  utf7: { encode: (text) => Buffer.from(text.replace("tools/call", "+AHQ-ools+AC8-call"), "latin1"), fields: charset("utf-7") },
  string: { encode: (text) => Buffer.from(JSON.stringify(text), "latin1"), fields: {} },
  gzip: { encode: (text) => gzipSync(Buffer.from(text, "latin1")), fields: { "content-encoding": "gzip" } },
};

/** Bytes, one a character. */
const bytes = (maxLength) => fc.string({ unit: fc.nat(255).map((byte) => String.fromCharCode(byte)), maxLength });
/** Smaller is what is usual. */
const mostly = (usual, rare, weight = 9) =>
  fc.oneof({ withCrossShrink: true }, { weight, arbitrary: usual }, { weight: 1, arbitrary: rare });
const among = (items) => fc.constantFrom(...items);

/** What is changed in a body: mostly so that it stays JSON. */
const change = (kind, put) => fc.record({ kind: fc.constant(kind), at: fc.nat(200), put });
const edit = fc.oneof(
  { weight: 4, arbitrary: change("member", among(MEMBERS)) },
  { weight: 2, arbitrary: change("name", among(NAMES)) },
  { weight: 4, arbitrary: change("value", among(SCALARS)) },
  { weight: 1, arbitrary: change("space", among([" ", "\t", "\r\n", "\n"])) },
  { weight: 1, arbitrary: change("any", mostly(among(TOKENS), bytes(2), 4)) },
);

const fieldOf = ([name, values]) =>
  fc.record({ name: fc.constant(name), isReplaced: mostly(fc.constant(true), fc.constant(false), 3), value: fc.option(among(values)) });
const oneOfFields = (fields) => fc.oneof(...Object.entries(fields).map(fieldOf));
const oddField = fc.record({ name: among(Object.keys(FIELDS)), isReplaced: fc.boolean(), value: bytes(12) });
const field = mostly(oneOfFields(FIELDS), fc.oneof(oneOfFields(RARE_FIELDS), oddField), 19);

const framing = fc.record({
  kind: mostly(fc.constant("length"), fc.oneof(fc.constant("chunked"), among(["none", "short", "long"])), 4),
  size: fc.integer({ min: 1, max: 300 }),
});

/** An input is plain JSON, so that it can be kept and sent once more. */
export function inputs(servers) {
  return fc.record({
    server: among(servers),
    method: mostly(fc.constant("POST"), among(METHODS), 19),
    path: mostly(fc.constant("/mcp"), among(PATHS), 19),
    fields: fc.array(field, { maxLength: 2 }),
    calls: mostly(fc.constant(1), fc.oneof(fc.nat(3), fc.constant(25)), 4),
    isBatch: mostly(fc.constant(false), fc.constant(true), 4),
    pings: mostly(fc.constant(0), fc.nat(2), 9),
    edits: fc.array(edit, { maxLength: 4 }),
    raw: mostly(fc.constant(null), bytes(40), 49),
    encoding: mostly(fc.constant("none"), among(Object.keys(ENCODINGS)), 9),
    isEncodingSaid: fc.boolean(),
    framing,
    cuts: fc.array(fc.nat(2_000), { maxLength: 3 }),
    leaves: mostly(fc.constant(null), fc.record({ bytes: fc.nat(1_500), turns: fc.nat(30) }), 19),
  });
}

/** The body that an input means to a server. */
export function bodyOf(input, { message }) {
  if (input.raw !== null) return Buffer.from(input.raw, "latin1");
  const pings = Array.from({ length: input.pings }, (_, n) => ({ jsonrpc: "2.0", id: 100 + n, method: "ping" }));
  const messages = [...pings, ...Array.from({ length: input.calls }, (_, id) => message(id))];
  const isBatch = input.isBatch || messages.length !== 1;
  let text = JSON.stringify(isBatch ? messages : messages[0]);
  for (const edit of input.edits) text = edited(text, edit);
  return ENCODINGS[input.encoding].encode(text);
}

/** A text with a member more, or another name or value, or anything else. */
function edited(text, { kind, at, put }) {
  const parts = text.match(PARTS) ?? [];
  const isName = (n) => parts[n]?.startsWith('"') && parts[n + 1] === ":";
  const fits = {
    member: (n) => parts[n] === "{",
    name: isName,
    value: (n) => /^["\w-]/.test(parts[n]) && !isName(n),
    space: (n) => /^[[{}:,\]]$/.test(parts[n]),
    any: () => true,
  }[kind];
  const places = [...parts.keys()].filter(fits);
  if (places.length === 0) return text;
  const place = places[at % places.length];
  const kept = kind === "member" || kind === "space" ? parts[place] : "";
  const comma = kind === "member" && parts[place + 1] !== "}" ? "," : "";
  parts[place] = kept + put + comma;
  return parts.join("");
}

/** After how many turns of the event loop the client leaves; undefined where it waits for an answer, which
 * none should who sends less than it says. */
export function leavesAfter(input) {
  return input.leaves?.turns ?? (input.framing.kind === "long" ? 0 : undefined);
}

/** What goes over the wire, in pieces. */
export function piecesOf(input, served) {
  const body = bodyOf(input, served);
  const framed = frame(body, input.framing);
  const fields = fieldsOf(input, served.headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `${input.method} ${input.path} HTTP/1.1\r\n${fields.join("")}${framed.field}connection: close\r\n\r\n`;
  let whole = Buffer.concat([Buffer.from(head, "latin1"), framed.body]);
  if (input.leaves !== null) whole = whole.subarray(0, input.leaves.bytes);
  const edges = [0, ...input.cuts.filter((cut) => cut < whole.length).sort((a, b) => a - b), whole.length];
  return edges.slice(1).map((end, n) => whole.subarray(edges[n], end));
}

function fieldsOf(input, headers) {
  const said = input.isEncodingSaid ? ENCODINGS[input.encoding].fields : {};
  let fields = Object.entries({ host: "127.0.0.1:8000", ...headers, ...said });
  for (const { name, isReplaced, value } of input.fields) {
    if (isReplaced) fields = fields.filter(([other]) => other !== name.toLowerCase());
    if (value !== null) fields.push([name, value]);
  }
  return fields;
}

/** A body with what says how long it is, which may be a lie. */
function frame(body, { kind, size }) {
  if (kind === "none") return { field: "", body };
  if (kind === "chunked") {
    const chunks = [];
    for (let at = 0; at < body.length; at += size) {
      const chunk = body.subarray(at, at + size);
      chunks.push(Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from("\r\n"));
    }
    return { field: "transfer-encoding: chunked\r\n", body: Buffer.concat([...chunks, Buffer.from("0\r\n\r\n")]) };
  }
  const length = { length: body.length, short: Math.max(0, body.length - size), long: body.length + size }[kind];
  return { field: `content-length: ${length}\r\n`, body };
}
