/**
 * API keys: who calls, where a server has nothing better to tell it by.
 *
 * A key is taken from `Authorization: Bearer KEY`, from `X-API-Key: KEY` or from `?key=KEY`: the first
 * of these that is there decides. It is compared with all known keys in constant time, as a keyed
 * digest: keys themselves are kept nowhere, logged nowhere, and never reach the gate's table, which
 * knows callers by their user. Several keys may have one user, who has one allowance.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

import { ConfigError, type Decision, Gate, RateLimit } from "../index.js";
import { AUTHENTICATED, bearerToken, Caller, type RequestFacts } from "./callers.js";
import type { Environment } from "./env.js";
import { kindOf } from "../text.js";
import { logger } from "./log.js";
import {
  DEFAULT_ERROR_CODE,
  httpError,
  type HttpResponse,
  refusalData,
  retryAfterS,
} from "./refusal.js";

const KEYS = "MCP_API_KEYS";
const ENABLED = "MCP_AUTH_ENABLED";
const UNAUTHORIZED = -31001;
const PLACES = "'Authorization: Bearer KEY', 'X-API-Key: KEY' or '?key=KEY'";
const TRUE: readonly string[] = ["1", "true", "yes", "on"];
const FALSE: readonly string[] = ["0", "false", "no", "off"];

export interface APIKeysOptions {
  /** The limit on failed attempts, by default 10 a minute with a burst of 20. It is one for all clients,
   * so that nobody has more attempts by changing keys or addresses; over it they get 429 instead of 401.
   * A known key always passes, or else anybody could lock everybody out. */
  readonly failures?: RateLimit;
}

/** The known keys, and the limit on attempts with unknown ones. */
export class APIKeys {
  readonly #secret = randomBytes(32);
  readonly #users: { readonly digest: Buffer; readonly user: string }[] = [];
  readonly #failures: Gate;

  /** `users` are the user of each key; none makes every key unknown. Throws a `ConfigError` for an empty
   * key or user. */
  constructor(users: Readonly<Record<string, string>>, options: APIKeysOptions = {}) {
    for (const [key, user] of Object.entries(users)) {
      if (typeof user !== "string") throw new TypeError(`the user of an API key must be a string, not ${kindOf(user)}`);
      if (key === "" || user === "") throw new ConfigError("an API key and its user can't be empty", "users");
      this.#users.push({ digest: this.#digest(Buffer.from(key)), user });
    }
    this.#failures = new Gate({
      limits: { "failed attempts": options.failures ?? new RateLimit(10, { per: "1m", burst: 20 }) },
      policies: { "failed attempts": [["failed attempts", "shared"]] },
      capacity: 1,
    });
  }

  /** The keys of `key:user,key2:user2`; what is no such pair is left out, with a warning. A key ends at
   * the first colon. Blanks around keys and users do not count. */
  static parse(text: string, options: APIKeysOptions = {}): APIKeys {
    const users = new Map<string, string>();
    text.split(",").forEach((entry, index) => {
      const [, key = "", user = ""] = /^([^:]*):(.*)$/s.exec(entry)?.map((part) => part.trim()) ?? [];
      // Neither the key nor the entry is ever quoted: logs are no place for secrets.
      if (users.has(key) && user !== "") {
        logger.warn(`${KEYS}: the key of entry ${index + 1} is there twice; left out`);
      } else if (key !== "" && user !== "") {
        users.set(key, user);
      } else if (entry.trim() !== "") {
        logger.warn(`${KEYS}: entry ${index + 1} is not key:user; it is left out`);
      }
    });
    // A Map keeps names such as "__proto__" and the order of names that are numbers.
    const keys = new APIKeys({}, options);
    for (const [key, user] of users) keys.#users.push({ digest: keys.#digest(Buffer.from(key)), user });
    return keys;
  }

  /**
   * The keys of `MCP_API_KEYS`; undefined where no key is to be demanded.
   *
   * `MCP_AUTH_ENABLED` says whether one is: true or false (or 1 and 0, yes and no, on and off). Unset,
   * keys are demanded where there are any. With it, and without any valid key, nobody gets in.
   */
  static fromEnv(environment: Environment = process.env): APIKeys | undefined {
    const text = environment[KEYS] ?? "";
    if (!isEnabled(environment, text.trim() !== "")) return undefined;
    const keys = APIKeys.parse(text);
    if (keys.#users.length === 0) logger.warn(`${KEYS} has no valid key: every request is refused`);
    logger.info(`API keys are demanded; ${keys.#users.length} are known`);
    return keys;
  }

  /** Whose key it is; undefined where it is nobody's. Takes the same time for every key. */
  userOf(key: Uint8Array | string): string | undefined {
    const digest = this.#digest(key);
    let found: string | undefined;
    for (const known of this.#users) if (timingSafeEqual(known.digest, digest)) found = known.user;
    return found;
  }

  /** Counts an attempt with an unknown key: refused, where there were too many. */
  failed(): Decision {
    return this.#failures.tryAdmit("failed attempts");
  }

  #digest(key: Uint8Array | string): Buffer {
    return createHmac("sha256", this.#secret).update(key).digest();
  }
}

/** Whom the request's key stands for, or what to answer without a known one. */
export function authenticated(
  keys: APIKeys,
  facts: RequestFacts,
  keyOfQuery: Buffer | undefined,
): Caller | HttpResponse {
  const named = bearerToken(facts) ?? (facts.header("x-api-key")?.trim() || undefined);
  // Header fields come as one character for each byte.
  const key = named === undefined ? keyOfQuery : Buffer.from(named, "latin1");
  if (key === undefined) return unauthorized("An API key is needed", 'Bearer realm="mcp"');
  const user = keys.userOf(key);
  return user === undefined ? refusalOf(keys) : new Caller(AUTHENTICATED, user);
}

/** The value of `key` in the query of a URL (the first, where there are more), and the URL without it,
 * so that neither the application nor the server's access log gets to see it. */
export function withoutKey(url: string): { key: Buffer | undefined; url: string } {
  const start = url.indexOf("?");
  if (start < 0) return { key: undefined, url };
  let key: Buffer | undefined;
  const rest = url
    .slice(start + 1)
    .split("&")
    .filter((pair) => {
      const [, name = "", text = ""] = /^([^=]*)=?(.*)$/s.exec(pair) ?? [];
      if (unquoted(name).toString("latin1") !== "key") return true;
      if (key === undefined && text !== "") key = unquoted(text);
      return false;
    });
  const path = url.slice(0, start);
  return { key, url: rest.length === 0 ? path : `${path}?${rest.join("&")}` };
}

/** The bytes of a percent-encoded text. */
function unquoted(text: string): Buffer {
  const bytes = text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Buffer.from(bytes, "latin1");
}

function refusalOf(keys: APIKeys): HttpResponse {
  try {
    const decision = keys.failed();
    if (!decision.admitted) return tooMany(decision);
  } catch (error) {
    logger.error(`failed attempts can't be counted: ${(error as Error).constructor.name}`);
  }
  return unauthorized("The API key is not known", 'Bearer realm="mcp", error="invalid_token"');
}

function unauthorized(what: string, challenge: string): HttpResponse {
  const message = `${what}: send it as ${PLACES}.`;
  return httpError(401, { code: UNAUTHORIZED, message }, { "www-authenticate": challenge });
}

function tooMany(decision: Decision): HttpResponse {
  const waitS = retryAfterS(decision);
  const message = "Too many requests came with an unknown API key. Try again later.";
  const error = { code: DEFAULT_ERROR_CODE, message, data: refusalData(decision) };
  return httpError(429, error, waitS === undefined ? {} : { "retry-after": String(waitS) });
}

function isEnabled(environment: Environment, hasKeys: boolean): boolean {
  const text = environment[ENABLED];
  if (text === undefined) return hasKeys;
  const word = text.trim().toLowerCase();
  if (TRUE.includes(word)) return true;
  if (FALSE.includes(word)) return false;
  logger.warn(`${ENABLED}=${JSON.stringify(text)} is neither true nor false: using the default, ${hasKeys}`);
  return hasKeys;
}
