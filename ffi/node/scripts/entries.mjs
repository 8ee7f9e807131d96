// Writes the ESM entries beside the CommonJS ones: they hand on what is there by name, so that a
// program that loads both has one class Refused, not two.

import { existsSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { PACKAGE } from "./build.mjs";

const require = createRequire(import.meta.url);

for (const entry of ["index", "prometheus", "mcp/index"]) {
  const base = path.join(PACKAGE, "dist", entry);
  if (!existsSync(`${base}.js`)) continue;
  const names = Object.keys(require(`${base}.js`)).filter((name) => name !== "__esModule").sort();
  const file = `./${path.basename(entry)}.js`;
  writeFileSync(`${base}.mjs`, `import all from "${file}";\nexport const {\n  ${names.join(",\n  ")},\n} = all;\n`);
  writeFileSync(`${base}.d.mts`, `export * from "${file}";\n`);
}
