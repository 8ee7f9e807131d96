// Admits one call of a caller and refuses the next, with the package as it was installed.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

import * as callgate from "callgate";
import * as mcp from "callgate/mcp";

import { admitOneRefuseOne } from "./use.cjs";

const require = createRequire(import.meta.url);
const { version } = require("callgate/package.json");
assert.equal(version, process.argv[2]);
// The package is the one beside this file, and not one further up.
const installed = fileURLToPath(new URL("./node_modules/callgate/", import.meta.url));
assert.ok(require.resolve("callgate").startsWith(installed), require.resolve("callgate"));

// One set of classes, whichever way they came in.
assert.equal(callgate.Refused, require("callgate").Refused);
assert.equal(mcp.protect, require("callgate/mcp").protect);
admitOneRefuseOne(callgate);
console.log("ESM and CommonJS: admitted one, refused one");
