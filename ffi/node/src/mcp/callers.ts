/**
 * Who calls: the policy that applies, and the identity that is charged under it.
 *
 * Three classes, and no fourth: a *verified* caller, whose access token the server's own
 * authentication checked; a *forwarded bearer*, which nobody here has checked; and *anonymous*. An
 * absent caller is anonymous by name, never an empty key, and never pooled with callers that have one.
 */

import { ConfigError, type Gate, Key } from "../index.js";
import { isText } from "../config.js";
import { kindOf, listed, quoted } from "../text.js";

export const AUTHENTICATED = "authenticated";
export const ANONYMOUS = "anonymous";
export const FORWARDED_BEARER = "forwarded-bearer";

/** The property of a request (node's or a framework's, or a fetch `Request`) under which whoever has
 * verified its caller puts the `Caller`. */
export const CALLER: unique symbol = Symbol.for("callgate.caller") as never;

/** The policy to apply, and the identity to charge (undefined where the policy asks for none). */
export class Caller {
  constructor(
    readonly policy: string,
    readonly identity?: string | Uint8Array | Key,
  ) {}
}

/** What a caller function may answer: an identity (charged under `authenticated`), a `Caller` that
 * names its policy too, or null or undefined, which mean `anonymous`. So does what is empty. */
export type Identity = string | Uint8Array | Key | Caller | null | undefined;

/** Answers who calls. `source` is the framework's request, a fetch `Request`, Hono's context, or the
 * SDK's `extra` or `ctx` where a server is metered itself. */
export type CallerFunction<Source = unknown> = (source: Source) => Identity | Promise<Identity>;

/** What is known of a request at this point of the server's stack. */
export interface RequestFacts {
  /** The value of a header field, by its lower-case name. */
  header(name: string): string | undefined;
  /** What the SDKs' authentication leaves of a verified access token: their `AuthInfo`. */
  readonly authInfo?: unknown;
  /** Whom a middleware has verified. */
  readonly caller?: unknown;
}

/**
 * The caller of a request, from what is known at this point of the server's stack.
 *
 * A `Caller` that was put there is taken as it is. A verified access token is charged under
 * `authenticated`. A bearer that nobody verified is charged under `forwarded-bearer`. Everything
 * else, and every transport without HTTP (no facts), is `anonymous`.
 */
export function callerOfRequest(facts: RequestFacts | undefined): Caller {
  if (facts === undefined) return new Caller(ANONYMOUS);
  if (facts.caller instanceof Caller) return facts.caller;
  const identity = tokenIdentity(facts.authInfo);
  if (identity !== undefined) return new Caller(AUTHENTICATED, identity);
  const token = bearerToken(facts);
  if (token === undefined) return new Caller(ANONYMOUS);
  // The prefix keeps an unverified bearer from being spelled like a verified identity, whose bucket
  // it would drain.
  return new Caller(FORWARDED_BEARER, Buffer.from(`\0bearer\0${token}`, "latin1"));
}

/**
 * The principal of a verified access token (the SDKs' `AuthInfo`); undefined where there is none.
 *
 * A token with a subject (`extra.sub`) is charged to that subject, whichever client it came through:
 * else a user who registers one more client would have one more bucket. A subject is unique per issuer
 * only, so that the issuer (`extra.iss`) is part of it. A token without a subject is charged to its
 * client.
 */
export function tokenIdentity(authInfo: unknown): string | undefined {
  const { clientId, extra } = record(authInfo);
  if (typeof clientId !== "string" || clientId === "") return undefined;
  const { iss, sub } = record(extra);
  const principal = sub ? ["subject", sub] : ["client", clientId];
  // Quoted, the parts stay apart: no client can be spelled to equal somebody's subject.
  return `token:${JSON.stringify([iss ?? null, ...principal])}`;
}

/** The token of `Authorization: Bearer`; of several fields the first decides, as it does for the
 * SDKs' own authentication. */
export function bearerToken(facts: RequestFacts): string | undefined {
  const [first = ""] = (facts.header("authorization") ?? "").split(",", 1);
  const [, scheme = "", token = ""] = /^(\S*)\s*(.*)$/.exec(first.trim()) ?? [];
  return scheme.toLowerCase() === "bearer" && token !== "" ? token : undefined;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** Turns a request into a `Caller` whose policy the gate has. */
export class CallerResolver {
  readonly #function: CallerFunction<never> | undefined;
  readonly #hasForwarded: boolean;
  readonly #perCaller: ReadonlySet<string>;

  /** Throws a `ConfigError` where the gate lacks a policy that calls would need. */
  constructor(gate: Gate, callerFunction?: CallerFunction<never>) {
    if (callerFunction !== undefined && typeof callerFunction !== "function") {
      throw new TypeError(`caller must be a function that answers who calls, not ${kindOf(callerFunction)}`);
    }
    const policies = gate.policies;
    const needed = callerFunction === undefined ? [ANONYMOUS, AUTHENTICATED] : [ANONYMOUS];
    for (const policy of needed) {
      if (!policies.has(policy)) {
        const known = listed(policies.keys());
        throw new ConfigError(`the gate needs a policy named ${quoted(policy)}; it has ${known}`, "policies");
      }
    }
    this.#perCaller = withScope(gate, ["caller", "caller_tool"]);
    if (this.#perCaller.has(ANONYMOUS)) {
      const text = `policy ${quoted(ANONYMOUS)} has a limit per caller, and there is no caller to charge`;
      throw new ConfigError(text, "scope", { policy: ANONYMOUS });
    }
    this.#function = callerFunction;
    this.#hasForwarded = policies.has(FORWARDED_BEARER);
  }

  /** The caller of one request: by the user's function where there is one, else by the facts. */
  async resolve(source: unknown, facts: RequestFacts | undefined): Promise<Caller> {
    if (this.#function !== undefined) return this.#whole(asCaller(await this.#function(source as never)));
    const caller = callerOfRequest(facts);
    if (caller.policy === FORWARDED_BEARER && !this.#hasForwarded) return new Caller(ANONYMOUS);
    return this.#whole(caller);
  }

  /** A caller that the gate can decide about: without an identity nobody has a state of his own. */
  #whole(caller: Caller): Caller {
    const { policy, identity } = caller;
    if (typeof identity === "string" && !isText(identity)) return new Caller(policy, Buffer.from(identity));
    const isEmpty = identity === undefined || identity === null || (!(identity instanceof Key) && identity.length === 0);
    if (!isEmpty) return caller;
    return this.#perCaller.has(policy) ? new Caller(ANONYMOUS) : new Caller(policy);
  }
}

/** The policies that keep state by one of these. */
export function withScope(gate: Gate, scopes: readonly string[]): Set<string> {
  const found = new Set<string>();
  for (const [name, rules] of gate.policies) {
    if (rules.some(([, scope]) => scopes.includes(scope))) found.add(name);
  }
  return found;
}

function asCaller(answer: unknown): Caller {
  if (answer instanceof Caller) return answer;
  if (answer instanceof Key) return new Caller(AUTHENTICATED, answer);
  if (typeof answer === "string" || answer instanceof Uint8Array) {
    return answer.length > 0 ? new Caller(AUTHENTICATED, answer) : new Caller(ANONYMOUS);
  }
  if (answer === null || answer === undefined) return new Caller(ANONYMOUS);
  throw new TypeError(
    `a caller function answers a string, bytes, a Key, a Caller or null, not ${kindOf(answer)}`,
  );
}
