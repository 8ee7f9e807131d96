//! Many threads at concurrency limits and quotas, counted against exact bounds.
#[allow(dead_code, reason = "each crowd needs a part of it")]
mod crowd;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use callgate_core::{Call, Outcome, Reason, Settled, Time};
use callgate_tests::gates::{self, SECRET, call_of};
use callgate_tests::reference::{ConcurrencyLimit, Limit, Quota, RateLimit, Rule, Scope};
use crowd::{Dice, in_parallel};

const SECOND: u64 = 1_000_000_000;
const OUTCOMES: [Outcome; 4] =
    [Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled];

/// Of `max_in_flight` places; without trips, a breaker that never opens.
fn guard(max_in_flight: u32, trip: u32, half_open_probes: u32) -> Limit {
    Limit::Concurrency(ConcurrencyLimit {
        max_in_flight,
        lease_ns: 3600 * SECOND,
        reject_trip: trip,
        failure_trip: trip,
        cooldown_ns: 1_000_000,
        half_open_probes,
    })
}

fn shared(limit: usize) -> Rule {
    Rule { limit, scope: Scope::Shared }
}

#[test]
fn no_more_are_in_flight_than_there_are_places_and_none_in_the_end() {
    const PLACES: i64 = 3;
    let owned = gates::open(10, SECRET, &[guard(3, 0, 0)], &[vec![shared(0)]]);
    let gate = owned.gate();
    let (inside, most, admitted) = (AtomicI64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    in_parallel(6, |thread| {
        let mut dice = Dice::new(thread);
        for n in 0..40_000u64 {
            let time = Time::at(n);
            let Some(permit) = gate.admit(&Call::default(), time).unwrap().permit else { continue };
            let now_inside = inside.fetch_add(1, SeqCst) + 1;
            assert!(now_inside <= PLACES, "{now_inside} are in flight");
            most.fetch_max(now_inside, SeqCst);
            admitted.fetch_add(1, SeqCst);
            if dice.below(8) == 0 {
                std::thread::yield_now();
            }
            inside.fetch_sub(1, SeqCst);
            let outcome = OUTCOMES[dice.below(4) as usize];
            assert_eq!(gate.settle(&permit, outcome, 0, time), Ok(Settled::Now));
            assert_eq!(gate.settle(&permit, outcome, 0, time), Ok(Settled::Already));
        }
    });
    assert_eq!(gate.guards(0, Time::at(0)).unwrap().in_flight, 0);
    assert_eq!(gate.stats(Time::at(0)).live, 0, "what nobody holds is at rest");
    assert!(admitted.into_inner() > 10_000 && most.into_inner() > 1);
}

/// A breaker that opens and closes all the time, a rate limit behind the places, a clock that runs
/// and threads that are late: places that are taken back, probes, results from before a trip.
#[test]
fn whatever_breakers_and_refusals_do_every_place_comes_back() {
    const PLACES: i64 = 4;
    let rate = Limit::Rate(RateLimit { count: 1, period_ns: 3_000, burst: 50 });
    let behind = vec![shared(0), shared(1)];
    let owned = gates::open(10, SECRET, &[guard(4, 3, 2), rate], &[vec![shared(0)], behind]);
    let gate = owned.gate();
    let (inside, clock) = (AtomicI64::new(0), AtomicU64::new(0));
    in_parallel(6, |thread| {
        let mut dice = Dice::new(thread);
        for _ in 0..40_000 {
            let time = Time::at(clock.fetch_add(dice.below(4_000), SeqCst));
            let call = Call { policy: dice.below(2) as u32, ..Call::default() };
            let admission = gate.admit(&call, time).unwrap();
            assert!(admission.decision.remaining <= admission.decision.limit);
            let Some(permit) = admission.permit else {
                let reasons = [Reason::Concurrency, Reason::BreakerOpen, Reason::Rate];
                assert!(reasons.contains(&admission.decision.refused.unwrap()));
                continue;
            };
            let now_inside = inside.fetch_add(1, SeqCst) + 1;
            assert!(now_inside <= PLACES, "{now_inside} are in flight");
            if dice.below(4) == 0 {
                std::thread::yield_now();
            }
            inside.fetch_sub(1, SeqCst);
            let time = Time::at(clock.load(SeqCst));
            let outcome = OUTCOMES[dice.below(4) as usize];
            assert_eq!(gate.settle(&permit, outcome, 0, time), Ok(Settled::Now));
        }
    });
    let end = Time::at(clock.into_inner());
    let guards = gate.guards(0, end).unwrap();
    assert_eq!((guards.in_flight, guards.lapsed), (0, 0));
    assert!(guards.trips > 10, "{guards:?}");
    let later = Time::at(end.now_ns + SECOND);
    assert!(gate.admit(&Call::default(), later).unwrap().decision.admitted(), "nothing sticks");
}

/// What each call used is what it reserved, so that no more than the limit can ever be given out.
#[test]
fn a_quota_gives_out_what_it_holds_and_not_one_unit_more() {
    const UNITS: u64 = 50_000;
    let quota = Quota { limit: UNITS, period_s: 86_400, anchor_unix_s: 0, must_seed: false };
    let by_caller = vec![Rule { limit: 0, scope: Scope::Caller }];
    let owned = gates::open(10, SECRET, &[Limit::Quota(quota)], &[by_caller]);
    let gate = owned.gate();
    let given = AtomicU64::new(0);
    in_parallel(5, |thread| {
        let mut dice = Dice::new(thread);
        for n in 0..30_000u64 {
            // Of ones at the end, so that the last unit finds a taker.
            let reserve = if n < 20_000 { 1 + dice.below(4) } else { 1 };
            let call = Call { reserve, ..call_of(&gate, 1) };
            let Some(permit) = gate.admit(&call, Time::at(0)).unwrap().permit else { continue };
            let (outcome, kept) = match dice.below(3) {
                0 => (Outcome::Cancelled, 0),
                1 => (Outcome::Abandoned, reserve),
                _ => (Outcome::Success, reserve),
            };
            given.fetch_add(kept, SeqCst);
            let used = if outcome == Outcome::Success { reserve } else { 0 };
            gate.settle(&permit, outcome, used, Time::at(0)).unwrap();
        }
    });
    let left = gate.peek(&call_of(&gate, 1), Time::at(0)).unwrap()[0].remaining;
    assert_eq!(given.into_inner() + left, UNITS);
}
