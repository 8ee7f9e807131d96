// The decision vectors, through the package; and that their runner sees what it should.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";
import * as vectors from "./vectors.mjs";

const PROGRAM = fileURLToPath(new URL("./vectors.mjs", import.meta.url));
const DIRECTORY = fileURLToPath(new URL("../../../tests/vectors", import.meta.url));
const COUNTS = { rate: 33, concurrency: 18, quota: 7, policy: 4 };

for (const file of vectors.filesOf(DIRECTORY)) {
  test(`every decision is the one of ${path.basename(file)}`, () => {
    const summary = vectors.runFile(file);
    assert.equal(summary.failed, 0, summary.first_difference);
    const scenarios = vectors.scenariosOf(file);
    assert.equal(summary.passed + summary.unsupported, scenarios.length);
    assert.equal(summary.passed, scenarios.filter(vectors.isSupported).length);
  });
}

test("all vectors are run", () => {
  for (const [name, count] of Object.entries(COUNTS)) {
    const summary = vectors.runFile(path.join(DIRECTORY, `${name}.jsonl`));
    assert.ok(summary.passed >= count, name);
    assert.deepEqual(summary.unsupported_names, []);
  }
});

function scenario() {
  const expect = { verdict: "ADMITTED", limit: "1", remaining: "0", reset_after_ns: "1000000000" };
  return {
    name: "one token",
    unix_base_ns: "0",
    limits: [{ kind: "rate", count: "1", period_ns: "1000000000", burst: "1" }],
    policies: { default: [["0", "CALLER"]] },
    steps: [
      { op: "admit", at: "0", permit: "p", expect },
      { op: "settle", at: "0", permit: "p", outcome: "CANCELLED", expect: { status: "OK" } },
    ],
  };
}

test("what is right is no difference", () => {
  assert.equal(vectors.runScenario(scenario()), null);
});

for (const [step, name, value] of [
  [0, "verdict", "REFUSED"],
  [0, "limit", "2"],
  [0, "remaining", "1"],
  [0, "reset_after_ns", "999999999"],
  [0, "retry_after_ns", "1"],
  [0, "by", "1"],
  [0, "reason", "RATE"],
  [0, "what", "0"],
  [1, "status", "ALREADY_SETTLED"],
]) {
  test(`a wrong ${name} is a difference`, () => {
    const wrong = scenario();
    wrong.steps[step].expect[name] = value;
    assert.match(String(vectors.runScenario(wrong)), new RegExp(name));
  });
}

test("a wrong number of admissions is a difference", () => {
  const wrong = scenario();
  Object.assign(wrong.steps[0], { repeat: "3", expect: { admitted: "2", last: { verdict: "REFUSED" } } });
  assert.equal(vectors.runScenario(wrong), "step 0: admitted 1, expected 2");
});

test("an error that is not thrown, and one that blames another field, are differences", () => {
  const missing = { ...scenario(), config_error: "count" };
  assert.match(vectors.runScenario(missing), /succeeds/);
  missing.limits[0].burst = "0";
  assert.match(vectors.runScenario(missing), /blames 'burst'/);
});

test("the program prints a line for each file, and fails where a scenario does", () => {
  const directory = mkdtempSync(path.join(tmpdir(), "callgate-"));
  const run = () => spawnSync(process.execPath, [PROGRAM, directory], { encoding: "utf8" });
  try {
    assert.equal(run().status, 2, "there is nothing to run");
    writeFileSync(path.join(directory, "a.jsonl"), `${JSON.stringify(scenario())}\n`);
    assert.equal(run().status, 0);
    const [wrong, foreign] = [scenario(), scenario()];
    wrong.steps[0].expect.limit = "7";
    foreign.limits[0].kind = "hologram";
    writeFileSync(path.join(directory, "b.jsonl"), `${JSON.stringify(wrong)}\n${JSON.stringify(foreign)}\n`);
    const ran = run();
    assert.equal(ran.status, 1);
    const [first, second] = ran.stdout.trim().split("\n").map((line) => JSON.parse(line));
    const none = { unsupported: 0, first_difference: null, unsupported_names: [] };
    assert.deepEqual(first, { surface: "node", file: "a.jsonl", passed: 1, failed: 0, ...none });
    assert.equal(second.first_difference, "one token: step 0: limit 1, expected 7");
    assert.deepEqual(second.unsupported_names, ["one token"]);
    assert.equal(second.passed, 0);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
