// The install script of the npm package: it takes the engine that the package brings where that
// loads here, and else builds one from the sources that it carries as well.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import process from "node:process";
import { BuildError, build, IS_CLONE, PACKAGE } from "./build.mjs";

/** Whether an addon loads: tried in a process of its own, which a bad one may end. */
function loads(file) {
  const program = "process.exitCode = require(process.argv[1]).version ? 0 : 1";
  return existsSync(file) && spawnSync(process.execPath, ["-e", program, file]).status === 0;
}

const prebuilt = path.join(PACKAGE, "prebuilds", `${process.platform}-${process.arch}`, "callgate.node");

// In the clone, `npm run build` builds all there is.
if (!IS_CLONE && !loads(prebuilt)) {
  try {
    console.log(`callgate: no engine for ${process.platform}-${process.arch} came with it; building one`);
    build();
  } catch (error) {
    if (!(error instanceof BuildError)) throw error;
    console.error(`callgate: ${error.message}`);
    process.exitCode = 1;
  }
}
