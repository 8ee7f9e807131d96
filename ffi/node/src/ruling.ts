/**
 * Rulings: what is kept of a decision, to tell of it, and to settle its call.
 *
 * Most of a permit is what is known without it, or zero, and most are never settled; so only the rest
 * of it is kept. This is the one place that knows how core/src/permit.rs lays out a permit:
 * test/exchange.test.mjs holds the two together.
 */
import { type Engine, type Terms, USUAL } from "./engine.js";
import { copy, InDecision, put, Size, Word } from "./exchange.js";

/** Offsets in words from the head of a permit. */
const enum InPermit {
  State = 0,
  Fingerprint = 1,
  Revision = 2,
  Policy = 3,
  Caller = 4,
  Tool = 8,
  Cost = 12,
  Reserve = 14,
  StampNs = 16,
  IsMarked = 18,
  /** Of each rule of the policy one, two words. */
  Marks = 20,
}

/** The state of a permit that is not settled. */
const HELD = 1;

/** A number of 64 bits is two words, as they lie in memory. */
export interface Ruling {
  readonly engine: Engine;
  readonly terms: Terms | null;
  readonly reason: number;
  readonly by: number;
  readonly limit0: number;
  readonly limit1: number;
  readonly remaining0: number;
  readonly remaining1: number;
  readonly resetAfterNs0: number;
  readonly resetAfterNs1: number;
  /** Of a call that is refused, when it may come again; of one that is admitted, when it was charged. */
  readonly timeNs0: number;
  readonly timeNs1: number;
  /** These are of the permit, and zero where there is none. */
  readonly fingerprint: number;
  readonly revision: number;
  readonly policy: number;
  readonly caller0: number;
  readonly caller1: number;
  readonly caller2: number;
  readonly caller3: number;
  /** The tool's key, and behind it the marks of the limits; null where there is neither. */
  readonly rest: readonly number[] | null;
}

/** The exchange, of which every word is there. */
type Words = Readonly<Record<number, number>>;

const TOOL_WORDS = InPermit.Cost - InPermit.Tool;

/** Keeps what the engine has left in the exchange. */
export function takeRuling(engine: Engine, terms: Terms | null): Ruling {
  const w = engine.words as Words;
  return {
    engine,
    terms,
    reason: w[Word.Decision + InDecision.Reason],
    by: w[Word.Decision + InDecision.By],
    limit0: w[Word.Decision + InDecision.Limit],
    limit1: w[Word.Decision + InDecision.Limit + 1],
    remaining0: w[Word.Decision + InDecision.Remaining],
    remaining1: w[Word.Decision + InDecision.Remaining + 1],
    resetAfterNs0: w[Word.Decision + InDecision.ResetAfterNs],
    resetAfterNs1: w[Word.Decision + InDecision.ResetAfterNs + 1],
    // One of the two is zero: what is refused has no permit, and what is admitted need not wait.
    timeNs0: w[Word.Decision + InDecision.RetryAfterNs] | w[Word.Permit + InPermit.StampNs],
    timeNs1: w[Word.Decision + InDecision.RetryAfterNs + 1] | w[Word.Permit + InPermit.StampNs + 1],
    fingerprint: w[Word.Permit + InPermit.Fingerprint],
    revision: w[Word.Permit + InPermit.Revision],
    policy: w[Word.Permit + InPermit.Policy],
    caller0: w[Word.Permit + InPermit.Caller],
    caller1: w[Word.Permit + InPermit.Caller + 1],
    caller2: w[Word.Permit + InPermit.Caller + 2],
    caller3: w[Word.Permit + InPermit.Caller + 3],
    // Written out, since a call is longer: see tryAdmit.
    rest:
      terms === null && (w[Word.Permit + InPermit.IsMarked] | w[Word.Permit + InPermit.IsMarked + 1]) === 0
        ? null
        : restOf(engine),
  };
}

function restOf(engine: Engine): number[] {
  const w = engine.words as Words;
  const marks = isMarked(w, Word.Permit) ? 2 * (engine.ruleCounts[w[Word.Permit + InPermit.Policy]] as number) : 0;
  const rest = new Array<number>(TOOL_WORDS + marks);
  for (let n = 0; n < TOOL_WORDS; n++) rest[n] = w[Word.Permit + InPermit.Tool + n];
  for (let n = 0; n < marks; n++) rest[TOOL_WORDS + n] = w[Word.Permit + InPermit.Marks + n];
  return rest;
}

function isMarked(w: Words, permitAt: number): boolean {
  return (w[permitAt + InPermit.IsMarked] | w[permitAt + InPermit.IsMarked + 1]) !== 0;
}

/** Puts what the engine has decided elsewhere, of a call of a batch, to where `takeRuling` finds it. */
export function putDecided(engine: Engine, words: Int32Array, decisionAt: number, permitAt: number): void {
  const permitWords = isMarked(words as Words, permitAt) ? Size.PermitWords : InPermit.Marks;
  copy(words, decisionAt, engine.words, Word.Decision, Size.DecisionWords);
  copy(words, permitAt, engine.words, Word.Permit, permitWords);
}

/** Writes the permit of a ruling to the exchange, as the engine has given it. */
export function putPermit(ruling: Ruling): void {
  const { words } = ruling.engine;
  const { cost, reserve } = ruling.terms ?? USUAL;
  const { rest } = ruling;
  words.fill(0, Word.Permit, Word.Permit + Size.PermitWords);
  words[Word.Permit + InPermit.State] = HELD;
  words[Word.Permit + InPermit.Fingerprint] = ruling.fingerprint;
  words[Word.Permit + InPermit.Revision] = ruling.revision;
  words[Word.Permit + InPermit.Policy] = ruling.policy;
  words[Word.Permit + InPermit.Caller] = ruling.caller0;
  words[Word.Permit + InPermit.Caller + 1] = ruling.caller1;
  words[Word.Permit + InPermit.Caller + 2] = ruling.caller2;
  words[Word.Permit + InPermit.Caller + 3] = ruling.caller3;
  put(words, Word.Permit + InPermit.Cost, cost);
  put(words, Word.Permit + InPermit.Reserve, reserve);
  words[Word.Permit + InPermit.StampNs] = ruling.timeNs0;
  words[Word.Permit + InPermit.StampNs + 1] = ruling.timeNs1;
  if (rest === null) return;
  const marks = rest.length - TOOL_WORDS;
  for (let n = 0; n < TOOL_WORDS; n++) words[Word.Permit + InPermit.Tool + n] = rest[n] as number;
  for (let n = 0; n < marks; n++) words[Word.Permit + InPermit.Marks + n] = rest[TOOL_WORDS + n] as number;
  put(words, Word.Permit + InPermit.IsMarked, marks > 0 ? 1 : 0);
}
