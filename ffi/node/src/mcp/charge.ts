/** What one message was charged: settled once, when everybody who runs it has let go of it. */

import type { Gate, Outcome, Permit } from "../index.js";
import { Usage } from "./usage.js";

export type Settle = (permit: Permit, outcome: Outcome, used: bigint) => void;

const WEIGHT: Readonly<Record<Outcome, number>> = { cancelled: 0, success: 1, abandoned: 2, failure: 3 };

/** One of the permits of a message: a batch over several policies has several. */
export interface Share {
  readonly permit: Permit;
  readonly reserve: bigint;
  readonly hasQuota: boolean;
}

/**
 * The permits of one message, and what its calls have used.
 *
 * A request over HTTP and the handler within it end at different times: a client may leave while the
 * handler runs on. Each of them holds the charge, and a place is free again when both have ended. The
 * worst that one of them says became of the call is what is settled.
 */
export class Charge {
  readonly usage = new Usage();
  readonly #settle: Settle;
  #shares: readonly Share[];
  #holds = 0;
  #outcome: Outcome = "cancelled";

  constructor(settle: Settle, shares: readonly Share[] = []) {
    this.#settle = settle;
    this.#shares = shares;
  }

  /** Whether all have let go. */
  get isOver(): boolean {
    return this.#holds === 0;
  }

  /** One more who has to let go. After the end it changes nothing. */
  hold(): Hold {
    this.#holds += 1;
    return new Hold(this);
  }

  letGo(outcome: Outcome): void {
    this.#holds -= 1;
    if (WEIGHT[outcome] > WEIGHT[this.#outcome]) this.#outcome = outcome;
    if (this.#holds > 0) return;
    this.usage.isOver = true;
    const shares = this.#shares;
    this.#shares = [];
    const used = this.#used(shares);
    shares.forEach((share, index) => this.#settle(share.permit, this.#outcome, used[index]!));
  }

  /** By permit. Where nobody has said what was used, the estimate stands. Of a batch over several
   * policies it isn't known which call used what: the first with a quota pays for all. */
  #used(shares: readonly Share[]): bigint[] {
    const { total } = this.usage;
    if (total === undefined) return shares.map((share) => share.reserve);
    const payer = Math.max(0, shares.findIndex((share) => share.hasQuota));
    return shares.map((_, index) => (index === payer ? total : 0n));
  }
}

/** Lets go of a charge, on whichever way out comes first; later ones change nothing. */
export class Hold {
  #isOver = false;

  constructor(readonly charge: Charge) {}

  settle(outcome: Outcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.charge.letGo(outcome);
  }
}

/**
 * Calls paid for at one gate, so that an inner middleware on the same gate lets them through.
 *
 * Each inner call takes one. A message that turns out to hold more calls than were counted outside so
 * has the surplus charged inside.
 */
export class Receipt {
  readonly #charge: Charge;
  #left: number;
  #handedOver: (() => void) | undefined;

  constructor(
    readonly gate: Gate,
    calls: number,
    charge: Charge,
  ) {
    this.#left = calls;
    this.#charge = charge;
  }

  /** How many calls have not been taken. */
  get left(): number {
    return this.#left;
  }

  /** A hold on the charge for one call; undefined where all have been taken. */
  take(): Hold | undefined {
    // Of calls whose client left before they began, nothing is held any more: they are charged anew.
    if (this.#left <= 0 || this.#charge.isOver) return undefined;
    this.#left -= 1;
    const hold = this.#charge.hold();
    if (this.#left === 0) this.#handedOver?.();
    return hold;
  }

  /** Whether a handler is still to come for the calls: `settle` is called once it is there, or when
   * it should have been. Without a handler to expect it is never called. */
  handOver(settle: () => void): boolean {
    if (this.#left === 0 || !gatesWithHandlers.has(this.gate)) return false;
    const timer = setTimeout(settle, handover.ms);
    timer.unref();
    this.#handedOver = () => {
      clearTimeout(timer);
      settle();
    };
    return true;
  }
}

/** For so long a charge waits for the handler of a request that was answered with 202. */
export const handover = { ms: 5_000 };

const gatesWithHandlers = new WeakSet<Gate>();

/** A middleware around the handlers of a server is on this gate. */
export function expectHandlers(gate: Gate): void {
  gatesWithHandlers.add(gate);
}
