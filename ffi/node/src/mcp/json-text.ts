/** Where things are in a JSON text, for what `JSON.parse` does not tell. The text must be valid. */

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
  while (text[next] === '"') {
    const nameEnd = afterString(text, next);
    const name = JSON.parse(text.slice(next, nameEnd)) as string;
    const start = afterSpace(text, afterSpace(text, nameEnd) + 1);
    const end = afterValue(text, start);
    members.push({ name, start, end });
    next = afterSpace(text, end);
    if (text[next] === ",") next = afterSpace(text, next + 1);
  }
  return members;
}

/** Where the values of the array that begins at `at` begin, in order. */
export function elementsAt(text: string, at: number): number[] {
  const starts: number[] = [];
  let next = afterSpace(text, at + 1);
  while (text[next] !== "]") {
    starts.push(next);
    next = afterSpace(text, afterValue(text, next));
    if (text[next] === ",") next = afterSpace(text, next + 1);
  }
  return starts;
}

/** The first position from `at` on that is not white space. */
export function afterSpace(text: string, at: number): number {
  let next = at;
  while (/[ \t\r\n]/.test(text.charAt(next))) next += 1;
  return next;
}

function afterString(text: string, start: number): number {
  for (let end = start + 1; ; end += 1) {
    end = text.indexOf('"', end);
    let backslashes = 0;
    while (text[end - 1 - backslashes] === "\\") backslashes += 1;
    if (backslashes % 2 === 0) return end + 1;
  }
}

function afterValue(text: string, start: number): number {
  const first = text[start];
  if (first === '"') return afterString(text, start);
  const mark = /["{}[\]]/g;
  if (first === "{" || first === "[") {
    let depth = 0;
    mark.lastIndex = start;
    for (;;) {
      const { 0: found, index } = mark.exec(text)!;
      if (found === '"') mark.lastIndex = afterString(text, index);
      else depth += found === "{" || found === "[" ? 1 : -1;
      if (depth === 0) return mark.lastIndex;
    }
  }
  const literal = /[-+.\w]+/y;
  literal.lastIndex = start;
  literal.exec(text);
  return literal.lastIndex;
}
