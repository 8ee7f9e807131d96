// Tells of tests what one wants to know: a dot for each, each failure in full, and how many there were.

import { inspect } from "node:util";

export default async function* report(events) {
  const failures = [];
  let count = 0;
  for await (const { type, data } of events) {
    if (type === "test:pass" || type === "test:fail") {
      // A suite, or a file, is no test; but it is told where it fails by itself.
      const isContainer = data.details.type === "suite";
      if (type === "test:fail") failures.push(data);
      if (isContainer && type === "test:pass") continue;
      count += 1;
      yield type === "test:pass" ? "." : "X";
      if (count % 100 === 0) yield ` ${count}\n`;
    } else if (type === "test:stderr" || type === "test:stdout") {
      yield data.message;
    }
  }
  for (const { name, file, line, details } of failures) {
    const error = details.error.cause ?? details.error;
    yield `\n\nfailed: ${name} (${file ?? ""}:${line ?? ""})\n${inspect(error, { depth: 8 })}`;
  }
  yield `\n${count} tests, ${failures.length} failures\n`;
}
