/** What is known, within a metered request or call, of those around it. */

import { AsyncLocalStorage } from "node:async_hooks";

import type { Gate } from "../index.js";
import type { Caller } from "./callers.js";
import type { Receipt } from "./charge.js";
import type { Usage } from "./usage.js";

/** Marks the calls that a charged call makes within the server, which are not the client's. */
export class Running {
  /** What a call leaves behind keeps its context, and calls for its own account. */
  isOver = false;

  constructor(
    readonly gate: Gate,
    readonly outer: Running | undefined,
  ) {}
}

export interface Context {
  /** Of the metered calls that are going on here, outermost first. */
  readonly usages: readonly Usage[];
  /** What the present request has paid for. */
  readonly receipts: readonly Receipt[];
  /** Who makes the present request, as an API key or somebody's own authentication says. */
  readonly caller: Caller | undefined;
  readonly running: Running | undefined;
}

const storage = new AsyncLocalStorage<Context>();
const outside: Context = { usages: [], receipts: [], caller: undefined, running: undefined };

export function currentContext(): Context {
  return storage.getStore() ?? outside;
}

/** Whom the API key of the present request stands for, or whom your own authentication has put under
 * `CALLER`: for tools that want to know. Undefined without either, and outside of requests. */
export function currentCaller(): Caller | undefined {
  return currentContext().caller;
}

/** Runs `body`, and whatever it starts, in the present context with these changes. */
export function within<Result>(changes: Partial<Context>, body: () => Result): Result {
  return storage.run({ ...currentContext(), ...changes }, body);
}
