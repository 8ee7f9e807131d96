/** What a gate tells about itself. */
import type { Call, Clock } from "./call.js";
import type { Rule } from "./config.js";
import { countOf } from "./decision.js";
import type { Engine } from "./engine.js";
import { bigintOf, InDecision, Size, Word } from "./exchange.js";
import { ConcurrencyLimit } from "./limits.js";
import { REASONS, type Reason } from "./vocabulary.js";

/** What one limit of a policy would say to a call. */
export interface Report {
  /** The limit's name. */
  readonly limitName: string;
  /** Why it would refuse; null where it would admit. */
  readonly reason: Reason | null;
  /** It would admit in so many nanoseconds; 0 where it does, and where no time can be known. */
  readonly retryAfterNs: bigint;
  /**
   * What the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where it is
   * off. A bigint where that is above 2^53-1.
   */
  readonly limit: number | bigint;
  /** What is left of that: before the call where it would be refused, after it where admitted. */
  readonly remaining: number | bigint;
  /**
   * All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back when
   * calls end.
   */
  readonly resetAfterNs: bigint;
}

/**
 * What a concurrency limit looks like now, over all its states (one for each caller, say), and what
 * was counted since the gate was made; of all threads that share the gate.
 */
export interface Guards {
  /** How many calls hold a place. */
  readonly inFlight: number;
  /** How many breakers are open. */
  readonly open: number;
  /** How many breakers are half-open. */
  readonly halfOpen: number;
  /** How often a breaker opened. */
  readonly trips: number;
  /** How many permits were settled after their lease. */
  readonly lapsed: number;
}

/** How many calls were decided so. */
export interface DecisionCount {
  /** The policy. */
  readonly policy: string;
  /** The limit that refused; null of the admitted. */
  readonly limit: string | null;
  /** Why; null of the admitted. */
  readonly reason: Reason | null;
  /** How many. */
  readonly count: number;
}

/**
 * What a gate's table holds now, and what was decided since the gate was made; of all threads that
 * share it.
 */
export interface Stats {
  /** All slots of the table. */
  readonly slots: number;
  /** Slots with a state that is not at rest. */
  readonly live: number;
  /** Slots with a state at rest, free for anybody. */
  readonly atRest: number;
  /** Slots that a thread is about to use. */
  readonly claimed: number;
  /** Slots that hold nothing. */
  readonly empty: number;
  /** What was decided: the admitted of each policy, and the refused of each limit and reason. */
  readonly decisions: readonly DecisionCount[];
}

/** What each limit of a policy would say to a call. */
export function peeked(engine: Engine, policy: string, call: Call): Report[] {
  engine.prepare(policy, call);
  engine.ask(engine.seat.peek, policy);
  const rules = engine.config.policies.get(policy) ?? [];
  return rules.slice(0, engine.words[Word.Count]).map(([limitName], n) => {
    const at = Word.Figures + n * Size.DecisionWords;
    const two = (offset: number) => [engine.words[at + offset]!, engine.words[at + offset + 1]!] as const;
    const limit = two(InDecision.Limit);
    return {
      limitName,
      reason: REASONS[engine.words[at + InDecision.Reason]!] ?? null,
      retryAfterNs: bigintOf(...two(InDecision.RetryAfterNs)),
      limit: countOf(...limit, ...limit),
      remaining: countOf(...limit, ...two(InDecision.Remaining)),
      resetAfterNs: bigintOf(...two(InDecision.ResetAfterNs)),
    };
  });
}

type Five = [number, number, number, number, number];

/** What a concurrency limit looks like. */
export function guardsOf(engine: Engine, limit: string, clock: Pick<Clock, "nowNs">): Guards {
  const index = engine.config.indexOf("limit", limit, ConcurrencyLimit);
  engine.writeClock(clock.nowNs, undefined);
  engine.words[Word.Index] = index;
  engine.ask(engine.seat.guards);
  const [inFlight, open, halfOpen, trips, lapsed] = engine.figures(5) as Five;
  return { inFlight, open, halfOpen, trips, lapsed };
}

/** What the table holds and what was decided. */
export function statsOf(engine: Engine, clock: Clock): Stats {
  engine.writeClock(clock.nowNs, clock.unixNs);
  engine.ask(engine.seat.stats);
  const [slots, live, atRest, claimed, empty] = engine.figures(5) as Five;
  const decisions = [...engine.config.policies].flatMap(([policy, rules], index) => {
    engine.words[Word.Index] = index;
    engine.ask(engine.seat.decisions);
    return countsOf(policy, rules, engine.figures(1 + 8 * REASONS.length));
  });
  return { slots, live, atRest, claimed, empty, decisions };
}

/** What was decided under a policy: how many were admitted, and then by rule and reason refused. */
function countsOf(policy: string, rules: readonly Rule[], sums: number[]): DecisionCount[] {
  const [admitted = 0, ...refused] = sums;
  const merged = new Map<string, DecisionCount>();
  refused.forEach((count, n) => {
    const limit = rules[Math.floor(n / REASONS.length)]?.[0];
    const reason = REASONS[n % REASONS.length];
    if (count === 0 || limit === undefined || reason == null) return;
    const before = merged.get(`${reason} ${limit}`)?.count ?? 0;
    merged.set(`${reason} ${limit}`, { policy, limit, reason, count: before + count });
  });
  return [{ policy, limit: null, reason: null, count: admitted }, ...merged.values()];
}

/** What the engine tells as OpenMetrics text. */
export function metricsOf(engine: Engine, clock: Clock): string {
  engine.writeClock(clock.nowNs, clock.unixNs);
  let text: string | undefined;
  engine.ask(() => {
    text = engine.seat.metrics();
  });
  return text ?? "";
}
