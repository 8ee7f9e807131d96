/** Where things are in a JSON text, for what `JSON.parse` does not tell. The text must be valid. */

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const SPACE = 0x20;

/** One member of an object: its name, and where its value begins and ends. */
export interface Member {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

/** The members of the object that begins at `at`, in order, repeated ones included. */
export function membersAt(text: string, at: number): Member[] {
  const members: Member[] = [];
  let next = afterSpace(text, at + 1);
  while (text.charCodeAt(next) === QUOTE) {
    const nameEnd = afterString(text, next);
    const start = afterSpace(text, afterSpace(text, nameEnd) + 1);
    const end = afterValue(text, start);
    members.push({ name: unquoted(text, next, nameEnd), start, end });
    next = afterSpace(text, end);
    if (text.charCodeAt(next) === COMMA) next = afterSpace(text, next + 1);
  }
  return members;
}

/** Where the values of the array that begins at `at` begin, in order. */
export function elementsAt(text: string, at: number): number[] {
  const starts: number[] = [];
  let next = afterSpace(text, at + 1);
  while (text.charCodeAt(next) !== CLOSE_ARRAY) {
    starts.push(next);
    next = afterSpace(text, afterValue(text, next));
    if (text.charCodeAt(next) === COMMA) next = afterSpace(text, next + 1);
  }
  return starts;
}

/** The first position from `at` on that is not white space, of which all is below `SPACE` or it. */
export function afterSpace(text: string, at: number): number {
  let next = at;
  while (text.charCodeAt(next) <= SPACE) next += 1;
  return next;
}

function unquoted(text: string, start: number, end: number): string {
  const inner = text.slice(start + 1, end - 1);
  return inner.includes("\\") ? (JSON.parse(text.slice(start, end)) as string) : inner;
}

function afterString(text: string, start: number): number {
  for (let end = start + 1; ; end += 1) {
    end = text.indexOf('"', end);
    let first = end;
    while (text.charCodeAt(first - 1) === BACKSLASH) first -= 1;
    if ((end - first) % 2 === 0) return end + 1;
  }
}

function afterValue(text: string, start: number): number {
  const first = text.charCodeAt(start);
  if (first === QUOTE) return afterString(text, start);
  let depth = 0;
  let at = start;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = afterString(text, at);
      continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
    else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      if (depth === 0) return at;
      depth -= 1;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (code === COMMA || code <= SPACE)) return at;
    // At the end of the text, a number or a word has ended, too.
    if (Number.isNaN(code)) return at;
    at += 1;
  }
}
