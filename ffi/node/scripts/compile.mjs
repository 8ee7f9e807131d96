// Compiles src/ to dist/, and writes the ESM entries beside the CommonJS ones: they hand on what is
// there by name, so that a program that loads both has one class Refused, not two.

import { spawnSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import process from "node:process";
import { PACKAGE } from "./build.mjs";

const require = createRequire(import.meta.url);
const DIST = path.join(PACKAGE, "dist");

function writeEntry(entry) {
  const base = path.join(DIST, entry);
  if (!existsSync(`${base}.js`)) return;
  const names = Object.keys(require(`${base}.js`)).filter((name) => name !== "__esModule").sort();
  const file = `./${path.basename(entry)}.js`;
  writeFileSync(`${base}.mjs`, `import all from "${file}";\nexport const {\n  ${names.join(",\n  ")},\n} = all;\n`);
  writeFileSync(`${base}.d.mts`, `export * from "${file}";\n`);
}

rmSync(DIST, { recursive: true, force: true }); // else files that are gone would stay in the package
const compiler = require.resolve("typescript/bin/tsc");
const ran = spawnSync(process.execPath, [compiler, "--project", PACKAGE], { stdio: "inherit" });
process.exitCode = ran.status ?? 1;
if (ran.status === 0) for (const entry of ["index", "prometheus", "mcp/index"]) writeEntry(entry);
