// Puts into the package what `npm pack` is to take: the engine for this platform, and the sources
// from which the install script builds it on others.

import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { PACKAGE } from "./build.mjs";

const CLONE = path.resolve(PACKAGE, "..", "..");
const SOURCE = path.join(PACKAGE, "source");
const SOURCES = [
  ".cargo/config.toml", "Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT", "include/callgate.h",
  "core/Cargo.toml", "core/src", "ffi/Cargo.toml", "ffi/build.rs", "ffi/src",
];

function stageEngine() {
  const target = path.join(PACKAGE, "prebuilds", `${process.platform}-${process.arch}`);
  rmSync(path.join(PACKAGE, "prebuilds"), { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  cpSync(path.join(PACKAGE, "build", "callgate.node"), path.join(target, "callgate.node"));
}

/** The workspace without what only a clone has. */
function stageSources() {
  rmSync(SOURCE, { recursive: true, force: true });
  for (const name of SOURCES) cpSync(path.join(CLONE, name), path.join(SOURCE, name), { recursive: true });
  const manifest = readFileSync(path.join(CLONE, "Cargo.toml"), "utf8")
    .replace(/^members = .*$/m, 'members = ["core", "ffi"]')
    .replace(/^(# [^\n]*\n)*default-members = .*\n/m, "")
    .replace(/^exclude = .*\n/m, "");
  writeFileSync(path.join(SOURCE, "Cargo.toml"), manifest);
  const core = path.join(SOURCE, "core", "Cargo.toml");
  writeFileSync(core, readFileSync(core, "utf8").replace(/^\[dev-dependencies\]\n(?:[^[].*\n|\n)*/m, ""));
  // The same versions, without the packages that nothing here uses any more.
  const ran = spawnSync("cargo", ["update", "--workspace", "--offline", "--quiet"], { cwd: SOURCE, stdio: "inherit" });
  if (ran.status !== 0) throw new Error("cargo could not prune source/Cargo.lock");
}

stageEngine();
stageSources();
