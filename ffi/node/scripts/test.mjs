// Runs the tests: all test/**/*.test.mjs, or those that are named.

import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { PACKAGE } from "./build.mjs";

function* testsIn(directory) {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const file = path.join(directory, entry.name);
    if (entry.isDirectory()) yield* testsIn(file);
    else if (entry.name.endsWith(".test.mjs")) yield file;
  }
}

const named = process.argv.slice(2);
const files = named.length > 0 ? named : [...testsIn(path.join(PACKAGE, "test"))].sort();
// Without a terminal, Node's own would print thousands of lines of TAP.
const reporter = `--test-reporter=${path.join(PACKAGE, "test", "reporter.mjs")}`;
const ran = spawnSync(process.execPath, ["--expose-gc", "--test", reporter, ...files], { stdio: "inherit" });
process.exitCode = ran.status ?? 1;
