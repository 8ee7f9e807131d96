/** The addon callgate.node: the engine, and how a thread reaches it. */
import { existsSync } from "node:fs";
import path from "node:path";

/** What the engine has against a configuration: field, sentence, the limit's index, the policy's. */
export type Fault = [field: string | null, sentence: string, limit: number, policy: number];

/** A limit as the engine takes it: its kind, and the fields of that kind in the engine's order. */
export type EngineLimit = readonly bigint[];

/** What one thread has of a gate. The functions take their arguments from `memory`. */
export interface Seat {
  readonly memory: ArrayBuffer;
  admit(this: void): void;
  admitMany(this: void, buffer: ArrayBuffer, count: number): void;
  peek(this: void): void;
  settle(this: void): void;
  key(this: void, bytes: Uint8Array, domain: number): void;
  texts(this: void): void;
  seed(this: void): void;
  useZones(this: void, whether: boolean): void;
  window(this: void): void;
  windowsHold(this: void): void;
  stats(this: void): void;
  guards(this: void): void;
  decisions(this: void): void;
  metrics(this: void): string | undefined;
  reconfigure(this: void, limit: EngineLimit, description: string): void;
  close(this: void): void;
}

interface Addon {
  readonly version: string;
  readonly isLockFree: boolean;
  open(
    limitNames: readonly string[],
    limits: readonly EngineLimit[],
    policyNames: readonly string[],
    policies: readonly (readonly (readonly [number, number])[])[],
    capacity: number,
    secret: Uint8Array,
    id: Uint8Array,
    description: string,
  ): Seat | Fault | number;
  /** The second is how the gate was made, and of each limit what it was changed to since. */
  attach(id: Uint8Array): [Seat, [string, ...(string | null)[]]] | null;
  checkLimit(limit: EngineLimit): Fault | null;
  errorText(status: number): Fault;
}

/** The one that was built here, else the one that came with the package. */
function addonPath(): string {
  const root = path.join(__dirname, "..");
  const built = path.join(root, "build", "callgate.node");
  if (existsSync(built)) return built;
  const platform = `${process.platform}-${process.arch}`;
  const prebuilt = path.join(root, "prebuilds", platform, "callgate.node");
  if (existsSync(prebuilt)) return prebuilt;
  throw new Error(
    `callgate: there is no engine for ${platform}. Its install script builds one, with Rust 1.88 or` +
      " later and a C compiler: run `npm rebuild callgate` (without --ignore-scripts)",
  );
}

function load(): Addon {
  const file = addonPath();
  const addon = require(file) as Addon;
  const { version } = require("../package.json") as { version: string };
  if (addon.version === version) return addon;
  throw new Error(
    `callgate ${version} found an engine of version ${addon.version} in ${file}: run` +
      " `npm rebuild callgate`",
  );
}

export const addon = load();
