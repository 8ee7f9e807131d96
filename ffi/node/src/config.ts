/** From a gate's configuration, by name, to what the engine takes, by index. */
import type { EngineLimit } from "./addon.js";
import { CallError, ConfigError } from "./errors.js";
import { configInteger } from "./integers.js";
import {
  engineLimit,
  isLimit,
  KINDS,
  KINDS_TEXT,
  type Limit,
  OFF,
  Off,
  Quota,
  RateLimit,
} from "./limits.js";
import { kindOf, listed, quoted, shown } from "./text.js";
import { type Scope, SCOPES } from "./vocabulary.js";
import { Zone } from "./zones.js";

/** One step of a policy: a limit's name, and whose state it keeps. */
export type Rule = readonly [limit: string, scope: Scope];

/** What `limits` may be: an object or a Map of names. */
export type Named<T> = Readonly<Record<string, T>> | ReadonlyMap<string, T>;

type Kind = (typeof KINDS)[number];

/** A gate's configuration: every name is known, every type is right. Ranges are the engine's. */
export class GateConfig {
  /** The indexes of the limits, by name. */
  readonly #index = new Map<string, number>();
  /** The kinds that the limits have, also those that are off; not those that always were. */
  readonly kinds: Map<string, Kind>;

  private constructor(
    readonly limits: Map<string, Limit>,
    readonly policies: ReadonlyMap<string, readonly Rule[]>,
    readonly capacity: number,
    kinds?: Map<string, Kind>,
  ) {
    for (const name of limits.keys()) this.#index.set(name, this.#index.size);
    const known = [...limits].filter(([, limit]) => !(limit instanceof Off));
    this.kinds = kinds ?? new Map(known.map(([name, limit]) => [name, kindOfLimit(limit)]));
  }

  /** Throws ConfigError, or TypeError where something is of a wrong type. */
  static check(limits: unknown, policies: unknown, capacity: unknown): GateConfig {
    const known = new Map<string, Limit>();
    for (const [name, limit] of named("limits", limits)) {
      if (!isLimit(limit)) {
        throw new TypeError(`limits[${quoted(name)}] must be ${KINDS_TEXT}, not ${kindOf(limit)}`);
      }
      known.set(name, limit);
    }
    const rules = new Map<string, readonly Rule[]>();
    for (const [name, policy] of named("policies", policies)) {
      rules.set(name, policyOf(name, policy, known));
    }
    return new GateConfig(known, rules, capacityOf(capacity));
  }

  /** What a thread that attaches needs to know, as text. */
  describe(): string {
    const limits = [...this.limits].map(([name, limit]) => this.#partsOf(name, limit));
    return written({ limits, policies: [...this.policies], capacity: this.capacity });
  }

  /** The same of one limit that has become another. */
  describeLimit(name: string, limit: Limit): string {
    return written(this.#partsOf(name, limit));
  }

  #partsOf(name: string, limit: Limit): LimitParts {
    const kind = limit instanceof Off ? this.kinds.get(name) : kindOfLimit(limit);
    return [name, kind?.name ?? "Off", limit instanceof Off ? null : limit];
  }

  /** The configuration that `describe` told of, with the limits that have become others since. */
  static described(text: string, ...changed: readonly (string | null)[]): GateConfig {
    const { limits: parts, policies, capacity } = read(text) as {
      limits: LimitParts[];
      policies: [string, Rule[]][];
      capacity: number;
    };
    const kinds = new Map<string, Kind>();
    const limits = new Map<string, Limit>();
    for (const change of changed) if (change !== null) parts.push(read(change) as LimitParts);
    for (const [name, kindName, fields] of parts) {
      const kind = KINDS.find((known) => known.name === kindName) as Kind;
      if (kind !== Off) kinds.set(name, kind);
      const limit = fields && (Object.assign(Object.create(kind.prototype as object), fields) as Limit);
      limits.set(name, limit === null ? OFF : Object.freeze(limit));
    }
    return new GateConfig(limits, new Map(policies), capacity, kinds);
  }

  /** The policies, as limits' indexes and the engine's scopes. */
  engineRules(): (readonly [number, number])[][] {
    return [...this.policies.values()].map((rules) =>
      rules.map(([limit, scope]) => [this.#index.get(limit) as number, scopeIndex(scope)] as const),
    );
  }

  /** The limits, as the engine takes them. */
  engineLimits(): EngineLimit[] {
    return [...this.limits.values()].map(engineLimit);
  }

  /** The zones of the quotas that have one, by the limit's index. */
  zones(): [number, Zone][] {
    const found: [number, Zone][] = [];
    for (const [name, limit] of this.limits) {
      if (limit instanceof Quota && limit.tz !== null) {
        found.push([this.#index.get(name) as number, new Zone(limit.tz)]);
      }
    }
    return found;
  }

  /** The index of a limit. Throws CallError where it is unknown, or not of that kind. */
  indexOf(argument: string, limit: unknown, kind?: Kind): number {
    if (typeof limit !== "string") {
      throw new TypeError(`${argument} must be a string, not ${kindOf(limit)}`);
    }
    const index = this.#index.get(limit);
    if (index === undefined) {
      const text = `limit ${quoted(limit)} is unknown; this gate has ${listed(this.limits.keys())}`;
      throw new CallError(`${argument}: ${text}`, argument);
    }
    if (kind !== undefined && this.kinds.get(limit) !== kind) {
      const text = `${quoted(limit)} is no ${kind.name}; of these this gate has`;
      throw new CallError(`${argument}: ${text} ${listed(this.namesOf(kind))}`, argument);
    }
    return index;
  }

  /** The names of the limits of a kind, also of those that are switched off. */
  namesOf(kind: Kind): string[] {
    return [...this.kinds].filter(([, known]) => known === kind).map(([name]) => name);
  }

  /** Notes that a limit was changed. */
  replace(name: string, limit: Limit): void {
    this.limits.set(name, limit);
    if (!(limit instanceof Off)) this.kinds.set(name, kindOfLimit(limit));
  }

  /** Throws ConfigError where the limit would become one of another kind. */
  checkChange(name: string, limit: Limit): void {
    const kind = this.kinds.get(name);
    if (kind === undefined || limit instanceof kind || limit instanceof Off) return;
    const text = `kind must stay what it is, ${kind.name}, or be OFF; not ${kindOfLimit(limit).name}`;
    throw new ConfigError(`limit ${quoted(name)}: ${text}`, "kind", { limit: name });
  }

  /**
   * The engine's scope with which the policies use a limit; where there are several, the given one.
   * Throws CallError where it isn't one of theirs.
   */
  scopeOf(limit: string, scope: unknown): number {
    const rules = [...this.policies.values()].flat().filter(([name]) => name === limit);
    const known = [...new Set(rules.map(([, kept]) => kept))];
    if (known.includes(scope as Scope)) return scopeIndex(scope as Scope);
    if (scope == null && known.length === 1) return scopeIndex(known[0] as Scope);
    if (known.length === 0) {
      throw new CallError(`limit ${quoted(limit)} is in no policy of this gate: it has no state`, "limit");
    }
    const said = scope == null ? "is missing" : `can't be ${shown(scope)}`;
    const text = `scope ${said}: the policies keep limit ${quoted(limit)} by ${listed(known)}`;
    throw new CallError(text, "scope");
  }

  /** Whether calls under a policy hold something that is given back or accounted for at their end. */
  holds(policy: string): boolean {
    const rules = this.policies.get(policy) ?? [];
    return rules.some(([limit]) => this.kinds.get(limit) !== RateLimit);
  }
}

function kindOfLimit(limit: Limit): Kind {
  return KINDS.find((kind) => limit instanceof kind) as Kind;
}

function scopeIndex(scope: Scope): number {
  return SCOPES.indexOf(scope) + 1;
}

/** The items of `limits` or `policies`, their names checked. */
function named(field: string, value: unknown): [string, unknown][] {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${field} must be an object or a Map of names, not ${kindOf(value)}`);
  }
  const items = value instanceof Map ? [...(value as Map<unknown, unknown>)] : Object.entries(value);
  for (const [name] of items) checkName(field, name);
  return items as [string, unknown][];
}

function checkName(field: string, name: unknown): void {
  if (typeof name !== "string") {
    throw new TypeError(`${field}: a name must be a string, not ${kindOf(name)}`);
  }
  if (name === "") {
    throw new ConfigError(`${field}: a name is empty; it must have 1 or more characters`, field);
  }
  if (!isText(name)) {
    throw new ConfigError(`${field}: the name ${quoted(name)} can't be encoded as UTF-8`, field);
  }
  if (name.includes("\0")) {
    throw new ConfigError(`${field}: the name ${quoted(name)} has a NUL character`, field);
  }
}

/** Whether a string is Unicode: half of a surrogate pair is none. */
export function isText(text: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(text);
}

function policyOf(name: string, rules: unknown, limits: ReadonlyMap<string, Limit>): readonly Rule[] {
  if (Array.isArray(rules)) {
    return Object.freeze(Array.from(rules as unknown[], (rule) => ruleOf(name, rule, limits)));
  }
  const text = `policies[${quoted(name)}] must be an array of [limit, scope]`;
  throw new TypeError(`${text}, not ${kindOf(rules)}`);
}

function ruleOf(policy: string, rule: unknown, limits: ReadonlyMap<string, Limit>): Rule {
  const [limit, scope] = Array.isArray(rule) && rule.length === 2 ? (rule as unknown[]) : [];
  if (typeof limit !== "string" || typeof scope !== "string") {
    throw new TypeError(`policies[${quoted(policy)}]: a rule must be a pair of strings [limit, scope]`);
  }
  if (!limits.has(limit)) {
    const text = `limit ${quoted(limit)} is unknown; the gate has ${listed(limits.keys())}`;
    throw new ConfigError(`policy ${quoted(policy)}: ${text}`, "limit", { policy });
  }
  if (!(SCOPES as readonly string[]).includes(scope)) {
    const text = `scope ${quoted(scope)} of limit ${quoted(limit)} must be one of ${listed(SCOPES)}`;
    throw new ConfigError(`policy ${quoted(policy)}: ${text}`, "scope", { limit, policy });
  }
  return Object.freeze([limit, scope as Scope] as const);
}

function capacityOf(capacity: unknown): number {
  const number = configInteger("capacity", capacity);
  // Beyond a word the engine can't be asked; it would say the same as of its greatest.
  return Number(BigInt.asUintN(32, number) === number ? number : 0xffff_ffffn);
}

/** Of a limit its name, its kind's name, and its fields; null where it is off. */
type LimitParts = [string, string, object | null];

/** JSON, which has no bigints of its own. */
function written(parts: unknown): string {
  return JSON.stringify(parts, (_, value: unknown) => (typeof value === "bigint" ? { bigint: String(value) } : value));
}

function read(text: string): unknown {
  return JSON.parse(text, (_, value: { bigint?: string } | null) =>
    typeof value?.bigint === "string" ? BigInt(value.bigint) : value,
  );
}
