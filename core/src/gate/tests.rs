//! Decisions through a whole gate, where they hang on the order of things inside.
use std::vec::Vec;

use super::*;
use crate::call::Reason;
use crate::concurrency::ConcurrencyLimit;
use crate::quota::{Quota, Windows};
use crate::rate::RateLimit;

mod errors;

const MS: u64 = 1_000_000;
const CALLER: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];

/// Ten calls at once, and one more each millisecond.
const TEN: Limit = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 10 });

/// Ten units in each window, which the host sets.
const UNITS: Quota = Quota { limit: 10, windows: Windows::ByHost, must_seed: false };

/// One place, for a second, and no breaker.
const PLACE: ConcurrencyLimit = ConcurrencyLimit {
    max_in_flight: 1,
    lease_ns: 1000 * MS,
    reject_trip: 0,
    failure_trip: 0,
    cooldown_ns: 0,
    half_open_probes: 0,
};

fn memory() -> Vec<MaybeUninit<Slot>> {
    (0..1024).map(|_| MaybeUninit::uninit()).collect()
}

fn config<'a>(limits: &'a [Limit], policies: &'a [&'a [Rule]]) -> Config<'a> {
    Config { capacity: 4, secret: [7; 16], limits, policies }
}

fn admit(gate: &Gate<'_>, call: &Call, now_ns: u64) -> Decision {
    gate.admit(call, Time::at(now_ns)).unwrap().decision
}

fn call(gate: &Gate<'_>, cost: u64) -> Call {
    Call { caller: gate.key(Domain::Caller, b"a"), cost, ..Call::default() }
}

#[test]
fn what_is_charged_while_a_limit_changes_is_not_forgiven() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let burst = call(&gate, 10);
    // The change began at 0 and reaches this bucket at 5 ms, when it has just been drained.
    assert!(admit(&gate, &burst, 5 * MS).admitted());
    gate.reconfigure_by(0, &TEN, || Time::at(5 * MS)).unwrap();
    assert_eq!(admit(&gate, &burst, 5 * MS).retry_after_ns, 10 * MS);
}

#[test]
fn a_rate_that_is_lowered_hands_out_no_burst() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let rate = |period_ns, burst| Limit::Rate(RateLimit { count: 1, period_ns, burst });
    assert!(admit(&gate, &call(&gate, 10), MS).admitted());
    for (to, remaining) in [
        (rate(1000 * MS, 10), 0),
        (Limit::Off, u64::MAX),
        (rate(60_000 * MS, 10), 0),
        (rate(60_000 * MS, 15), 5),
        (rate(MS, 10), 0),
    ] {
        gate.reconfigure(0, &to, Time::at(MS)).unwrap();
        assert_eq!(admit(&gate, &call(&gate, 0), MS).remaining, remaining, "{to:?}");
    }
}

#[test]
fn a_limit_that_was_changed_takes_nothing_back_from_before() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let drained = gate.admit(&call(&gate, 10), Time::at(0)).unwrap().permit.unwrap();
    let two = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 2 });
    gate.reconfigure(0, &two, Time::at(0)).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 1), 0).retry_after_ns, MS, "two's worth of debt is kept");
    gate.settle(&drained, Outcome::Cancelled, 0, Time::at(0)).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 1), 0).retry_after_ns, MS, "and was all there is");
}

#[test]
fn another_limits_change_does_not_keep_a_charge_from_coming_back() {
    let policy: &[Rule] =
        &[Rule { limit: 0, scope: Scope::Caller }, Rule { limit: 1, scope: Scope::Caller }];
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN, TEN], &[policy])).unwrap();
    let drained = gate.admit(&call(&gate, 10), Time::at(0)).unwrap().permit.unwrap();
    gate.reconfigure(1, &TEN, Time::at(0)).unwrap();
    gate.settle(&drained, Outcome::Cancelled, 0, Time::at(0)).unwrap();
    let levels = gate.peek(&call(&gate, 0), Time::at(0)).unwrap();
    assert_eq!(levels.iter().map(|d| d.remaining).collect::<Vec<_>>(), [10, 0]);
}

#[test]
fn a_limit_that_is_off_keeps_its_debts_for_when_it_is_on_again() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    assert!(admit(&gate, &call(&gate, 10), 0).admitted());
    gate.reconfigure(0, &Limit::Off, Time::at(0)).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 99), 0), Decision::UNLIMITED);
    gate.reconfigure(0, &TEN, Time::at(0)).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 1), 0).retry_after_ns, MS);
}

#[test]
fn what_a_call_that_was_held_up_takes_back_is_less_by_what_time_gave_back() {
    let one = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 1 });
    let never = Limit::Rate(RateLimit { count: 1, period_ns: 1000 * MS, burst: 1 });
    let both: &[Rule] =
        &[Rule { limit: 0, scope: Scope::Caller }, Rule { limit: 1, scope: Scope::Shared }];
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[one, never], &[CALLER, both])).unwrap();
    let (alone, refused) = (call(&gate, 1), Call { policy: 1, ..call(&gate, 1) });
    let drain = Call { policy: 1, caller: gate.key(Domain::Caller, b"b"), ..refused };
    assert!(admit(&gate, &drain, 0).admitted());
    // The call charges its own bucket at 0 and is held up until 1 ms; then another charges that.
    let clock = || {
        let _ = gate.admit(&alone, Time::at(MS));
        Time::at(MS)
    };
    let admission = gate.admit_by(&refused, Time::at(0), clock).unwrap();
    assert_eq!(admission.decision.by, Some(1));
    assert!(!admit(&gate, &alone, MS).admitted(), "one token came back, and is used");
}

#[test]
fn what_is_over_by_the_old_limit_is_over_when_the_new_one_is_in_force() {
    let guard = ConcurrencyLimit { failure_trip: 1, cooldown_ns: 10 * MS, ..PLACE };
    let mut memory = memory();
    let limits = [Limit::Concurrency(guard)];
    let gate = Gate::init(&mut memory, &config(&limits, &[CALLER])).unwrap();
    let permit = gate.admit(&call(&gate, 1), Time::at(0)).unwrap().permit.unwrap();
    gate.settle(&permit, Outcome::Failure, 0, Time::at(0)).unwrap();
    assert_eq!(gate.guards(0, Time::at(0)).unwrap().open, 1);
    // Without probes the breaker closes after its cooldown; with them it would now be half-open.
    let probing = ConcurrencyLimit { half_open_probes: 1, ..guard };
    gate.reconfigure(0, &Limit::Concurrency(probing), Time::at(20 * MS)).unwrap();
    let guards = gate.guards(0, Time::at(20 * MS)).unwrap();
    assert_eq!((guards.open, guards.half_open), (0, 0));
    let decision = admit(&gate, &call(&gate, 1), 20 * MS);
    assert_eq!((decision.refused, decision.remaining), (None, 0));
}

#[cfg(feature = "clock")]
#[test]
fn the_wall_clock_is_read_where_there_is_a_quota_or_has_come_to_be_one() {
    let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
    let reads = |gate: &Gate<'_>| gate.system_time().unwrap().unix_ns > 0;
    let mut memory = memory();
    assert!(!reads(&Gate::init(&mut memory, &config(&[TEN], &[policy])).unwrap()));
    assert!(reads(&Gate::init(&mut memory, &config(&[Limit::Quota(UNITS)], &[policy])).unwrap()));
    let gate = Gate::init(&mut memory, &config(&[Limit::Off], &[policy])).unwrap();
    assert!(!reads(&gate));
    gate.reconfigure(0, &Limit::Off, Time::at(0)).unwrap();
    assert!(!reads(&gate));
    gate.reconfigure(0, &Limit::Quota(UNITS), Time::at(0)).unwrap();
    assert!(reads(&gate));
}

#[cfg(feature = "clock")]
#[test]
fn the_wall_clock_is_read_for_calls_whose_policy_has_a_quota_among_its_limits() {
    let limits = [TEN, Limit::Quota(UNITS), Limit::Off];
    let rules = |limits: &[u8]| -> Vec<Rule> {
        limits.iter().map(|&limit| Rule { limit, scope: Scope::Shared }).collect()
    };
    let policies = [rules(&[0]), rules(&[1]), rules(&[2]), rules(&[0, 2, 1]), rules(&[2, 0])];
    let policies: Vec<&[Rule]> = policies.iter().map(Vec::as_slice).collect();
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&limits, &policies)).unwrap();
    let read = || [0, 1, 2, 3, 4, 5].map(|n| gate.system_time_under(n).unwrap().unix_ns > 0);
    assert_eq!(read(), [false, true, false, true, false, false]);
    gate.reconfigure(2, &Limit::Quota(UNITS), Time::at(0)).unwrap();
    assert_eq!(read(), [false, true, true, true, true, false]);
    // A call that is under way may still go by it.
    gate.reconfigure(1, &Limit::Off, Time::at(0)).unwrap();
    assert_eq!(read(), [false, true, true, true, true, false]);
}

#[cfg(feature = "clock")]
#[test]
fn a_call_that_is_settled_now_is_settled_by_the_systems_clock() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let past = gate.system_time().unwrap().now_ns - 2 * MS;
    let permit = gate.admit(&call(&gate, 10), Time::at(past)).unwrap().permit.unwrap();
    assert_eq!(gate.settle_now(&permit, Outcome::Cancelled, 0), Ok(Settled::Now));
    assert_eq!(gate.settle_now(&permit, Outcome::Cancelled, 0), Ok(Settled::Already));
    // Of its ten tokens time had given back two or more, which are not given back twice.
    let by_then = gate.peek(&call(&gate, 0), Time::at(past)).unwrap();
    assert!(by_then[0].remaining <= 8, "{by_then:?}");
    let none = Permit::EMPTY;
    assert_eq!(gate.settle_now(&none, Outcome::Success, 0), Ok(Settled::Already));
}

#[test]
fn a_clock_that_is_out_of_range_counts_as_the_last_instant_in_it() {
    let last = TIME_LIMIT_NS - 1;
    let limits = [Limit::Rate(RateLimit { count: 1, period_ns: 1, burst: 2 })];
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&limits, &[CALLER])).unwrap();
    let permit = gate.admit(&call(&gate, 2), Time::at(last - 1)).unwrap().permit.unwrap();
    gate.settle_by(&permit, Outcome::Cancelled, 0, || Time::at(u64::MAX)).unwrap();
    // By then time had given back one of the two tokens, and the other came back.
    assert_eq!(gate.peek(&call(&gate, 0), Time::at(last)).unwrap()[0].remaining, 2);
}

#[test]
fn a_cost_of_nothing_takes_no_token_and_no_slot() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 0), MS).remaining, 10);
    assert_eq!(gate.stats(Time::at(0)).live, 0);
    assert!(admit(&gate, &call(&gate, 10), MS).admitted());
    let before = gate.peek(&call(&gate, 1), Time::at(0)).unwrap();
    assert!(admit(&gate, &call(&gate, 0), 30 * MS).admitted());
    assert_eq!(gate.peek(&call(&gate, 1), Time::at(0)).unwrap(), before);
}

#[test]
fn an_admitted_call_is_told_the_limit_that_has_the_least_left() {
    let rate = |burst| Limit::Rate(RateLimit { count: 1, period_ns: MS, burst });
    let places = |max_in_flight| Limit::Concurrency(ConcurrencyLimit { max_in_flight, ..PLACE });
    let limits = [rate(10), rate(5), places(4), places(2), Limit::Off, Limit::Quota(UNITS)];
    for (order, told) in [
        (&[0, 1][..], (1, 4)),
        (&[1, 0], (1, 4)),
        (&[2, 3], (3, 1)),
        (&[3, 2], (3, 1)),
        // Places are told only where there is nothing else, and a limit that is off only then.
        (&[3, 1], (1, 4)),
        (&[1, 3], (1, 4)),
        (&[3, 0, 2, 1], (1, 4)),
        (&[4, 3], (3, 1)),
        (&[3, 4], (3, 1)),
        (&[4, 3, 0], (0, 9)),
        // Of two that have as much left, the first.
        (&[0, 5], (0, 9)),
        (&[5, 0], (5, 9)),
    ] {
        let rules: Vec<Rule> =
            order.iter().map(|&limit| Rule { limit, scope: Scope::Caller }).collect();
        let mut memory = memory();
        let gate = Gate::init(&mut memory, &config(&limits, &[&rules])).unwrap();
        let decision = admit(&gate, &Call { reserve: 1, ..call(&gate, 1) }, 0);
        assert_eq!((decision.by.unwrap(), decision.remaining), told, "{order:?}");
    }
}

#[test]
fn what_a_refused_call_held_is_undone_beside_what_others_did_meanwhile() {
    let guard = ConcurrencyLimit { max_in_flight: 5, ..PLACE };
    let never = Limit::Rate(RateLimit { count: 1, period_ns: 1000 * MS, burst: 1 });
    let limits = [Limit::Quota(UNITS), Limit::Concurrency(guard), TEN, never];
    let held = [0, 1].map(|limit| Rule { limit, scope: Scope::Caller });
    let all = [
        held[0],
        held[1],
        Rule { limit: 2, scope: Scope::Caller },
        Rule { limit: 3, scope: Scope::Shared },
    ];
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&limits, &[&all, &held])).unwrap();
    let drain = Call { caller: gate.key(Domain::Caller, b"b"), ..Call::default() };
    assert!(admit(&gate, &drain, 0).admitted());
    let refused = Call { reserve: 4, ..call(&gate, 1) };
    let other = Call { policy: 1, reserve: 3, ..refused };
    let clock = || {
        assert!(admit(&gate, &other, 0).admitted());
        Time::at(0)
    };
    let admission = gate.admit_by(&refused, Time::at(0), clock).unwrap();
    assert_eq!(admission.decision.by, Some(3));
    let left = gate.peek(&Call { reserve: 0, ..other }, Time::at(0)).unwrap();
    assert_eq!(
        left.iter().map(|d| d.remaining).collect::<Vec<_>>(),
        [7, 3],
        "and it takes a place"
    );
}

#[test]
fn the_wait_for_a_place_may_be_for_one_that_a_limit_has_which_is_off() {
    let rule = |limit| Rule { limit, scope: Scope::Caller };
    let (both, second, first) = ([rule(0), rule(1)], [rule(1)], [rule(0)]);
    let mut memory = memory();
    let policies: [&[Rule]; 3] = [&both, &second, &first];
    let gate = Gate::init(&mut memory, &config(&[TEN, TEN], &policies)).unwrap();
    // Of the sixteen slots, one is free after 1 ms: that of the caller's own state of the first
    // limit. The others are after 10 ms.
    assert!(admit(&gate, &Call { policy: 2, ..call(&gate, 1) }, 0).admitted());
    for n in 0..15u8 {
        let caller = gate.key(Domain::Caller, &[n]);
        assert!(admit(&gate, &Call { policy: 1, caller, ..call(&gate, 10) }, 0).admitted());
    }
    let wait = || {
        let decision = admit(&gate, &call(&gate, 1), 0);
        (decision.refused, decision.retry_after_ns)
    };
    assert_eq!(wait(), (Some(Reason::TableFull), 10 * MS), "it keeps what it holds");
    gate.reconfigure(0, &Limit::Off, Time::at(0)).unwrap();
    assert_eq!(wait(), (Some(Reason::TableFull), MS));
}
