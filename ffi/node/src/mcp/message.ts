/**
 * Reads a JSON-RPC body as the MCP SDKs read it, and says which tool calls it holds.
 *
 * The SDKs and the frameworks under them all end in `JSON.parse`, but decode the bytes before it in
 * different ways: some drop a byte order mark, some put U+FFFD for what is not UTF-8, some go by a
 * charset. So the rule here is the part on which all agree; what this module cannot read is refused
 * instead of guessed at.
 *
 * Pure functions; nothing here knows of HTTP, of a gate or of a clock.
 */

import { isText } from "../config.js";
import { afterSpace, elementsAt, membersAt } from "./json-text.js";

export const METERED_METHOD = "tools/call";
export const METERED_METHODS: ReadonlySet<string> = new Set([METERED_METHOD]);

export const PARSE_ERROR = -32700;
export const INVALID_REQUEST = -32600;

/** An id as JSON-RPC has it, echoed with its type: `7` and `"7"` are two ids. A bigint is an integer
 * that no number holds exactly. */
export type RequestId = string | number | bigint;

/** The body is not one unambiguous JSON text, so that what a server would run is not known. `code`
 * is the JSON-RPC error code to answer with. */
export class UnreadableMessage extends Error {
  override readonly name = "UnreadableMessage";

  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

/** One metered message, or one of a batch. */
export interface Entry {
  readonly method: string;
  /** Undefined where a call names none (the server will turn it away, but a malformed call is not a
   * free one), and for every other method. */
  readonly tool: string | undefined;
  /** It says that it goes on with a call of several rounds, which anybody can say. */
  readonly isContinuation: boolean;
}

/** The metered part of one JSON-RPC message or batch. */
export interface ToolCalls {
  /** One for each `tools/call` entry, and each entry of another metered method, in order. */
  readonly entries: readonly Entry[];
  /** The id that a refusal echoes: undefined for a batch, and where the message has no valid id. */
  readonly requestId: RequestId | undefined;
}

/** A message as it was parsed, and its text where that is known. */
export interface Message {
  readonly value: unknown;
  readonly text?: string;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The JSON value of `body`. Throws `UnreadableMessage` for anything but one UTF-8 JSON text. */
export function parse(body: Uint8Array | string): Message {
  let text: string;
  try {
    text = typeof body === "string" ? body : decoder.decode(body);
  } catch {
    throw new UnreadableMessage(PARSE_ERROR, "Parse error: the body is not UTF-8");
  }
  try {
    return { value: JSON.parse(text) as unknown, text };
  } catch {
    // The text is not quoted: it is the caller's data, and may hold secrets.
    throw new UnreadableMessage(PARSE_ERROR, "Parse error: the body is not valid JSON");
  }
}

/**
 * The entries of a message or batch that call one of `methods`; undefined without any.
 *
 * An entry counts by its method alone, whatever else is wrong with it, so that there is no
 * malformation that one reader forgives and that is not counted here.
 */
export function toolCalls(
  { value, text }: Message,
  methods: ReadonlySet<string> = METERED_METHODS,
): ToolCalls | undefined {
  if (typeof value === "string") {
    // The older transport of SDK 1.x parses a string once more.
    throw new UnreadableMessage(INVALID_REQUEST, "Invalid request: the message is a string");
  }
  const isBatch = Array.isArray(value);
  const all = isBatch ? (value as unknown[]) : [value];
  const start = text === undefined ? 0 : afterSpace(text, 0);
  const starts = text !== undefined && isBatch ? elementsAt(text, start) : [start];
  const metered: { call: Record<string, unknown>; at: number }[] = [];
  all.forEach((entry, index) => {
    if (typeof entry !== "object" || entry === null || Array.isArray(entry)) return;
    const call = entry as Record<string, unknown>;
    const at = starts[index]!;
    const isMetered = typeof call.method === "string" && methods.has(call.method);
    if (text !== undefined) refuseRepeatedNames(text, at, isMetered);
    if (isMetered) metered.push({ call, at });
  });
  if (metered.length === 0) return undefined;
  const [{ call, at }] = metered as [(typeof metered)[0]];
  return {
    entries: metered.map((each) => entryOf(each.call.method as string, each.call.params)),
    requestId: isBatch ? undefined : echoedId(call.id, text, at),
  };
}

/** The entry for a message with these parameters, of whatever type they are. */
export function entryOf(method: string, params: unknown): Entry {
  if (method !== METERED_METHOD || typeof params !== "object" || params === null) {
    return { method, tool: undefined, isContinuation: false };
  }
  const { name, inputResponses } = params as Record<string, unknown>;
  return {
    method,
    // JSON can spell a half of a character, which no identity can be made of.
    tool: typeof name === "string" && name !== "" && isText(name) ? name : undefined,
    isContinuation: inputResponses !== undefined && inputResponses !== null,
  };
}

/** `value` if JSON-RPC can carry it as an id, else undefined. Where the text of the message that
 * begins at `at` is known, an integer too large for a number is read from it. */
export function echoedId(value: unknown, text?: string, at = 0): RequestId | undefined {
  if (typeof value === "string") return value;
  if (typeof value !== "number") return undefined;
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && text !== undefined) {
    const member = membersAt(text, at).find(({ name }) => name === "id");
    const digits = member && text.slice(member.start, member.end);
    if (digits !== undefined && /^-?\d+$/.test(digits)) return BigInt(digits);
  }
  return Number.isFinite(value) ? value : undefined;
}

/** Readers disagree on which value of a repeated name counts: at least, on which one they look at. */
function refuseRepeatedNames(text: string, at: number, isMetered: boolean): void {
  const members = membersAt(text, at);
  if (hasRepeated(members)) {
    throw new UnreadableMessage(
      INVALID_REQUEST,
      "Invalid request: a name occurs twice in the message",
    );
  }
  const params = isMetered ? members.find(({ name }) => name === "params") : undefined;
  if (params !== undefined && text[params.start] === "{" && hasRepeated(membersAt(text, params.start))) {
    throw new UnreadableMessage(
      INVALID_REQUEST,
      "Invalid request: a name occurs twice in the parameters",
    );
  }
}

function hasRepeated(members: readonly { name: string }[]): boolean {
  if (members.length > 8) return new Set(members.map(({ name }) => name)).size < members.length;
  return members.some(({ name }, index) => members.findIndex((other) => other.name === name) < index);
}
