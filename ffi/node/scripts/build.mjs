// Builds build/callgate.node: cargo makes libcallgate.a, and the C compiler links the addon with it.
//
// The sources are those of the clone, or in the npm package those under source/. CARGO and CC name
// the tools where they are not in PATH; CALLGATE_LIB_DIR names where a built libcallgate.a is.

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

export const PACKAGE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const CLONE = path.resolve(PACKAGE, "..", "..");
const LIBRARY = "libcallgate.a";

/** A fault of the surroundings: its message says what to do. */
export class BuildError extends Error {}

/** Whether this is callgate's source tree, not a package that is installed somewhere. */
export const IS_CLONE = path.relative(CLONE, PACKAGE) === path.join("ffi", "node") && existsSync(path.join(CLONE, "ffi", "Cargo.toml"));

/** Where the Rust sources are: in the clone, or in the package. */
function sources() {
  const root = IS_CLONE ? CLONE : path.join(PACKAGE, "source");
  if (existsSync(path.join(root, "ffi", "Cargo.toml"))) return root;
  throw new BuildError("the sources of libcallgate are missing: neither is this callgate's source tree, nor does the package carry them");
}

/** Runs a program of the build; says what to install where there is none. */
function run(program, args, { advice, ...options }) {
  const ran = spawnSync(program, args, { encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "inherit"], ...options });
  if (ran.error?.code === "ENOENT") throw new BuildError(`${program} is missing: ${advice}`);
  if (ran.error) throw new BuildError(`${program}: ${ran.error.message}`);
  if (ran.status !== 0) throw new BuildError(`${program} failed with status ${ran.status ?? ran.signal}`);
  return ran.stdout;
}

/** libcallgate.a: the one that CALLGATE_LIB_DIR names, or else a build of it. */
function library(root) {
  const given = process.env.CALLGATE_LIB_DIR;
  if (given) {
    const archive = path.resolve(given, LIBRARY);
    if (existsSync(archive)) return archive;
    throw new BuildError(`there is no ${LIBRARY} in CALLGATE_LIB_DIR, ${given}`);
  }
  const args = ["build", "--locked", "--release", "--package", "callgate-ffi", "--message-format=json-render-diagnostics"];
  // In the directory of the sources, so that cargo finds the flags in its .cargo/config.toml.
  const output = run(process.env.CARGO || "cargo", args, {
    cwd: root,
    advice: "callgate's engine is written in Rust; install Rust 1.88 or later (https://rustup.rs), or say where a built libcallgate.a is in CALLGATE_LIB_DIR",
  });
  for (const line of output.split("\n")) {
    if (!line.startsWith("{")) continue;
    const archive = (JSON.parse(line).filenames ?? []).find((name) => path.basename(name) === LIBRARY);
    if (archive) return archive;
  }
  throw new BuildError(`cargo built no ${LIBRARY}`);
}

/** The headers of this Node, or of the package node-api-headers where Node came without. */
function nodeHeaders() {
  const own = path.resolve(path.dirname(process.execPath), "..", "include", "node");
  if (existsSync(path.join(own, "node_api.h"))) return own;
  try {
    return createRequire(import.meta.url)("node-api-headers").include_dir;
  } catch {
    throw new BuildError(`the headers of Node are missing: ${own} has no node_api.h. Install them (Debian: libnode-dev; or Node from nodejs.org), or beside callgate the package node-api-headers`);
  }
}

/** Builds the addon from what there is, and returns its path. */
export function build() {
  if (process.platform !== "linux" && process.platform !== "darwin") {
    throw new BuildError(`${process.platform} is not supported yet: Linux and macOS are`);
  }
  const root = sources();
  const archive = library(root);
  const csrc = path.join(PACKAGE, "csrc");
  const files = readdirSync(csrc).filter((name) => name.endsWith(".c")).sort();
  const target = path.join(PACKAGE, "build", "callgate.node");
  const link = process.platform === "darwin"
    ? ["-undefined", "dynamic_lookup", "-Wl,-dead_strip"]
    : ["-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", "-Wl,--as-needed", "-pthread"];
  mkdirSync(path.dirname(target), { recursive: true });
  // Beside its place and then into it: a process that has the old one loaded keeps it.
  const fresh = `${target}.${process.pid}`;
  run(process.env.CC || "cc", [
    "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden",
    `-I${path.join(root, "include")}`, `-I${nodeHeaders()}`,
    ...files.map((name) => path.join(csrc, name)), archive, ...link, "-o", fresh,
  ], { advice: "install a C compiler (Debian: apt install gcc libc6-dev; macOS: xcode-select --install), or name one in CC" });
  renameSync(fresh, target);
  return target;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(`callgate: built ${path.relative(process.cwd(), build())}`);
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    console.error(`callgate: ${error.message}`);
    process.exitCode = 1;
  }
}
