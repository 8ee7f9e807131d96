// The npm package: what is in it, that it installs with nothing but Node, and that it builds itself.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import process from "node:process";
import test, { after, before } from "node:test";
import { fileURLToPath } from "node:url";
import * as callgate from "callgate";

const PACKAGE = fileURLToPath(new URL("..", import.meta.url));
const WORKSPACE = path.resolve(PACKAGE, "..", "..");
const PLATFORM = `${process.platform}-${process.arch}`;

let root; // a directory of its own, outside of the clone
let tarball;

const run = (program, args, options = {}) => execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], ...options });
const which = (program) => run("sh", ["-c", `command -v ${program}`]).trim();

/** A PATH with these programs only. */
function pathOf(name, programs) {
  const directory = path.join(root, name);
  mkdirSync(directory);
  for (const program of programs) symlinkSync(which(program), path.join(directory, program));
  return directory;
}

before(() => {
  root = mkdtempSync(path.join(tmpdir(), "callgate-package-"));
  run(process.execPath, [path.join(PACKAGE, "scripts", "stage.mjs")]);
  // Without scripts: `prepack` would rebuild dist/ under the feet of the other tests.
  const said = run("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", root], { cwd: PACKAGE });
  tarball = path.join(root, JSON.parse(said)[0].filename);
});

after(() => rmSync(root, { recursive: true, force: true }));

/** Installs the tarball in a new directory; returns what npm does and says. */
function install(name, env, ...options) {
  const directory = path.join(root, name);
  mkdirSync(directory);
  writeFileSync(path.join(directory, "package.json"), "{}");
  const args = ["install", "--offline", "--no-audit", "--no-fund", "--foreground-scripts", ...options, tarball];
  return { directory, ...spawnSync("npm", args, { cwd: directory, encoding: "utf8", env: { ...process.env, ...env } }) };
}

const rebuild = (directory, env) =>
  spawnSync("npm", ["rebuild", "--foreground-scripts"], { cwd: directory, encoding: "utf8", env: { ...process.env, ...env } });

const PROGRAM = `
  const gate = new Gate({ limits: { a: new RateLimit(1) }, policies: { p: [["a", "shared"]] } });
  const verdicts = [gate.tryAdmit("p").admitted, gate.tryAdmit("p").admitted];
  console.log(JSON.stringify([verdicts, typeof CallgateCollector, sameClass]));
`;

/** What programs in ESM and in CommonJS find in an installed package. */
function used(directory) {
  writeFileSync(path.join(directory, "esm.mjs"), `
    import { createRequire } from "node:module";
    import { Gate, RateLimit, Refused } from "callgate";
    import { CallgateCollector } from "callgate/prometheus";
    const sameClass = createRequire(import.meta.url)("callgate").Refused === Refused;
    ${PROGRAM}`);
  writeFileSync(path.join(directory, "cjs.cjs"), `
    const { Gate, RateLimit, Refused } = require("callgate");
    const { CallgateCollector } = require("callgate/prometheus");
    import("callgate").then((esm) => { const sameClass = esm.Refused === Refused; ${PROGRAM} });`);
  return ["esm.mjs", "cjs.cjs"].map((file) => JSON.parse(run(process.execPath, [file], { cwd: directory })));
}

const WORKS = [[true, false], "function", true];

test("the tarball has all that it needs, and nothing of the clone besides", () => {
  const names = run("tar", ["-tzf", tarball]).trim().split("\n").map((name) => name.replace(/^package\//, ""));
  for (const name of [
    "package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "LICENSE-THIRD-PARTY", "dist/index.js", "dist/index.mjs", "dist/index.d.ts", "dist/index.d.mts",
    "dist/prometheus.mjs", `prebuilds/${PLATFORM}/callgate.node`, "csrc/engine.h", "scripts/install.mjs", "scripts/build.mjs",
    "source/Cargo.toml", "source/Cargo.lock", "source/.cargo/config.toml", "source/include/callgate.h", "source/core/src/lib.rs", "source/ffi/src/lib.rs",
  ]) {
    assert.ok(names.includes(name), name);
  }
  for (const name of names) assert.doesNotMatch(name, /^(src|test|build|node_modules)\/|target\/|\.tgz$|tsconfig/);
  const sources = readdirSync(path.join(PACKAGE, "csrc")).map((name) => `csrc/${name}`);
  assert.deepEqual(names.filter((name) => name.startsWith("csrc/")).sort(), sources.sort());
});

test("it installs with nothing but Node in PATH, and serves ESM and CommonJS", () => {
  const { directory, status, stderr } = install("bare", { PATH: pathOf("bin-bare", ["node", "npm", "sh"]) });
  assert.equal(status, 0, stderr);
  assert.ok(!existsSync(path.join(directory, "node_modules", "callgate", "build")), "nothing was built");
  for (const found of used(directory)) assert.deepEqual(found, WORKS);
});

test("where no engine came with it, it says what to install, and builds one once that is there", () => {
  const { directory, status } = install("source", {}, "--ignore-scripts");
  assert.equal(status, 0);
  const installed = path.join(directory, "node_modules", "callgate");
  rmSync(path.join(installed, "prebuilds"), { recursive: true });
  const loaded = spawnSync(process.execPath, ["-e", "require('callgate')"], { cwd: directory, encoding: "utf8" });
  assert.match(loaded.stderr, new RegExp(`callgate: there is no engine for ${PLATFORM}.*npm rebuild callgate`, "s"));

  const bin = pathOf("bin-source", ["node", "npm", "sh"]);
  const withoutCargo = rebuild(directory, { PATH: bin });
  assert.notEqual(withoutCargo.status, 0);
  assert.match(withoutCargo.stderr, /cargo is missing: .* install Rust 1\.88 or later/);

  const target = path.join(root, "target");
  const env = { CARGO_TARGET_DIR: target, CARGO_NET_OFFLINE: "true" };
  const withoutCompiler = rebuild(directory, { ...env, CC: "no-such-compiler" });
  assert.notEqual(withoutCompiler.status, 0);
  assert.match(withoutCompiler.stderr, /no-such-compiler is missing: install a C compiler/);

  const built = rebuild(directory, env);
  assert.equal(built.status, 0, built.stderr);
  assert.ok(existsSync(path.join(installed, "build", "callgate.node")));
  for (const found of used(directory)) assert.deepEqual(found, WORKS);
});

test("an engine that does not load here is not taken", () => {
  const { directory, status } = install("broken", {}, "--ignore-scripts");
  assert.equal(status, 0);
  const installed = path.join(directory, "node_modules", "callgate");
  writeFileSync(path.join(installed, "prebuilds", PLATFORM, "callgate.node"), "of another system");
  const again = rebuild(directory, { CALLGATE_LIB_DIR: path.join(root, "nowhere") });
  assert.notEqual(again.status, 0);
  assert.match(again.stderr, /there is no libcallgate\.a in CALLGATE_LIB_DIR/, "it set out to build one");
});

test("its types serve all ways of resolving modules", () => {
  const { directory } = install("types", {});
  const require = path.join(PACKAGE, "node_modules");
  for (const name of ["@types", "prom-client", "undici-types", "@opentelemetry", "tdigest"]) {
    if (existsSync(path.join(require, name))) symlinkSync(path.join(require, name), path.join(directory, "node_modules", name));
  }
  for (const file of ["uses.mts", "uses.cts"]) copyFileSync(path.join(PACKAGE, "test", "types", file), path.join(directory, file));
  const tsc = path.join(require, "typescript", "bin", "tsc");
  for (const [module, resolution, files] of [
    ["node16", "node16", ["uses.mts", "uses.cts"]],
    ["nodenext", "nodenext", ["uses.mts", "uses.cts"]],
    ["esnext", "bundler", ["uses.mts"]],
  ]) {
    const options = ["--noEmit", "--strict", "--types", "node", "--target", "es2022", "--lib", "es2023,esnext.disposable"];
    const args = [tsc, ...options, "--module", module, "--moduleResolution", resolution, ...files];
    const ran = spawnSync(process.execPath, args, { cwd: directory, encoding: "utf8" });
    assert.equal(ran.status, 0, `${resolution}: ${ran.stdout}`);
  }
});

test("the version is that of the header", () => {
  const { version } = JSON.parse(readFileSync(path.join(PACKAGE, "package.json"), "utf8"));
  assert.equal(callgate.version, version);
  const [major, minor, patch] = version.split(".").map(Number);
  const header = readFileSync(path.join(WORKSPACE, "include", "callgate.h"), "utf8");
  assert.match(header, new RegExp(`^#define CALLGATE_VERSION ${(major << 16) | (minor << 8) | patch}$`, "m"));
});

test("a package refuses an engine of another version, and an engine a library of another", () => {
  const { directory } = install("version", {}, "--ignore-scripts");
  const installed = path.join(directory, "node_modules", "callgate");
  const manifest = path.join(installed, "package.json");
  const load = () => spawnSync(process.execPath, ["-e", "require('callgate')"], { cwd: directory, encoding: "utf8" });
  const text = readFileSync(manifest, "utf8");
  writeFileSync(manifest, text.replace(/"version": "[^"]+"/, '"version": "9.8.7"'));
  assert.match(load().stderr, /callgate 9\.8\.7 found an engine of version .*npm rebuild callgate/);
  writeFileSync(manifest, text);
  assert.equal(load().status, 0);

  const header = path.join(installed, "source", "include", "callgate.h");
  writeFileSync(header, readFileSync(header, "utf8").replace(/(define CALLGATE_VERSION) \d+/, "$1 0x7f0000"));
  rmSync(path.join(installed, "prebuilds"), { recursive: true });
  const target = process.env.CARGO_TARGET_DIR ?? path.join(WORKSPACE, "target");
  const built = rebuild(directory, { CALLGATE_LIB_DIR: process.env.CALLGATE_LIB_DIR ?? path.join(target, "release") });
  assert.equal(built.status, 0, built.stderr);
  assert.match(load().stderr, /callgate\.node was built for version 127\.0\.0 of libcallgate, but linked with 0\.1\.0/);
});

test("the engine shows nothing but its entry", { skip: process.platform !== "linux" && "nm of GNU" }, () => {
  const symbols = run("nm", ["-D", "--defined-only", path.join(PACKAGE, "build", "callgate.node")]);
  const names = symbols.trim().split("\n").map((line) => line.split(" ").at(-1));
  assert.deepEqual(names.sort(), ["napi_register_module_v1", "node_api_module_get_api_version_v1"]);
});
