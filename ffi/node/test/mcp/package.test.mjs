// What importing callgate/mcp needs: neither an SDK nor a framework.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const BUILT = fileURLToPath(new URL("../../dist/mcp/", import.meta.url));

test("nothing but node and callgate is imported, at run time and by the types", () => {
  const files = readdirSync(BUILT).filter((name) => /\.(js|d\.ts)$/.test(name));
  assert.ok(files.length > 20);
  for (const file of files) {
    const text = readFileSync(`${BUILT}${file}`, "utf8");
    for (const [, name] of text.matchAll(/^(?:[^*\n]*\brequire\(|(?:import|export|\}).* from |.*\bimport\()"([^"]+)"/gm)) {
      assert.match(name, /^(node:|\.\.?\/)/, `${file} imports ${name}`);
    }
  }
});
