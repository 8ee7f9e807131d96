/** Which policy a call is charged under: its caller's class decides, unless the call says more. */

import { ConfigError, type Gate, type Key } from "../index.js";
import { kindOf, listed, quoted } from "../text.js";
import { ANONYMOUS, type Caller, FORWARDED_BEARER, withScope } from "./callers.js";
import { type Entry, METERED_METHOD, METERED_METHODS } from "./message.js";

/** A policy's name, for callers of every class; or a policy's name for each class, by the name of the
 * class's own policy: `{ authenticated: "expensive" }`. Classes that are left out stay as they are. */
export type PolicyChoice = string | Readonly<Record<string, string>>;

/** Under a policy for every class, callers whom nobody has verified are one caller, with this name:
 * else somebody without a token would have as many allowances as they can think of tokens. */
const UNVERIFIED = "\0unverified";

/** Charged for a call that names no tool: no tool can have this name, and a key is never empty. */
const UNNAMED_TOOL = "\0unnamed";

/** What calls are charged under: the same object for calls that one admission is enough for. */
export interface Charged {
  readonly policy: string;
  readonly caller: string | Uint8Array | Key | undefined;
  readonly tool: string | undefined;
}

export interface Choices {
  readonly tools?: Readonly<Record<string, PolicyChoice>> | undefined;
  readonly methods?: Readonly<Record<string, PolicyChoice>> | undefined;
  readonly continuations?: PolicyChoice | undefined;
}

/** The choices of one middleware, checked against its gate. */
export class PolicyChooser {
  readonly methods: ReadonlySet<string>;
  readonly #tools: ReadonlyMap<string, PolicyChoice>;
  readonly #methods: ReadonlyMap<string, PolicyChoice>;
  readonly #continuations: PolicyChoice | undefined;
  readonly #perCaller: ReadonlySet<string>;
  readonly #perTool: ReadonlySet<string>;

  /** Throws a `ConfigError` where a choice names a policy that the gate does not have. */
  constructor(gate: Gate, { tools, methods, continuations }: Choices) {
    this.#tools = new Map(Object.entries(tools ?? {}));
    this.#methods = new Map(Object.entries(methods ?? {}));
    this.#continuations = continuations;
    if (this.#methods.has(METERED_METHOD)) {
      throw new ConfigError(`methods can't have ${quoted(METERED_METHOD)}: see tools for its policies`, "methods");
    }
    for (const [name, choice] of this.#tools) check(gate, "tools", name, choice);
    for (const [name, choice] of this.#methods) check(gate, "methods", name, choice);
    if (continuations !== undefined) check(gate, "continuations", undefined, continuations);
    this.methods = new Set([...METERED_METHODS, ...this.#methods.keys()]);
    this.#perCaller = withScope(gate, ["caller", "caller_tool"]);
    this.#perTool = withScope(gate, ["tool", "caller_tool"]);
  }

  /** What `caller` is charged under for these entries, and how many of them: one for each policy and,
   * where it keeps state by tool, for each tool. Entries for which nothing is asked are left out. */
  charged(entries: readonly Entry[], caller: Caller): Map<Charged, number> {
    const known = new Map<string, Charged>();
    const counts = new Map<Charged, number>();
    for (const entry of entries) {
      const found = this.#charged(entry, caller);
      if (found === undefined) continue;
      // The caller of a message is one, or nobody verified.
      const name = JSON.stringify([found.policy, found.tool, found.caller === caller.identity]);
      const charged = known.get(name) ?? found;
      known.set(name, charged);
      counts.set(charged, (counts.get(charged) ?? 0) + 1);
    }
    return counts;
  }

  #charged(entry: Entry, caller: Caller): Charged | undefined {
    for (const choice of this.#choices(entry)) {
      if (typeof choice === "string") {
        const isVerified = caller.policy !== ANONYMOUS && caller.policy !== FORWARDED_BEARER;
        return this.#under(choice, isVerified ? caller.identity : UNVERIFIED, entry);
      }
      const policy = Object.hasOwn(choice, caller.policy) ? choice[caller.policy] : undefined;
      if (policy !== undefined) return this.#under(policy, caller.identity, entry);
    }
    if (this.#methods.has(entry.method)) return undefined;
    return { policy: caller.policy, caller: caller.identity, tool: this.#tool(caller.policy, entry) };
  }

  /** The first that has something to say about the caller's class decides. */
  #choices(entry: Entry): PolicyChoice[] {
    const isCall = entry.method === METERED_METHOD;
    const choices = isCall
      ? [
          entry.isContinuation ? this.#continuations : undefined,
          entry.tool === undefined ? undefined : this.#tools.get(entry.tool),
        ]
      : [this.#methods.get(entry.method)];
    return choices.filter((choice) => choice !== undefined);
  }

  #under(policy: string, identity: Charged["caller"], entry: Entry): Charged {
    const caller = this.#perCaller.has(policy) ? (identity ?? UNVERIFIED) : undefined;
    return { policy, caller, tool: this.#tool(policy, entry) };
  }

  /** Each tool's state is charged for its own calls; where none is kept, for all at once. */
  #tool(policy: string, entry: Entry): string | undefined {
    return this.#perTool.has(policy) ? (entry.tool ?? UNNAMED_TOOL) : undefined;
  }
}

function check(gate: Gate, option: string, key: string | undefined, choice: unknown): void {
  const where = key === undefined ? option : `${option}[${quoted(key)}]`;
  if (typeof choice !== "string" && (typeof choice !== "object" || choice === null)) {
    throw new TypeError(`${where} must be a policy's name or an object of them, not ${kindOf(choice)}`);
  }
  const { policies } = gate;
  const names: unknown[] = typeof choice === "string" ? [choice] : Object.entries(choice).flat();
  for (const name of names) {
    if (!policies.has(name as string)) {
      const known = listed(policies.keys());
      throw new ConfigError(`${where}: the gate has no policy named ${quoted(String(name))}; it has ${known}`, option);
    }
  }
}
