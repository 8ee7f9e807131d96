//! A gate about which it is known what each caller has, and what one operation that was cut short may
//! have changed of that.
mod mapping;
pub mod stepping;
pub mod watchdog;

use callgate_core::{
    Call, ConcurrencyLimit, Config, Domain, Gate, Limit, Outcome, Permit, Quota, RateLimit, Reason,
    Rule, Scope, Settled, Time, Windows,
};

use crate::crowd::Dice;
pub use mapping::Mapping;
use stepping::counted;
use watchdog::Watchdog;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const NOW: Time = Time { now_ns: 10 * HOUR, unix_ns: 1_000 * HOUR };
const LEASE_NS: u64 = 10 * SECOND;
/// Claims are stale, places have lapsed, and hardly any token has come back.
const LATER: Time = Time { now_ns: NOW.now_ns + 2 * LEASE_NS, unix_ns: NOW.unix_ns + 2 * LEASE_NS };
const BURST: i64 = 4;
const UNITS: i64 = 100;
const RESERVE: i64 = 7;
const PLACES: i64 = 2;

/// The most instructions that a decision by one limit takes here. All passes that are allowed would be many
/// times as long, and waiting for somebody is without end.
const INSTRUCTIONS_MAX: u64 = 40_000;

/// Policies: of one limit each, of all, and of all with one that refuses.
const BY_RATE: u32 = 0;
const BY_OTHER_RATE: u32 = 1;
const BY_QUOTA: u32 = 2;
const BY_PLACES: u32 = 3;
const BY_REFUSAL: u32 = 4;
const BY_ALL: u32 = 5;
const BY_ALL_AND_REFUSAL: u32 = 6;

const OLD: u64 = 1_000;
const NEIGHBOURS: [u64; 2] = [1, 2];
const SUBJECT: u64 = 3;
const NEWCOMERS: u64 = 2_000;

/// Runs `run` on the configuration of all gates here.
fn with_config<T>(run: impl FnOnce(&Config<'_>) -> T) -> T {
    let rate = |burst| Limit::Rate(RateLimit { count: 1, period_ns: HOUR, burst });
    let places = Limit::Concurrency(ConcurrencyLimit {
        max_in_flight: PLACES as u32,
        lease_ns: LEASE_NS,
        reject_trip: 0,
        failure_trip: 0,
        cooldown_ns: 0,
        half_open_probes: 0,
    });
    let windows = Windows::Every { period_s: 86_400, anchor_unix_s: 0 };
    let quota = Limit::Quota(Quota { limit: UNITS as u64, windows, must_seed: false });
    let limits = [rate(BURST as u64), rate(BURST as u64), quota, places, rate(1)];
    let by = |limit, scope| Rule { limit, scope };
    let all =
        [by(1, Scope::Caller), by(2, Scope::Caller), by(3, Scope::Shared), by(4, Scope::Shared)];
    let policies: [&[Rule]; 7] =
        [&[by(0, Scope::Caller)], &all[..1], &all[1..2], &all[2..3], &all[3..], &all[..3], &all];
    run(&Config { capacity: 1, secret: *b"a secret of test", limits: &limits, policies: &policies })
}

/// What of the subject's is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    tokens: i64,
    other_tokens: i64,
    units: i64,
    places: i64,
}

/// The operation that is cut short.
pub enum Act {
    Admit(Call),
    Settle(Permit, Outcome, u64),
}

impl Act {
    /// Whether a call was admitted.
    pub fn run(&self, gate: &Gate<'_>) -> bool {
        match self {
            Self::Admit(call) => gate.admit(call, NOW).is_ok_and(|it| it.decision.admitted()),
            Self::Settle(permit, outcome, used) => {
                gate.settle(permit, *outcome, *used, NOW).is_err()
            }
        }
    }
}

/// A gate before an act, and what the act makes of it.
pub struct Scene<'m> {
    pub gate: Gate<'m>,
    pub act: Act,
    pub watchdog: &'m Watchdog,
    before: Taken,
    after: Taken,
}

fn call(gate: &Gate<'_>, policy: u32, caller: u64) -> Call {
    let caller = gate.key(Domain::Caller, &caller.to_le_bytes());
    Call { policy, caller, cost: 1, reserve: RESERVE as u64, ..Call::default() }
}

/// How often the caller is admitted until it is refused.
fn drain(gate: &Gate<'_>, policy: u32, caller: u64, time: Time) -> i64 {
    for n in 0..=BURST.max(PLACES) {
        let decision = gate.admit(&call(gate, policy, caller), time).expect("a decision").decision;
        match decision.refused {
            None => {}
            Some(Reason::Rate | Reason::Concurrency) => return n,
            Some(_) => panic!("{decision:?}"),
        }
    }
    panic!("more is admitted than there is")
}

impl<'m> Scene<'m> {
    /// The same for equal dice: entries at rest in up to all slots, two callers that are drained, and a subject that was here
    /// before or was not.
    pub fn new(gate: Gate<'m>, watchdog: &'m Watchdog, dice: &mut Dice) -> Self {
        for n in 0..dice.below(17) {
            gate.admit(&call(&gate, BY_RATE, OLD + n), Time::at(0)).expect("a decision");
        }
        for caller in NEIGHBOURS {
            assert_eq!(drain(&gate, BY_RATE, caller, NOW), BURST);
        }
        let admit =
            |policy| gate.admit(&call(&gate, policy, SUBJECT), NOW).expect("a decision").permit;
        assert!(admit(BY_REFUSAL).is_some());
        let mut before = Taken { tokens: 0, other_tokens: 0, units: 0, places: 0 };
        let mut permits = [None, None];
        for _ in 0..dice.below(3) {
            permits[0] = admit(BY_RATE);
            before.tokens += 1;
        }
        for _ in 0..dice.below(2) {
            permits[1] = admit(BY_ALL);
            before.other_tokens += 1;
            before.units += RESERVE;
            before.places += 1;
        }
        let [of_rate, of_all] = permits;
        let mut after = before;
        let act = match (dice.below(5), of_rate, of_all) {
            (0, Some(permit), _) => {
                after.tokens -= 1;
                Act::Settle(permit, Outcome::Cancelled, 0)
            }
            (1, _, Some(permit)) => {
                after.other_tokens -= 1;
                after.units -= RESERVE;
                after.places -= 1;
                Act::Settle(permit, Outcome::Cancelled, 0)
            }
            (2, _, Some(permit)) => {
                after.units += 30 - RESERVE;
                after.places -= 1;
                Act::Settle(permit, Outcome::Success, 30)
            }
            (n, ..) => {
                let policy = [BY_RATE, BY_ALL, BY_ALL_AND_REFUSAL][n as usize % 3];
                if policy == BY_RATE {
                    after.tokens += 1;
                } else {
                    after.other_tokens += 1;
                    after.units += RESERVE;
                    after.places += 1;
                }
                Act::Admit(call(&gate, policy, SUBJECT))
            }
        };
        Self { gate, act, watchdog, before, after }
    }

    /// How often the caller is admitted until it is refused, where that must not wait.
    fn drain(&self, policy: u32, caller: u64, time: Time) -> i64 {
        let admitted = drain(&self.gate, policy, caller, time);
        self.watchdog.went_on();
        admitted
    }

    /// Asks once for each of the subject's limits, and for a newcomer. What is admitted is given back.
    fn check_nobody_is_waited_for(&self) {
        let Self { gate, .. } = self;
        for (policy, caller) in [
            (BY_RATE, SUBJECT),
            (BY_OTHER_RATE, SUBJECT),
            (BY_QUOTA, SUBJECT),
            (BY_PLACES, SUBJECT),
            (BY_RATE, NEWCOMERS),
        ] {
            let call = call(gate, policy, caller);
            let (admission, instructions) = counted(|| gate.admit(&call, NOW));
            assert!(instructions < INSTRUCTIONS_MAX, "{instructions} instructions");
            if let Some(permit) = admission.expect("a decision").permit {
                let (settled, instructions) =
                    counted(|| gate.settle(&permit, Outcome::Cancelled, 0, NOW));
                assert_eq!(settled, Ok(Settled::Now));
                assert!(instructions < INSTRUCTIONS_MAX, "{instructions} instructions");
            }
            self.watchdog.went_on();
        }
    }

    /// What of the subject's is taken, seen by taking all the rest of its tokens.
    fn take_the_rest(&self, time: Time) -> Taken {
        let Self { gate, .. } = self;
        let asks_only = Call { reserve: 0, ..call(gate, BY_QUOTA, SUBJECT) };
        let looked = gate.peek(&asks_only, time).expect("a decision")[0];
        // Where all places are others', the subject has none of its own.
        let has_entry = looked.refused != Some(Reason::TableFull);
        Taken {
            tokens: BURST - self.drain(BY_RATE, SUBJECT, time),
            other_tokens: BURST - self.drain(BY_OTHER_RATE, SUBJECT, time),
            units: if has_entry { UNITS - looked.remaining.cast_signed() } else { 0 },
            places: gate.guards(3, time).expect("of places").in_flight.cast_signed(),
        }
    }

    /// That an act which stopped somewhere keeps nobody from anything: of each limit, it has taken what it
    /// was to take, or nothing; others have what they had; no slot is lost, and no place for longer than a
    /// lease. Whether it left a claim.
    ///
    /// `counts`: also that nobody is waited for, which takes a while.
    pub fn check_stopped(&self, counts: bool) -> (Taken, bool) {
        let Self { gate, before, after, .. } = self;
        let claimed = gate.stats(NOW).claimed;
        assert!(claimed < 2, "one thread has one claim");
        if counts {
            self.check_nobody_is_waited_for();
        }
        let seen = self.take_the_rest(NOW);
        for (seen, states) in [
            (seen.tokens, [before.tokens, after.tokens]),
            (seen.other_tokens, [before.other_tokens, after.other_tokens]),
            (seen.units, [before.units, after.units]),
            (seen.places, [before.places, after.places]),
        ] {
            assert!(states.contains(&seen), "{seen} is taken, not one of {states:?}");
        }
        for caller in NEIGHBOURS {
            assert_eq!(self.drain(BY_RATE, caller, NOW), 0);
        }
        assert_eq!(self.drain(BY_PLACES, 0, LATER), PLACES);
        let live = gate.stats(LATER).live;
        let slots = gate.stats(LATER).slots;
        for n in live..slots {
            let call = call(gate, BY_RATE, NEWCOMERS + n);
            let decision = gate.admit(&call, LATER).expect("a decision").decision;
            assert!(decision.admitted(), "{n} of {slots} are taken: {decision:?}");
            self.watchdog.went_on();
        }
        let one_more =
            gate.admit(&call(gate, BY_RATE, NEWCOMERS), LATER).expect("a decision").decision;
        assert_eq!(one_more.refused, Some(Reason::TableFull));
        assert_eq!(gate.stats(LATER).live, slots);
        (seen, claimed > 0)
    }

    /// That one which went on after all that, and so came late, has taken nothing that was not its own.
    pub fn check_late(&self, admitted: bool, seen: Taken) {
        let Self { gate, before, after, .. } = self;
        let is_done = admitted || matches!(self.act, Act::Settle(..));
        let whole = if is_done { after } else { before };
        let now_seen = self.take_the_rest(LATER);
        // What was taken first, plus what the rest was then, less what has come back since.
        assert_eq!(seen.tokens + now_seen.tokens - BURST, whole.tokens);
        assert_eq!(seen.other_tokens + now_seen.other_tokens - BURST, whole.other_tokens);
        assert_eq!(now_seen.units, whole.units);
        assert_eq!(now_seen.places, PLACES, "those that were taken since");
        let stats = gate.stats(LATER);
        // What it has undone may be at rest now.
        assert_eq!((stats.live + stats.at_rest, stats.claimed), (stats.slots, 0));
        for caller in NEIGHBOURS {
            assert_eq!(self.drain(BY_RATE, caller, LATER), 0);
        }
    }
}
