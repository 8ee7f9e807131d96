//! Many threads at one gate, counted against exact bounds.
mod crowd;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};

use callgate_core::{Call, Outcome, Reason, Settled, Stats, Time};
use callgate_tests::gates::{self, SECRET, call_of};
use callgate_tests::reference::{Limit, RateLimit, Rule, Scope};
use crowd::{Dice, Over, Visit, check_windows, in_parallel};

const HOUR: u64 = 3_600_000_000_000;

#[test]
fn threads_at_one_key_are_admitted_what_one_thread_would_be() {
    for threads in 2..=8u64 {
        let owned = gates::one_rate(10, 1, HOUR, 5_000);
        let gate = owned.gate();
        let admitted = AtomicU64::new(0);
        in_parallel(threads, |thread| {
            let mut dice = Dice::new(thread);
            for n in 0..20_000 / threads {
                // Of ones at the end, so that the last token finds a taker.
                let cost = if n < 100 { 1 + dice.below(3) } else { 1 };
                let call = Call { cost, ..call_of(&gate, 1) };
                if gate.admit(&call, Time::at(7)).unwrap().decision.admitted() {
                    admitted.fetch_add(cost, SeqCst);
                }
            }
        });
        assert_eq!(admitted.into_inner(), 5_000, "{threads} threads");
    }
}

#[test]
fn threads_with_a_clock_that_runs_are_admitted_what_one_thread_would_be() {
    const STEP: u64 = 10;
    const INTERVAL: u64 = 100;
    const BURST: u64 = 1_000;
    for threads in [2, 4, 8] {
        let owned = gates::one_rate(10, 1, INTERVAL, BURST);
        let gate = owned.gate();
        let (clock, admitted) = (AtomicU64::new(STEP), AtomicU64::new(1));
        let call = call_of(&gate, 1);
        assert!(gate.admit(&call, Time::at(0)).unwrap().decision.admitted());
        in_parallel(threads, |_| {
            for _ in 0..80_000 / threads {
                let now_ns = clock.fetch_add(STEP, SeqCst);
                let admission = gate.admit(&call, Time::at(now_ns)).unwrap();
                admitted.fetch_add(u64::from(admission.decision.admitted()), SeqCst);
            }
        });
        // Calls that came late were refused by those that came early; drained at the end, the
        // bucket has given what it held and what time brought, to the token.
        let end_ns = clock.into_inner();
        while gate.admit(&call, Time::at(end_ns)).unwrap().decision.admitted() {
            admitted.fetch_add(1, SeqCst);
        }
        assert_eq!(admitted.into_inner(), BURST + end_ns / INTERVAL, "{threads} threads");
    }
}

/// Gates in which all threads meet at the same few newcomers, over and over; each call is told a
/// time so much later than the one before.
fn rounds_of_inserts(later_ns: u64, check: impl Fn(&[u64], Stats)) {
    for round in 0..1_500u64 {
        let owned = gates::one_rate(1, 1, 1 << 59, INSERTS_BURST);
        let clock = AtomicU64::new(0);
        let gate = owned.gate();
        let counts: Vec<AtomicU64> = (0..24).map(|_| AtomicU64::new(0)).collect();
        in_parallel(4, |_| {
            for (key, count) in counts.iter().enumerate() {
                for _ in 0..2 * INSERTS_BURST {
                    let call = call_of(&gate, round * 24 + key as u64);
                    let time = Time::at(clock.fetch_add(later_ns, SeqCst));
                    let decision = gate.admit(&call, time).unwrap().decision;
                    count.fetch_add(u64::from(decision.admitted()), SeqCst);
                }
            }
        });
        let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
        check(&counts, gate.stats(Time::at(clock.into_inner())));
    }
}

const INSERTS_BURST: u64 = 3;

/// Two live entries for one caller would hand it two bursts; one that got lost would cut it short.
fn each_is_tracked_once(counts: &[u64], stats: Stats) {
    let whole = |&count: &u64| count == 0 || count == INSERTS_BURST;
    assert!(counts.iter().all(whole), "each is tracked or turned away: {counts:?}");
    let tracked = counts.iter().filter(|&&count| count > 0).count() as u64;
    assert_eq!(stats.live, tracked, "{counts:?}");
}

#[test]
fn threads_that_insert_one_key_make_one_entry() {
    rounds_of_inserts(0, each_is_tracked_once);
}

/// So late that every claim looks like that of a thread that stopped.
#[test]
fn threads_that_take_over_each_others_claims_make_one_entry() {
    rounds_of_inserts(2_000_000_000, each_is_tracked_once);
}

/// Threads that met at one key, and are done with it, keep no place beside its entry.
#[test]
fn threads_that_are_done_leave_no_place_taken() {
    rounds_of_inserts(0, |counts, stats| assert_eq!(stats.claimed, 0, "{stats:?}, {counts:?}"));
}

/// With time standing still, what a caller holds at once can never be more than a burst, however
/// places change hands and charges are given back.
#[test]
fn cancelling_and_admitting_on_a_tiny_table_mints_nothing() {
    const BURST: i64 = 4;
    const KEYS: u64 = 30;
    let owned = gates::one_rate(1, 1, HOUR, BURST as u64);
    let gate = owned.gate();
    let held: Vec<AtomicI64> = (0..KEYS).map(|_| AtomicI64::new(0)).collect();
    in_parallel(4, |thread| {
        let mut dice = Dice::new(thread);
        let mut permits = Vec::new();
        for _ in 0..200_000 {
            let key = dice.below(KEYS);
            let admission = gate.admit(&call_of(&gate, key), Time::at(0)).unwrap();
            if let Some(permit) = admission.permit {
                let now_held = held[key as usize].fetch_add(1, SeqCst) + 1;
                assert!(now_held <= BURST, "key {key} holds {now_held}");
                permits.push((key, permit));
            }
            if dice.below(3) > 0 && !permits.is_empty() {
                let (key, permit) = permits.swap_remove(dice.below(permits.len() as u64) as usize);
                held[key as usize].fetch_sub(1, SeqCst);
                let settled = gate.settle(&permit, Outcome::Cancelled, 0, Time::at(0));
                assert_eq!(settled, Ok(Settled::Now));
            }
        }
        for (key, permit) in permits {
            held[key as usize].fetch_sub(1, SeqCst);
            gate.settle(&permit, Outcome::Cancelled, 0, Time::at(0)).unwrap();
        }
    });
    let stats = gate.stats(Time::at(0));
    assert_eq!((stats.live, stats.claimed), (0, 0), "all was given back");
}

/// Two threads that step from permit to permit together.
#[test]
fn a_permit_that_two_threads_cancel_is_refunded_once() {
    const PERMITS: u64 = 20_000;
    let owned = gates::one_rate(10, 1, HOUR / 1_000, PERMITS + 1);
    let gate = owned.gate();
    let call = call_of(&gate, 1);
    let admit = || gate.admit(&call, Time::at(0)).unwrap().permit.unwrap();
    let permits: Vec<_> = (0..PERMITS).map(|_| admit()).collect();
    let (arrived, firsts) = (AtomicU64::new(0), AtomicU64::new(0));
    in_parallel(2, |_| {
        for (permit, both) in permits.iter().zip((2..).step_by(2)) {
            arrived.fetch_add(1, SeqCst);
            while arrived.load(SeqCst) < both {
                std::hint::spin_loop();
            }
            let settled = gate.settle(permit, Outcome::Cancelled, 0, Time::at(0)).unwrap();
            firsts.fetch_add(u64::from(settled == Settled::Now), SeqCst);
        }
    });
    assert_eq!(firsts.into_inner(), PERMITS);
    assert_eq!(gate.peek(&call, Time::at(0)).unwrap()[0].remaining, PERMITS);
}

/// A clock that runs, threads that look at it and are late, places that change hands. For every
/// caller and every span of time: what it was given within the span is no more than a burst and
/// what the span brought.
#[test]
fn on_a_tiny_table_no_span_of_time_gives_a_caller_too_much() {
    const INTERVAL: u64 = 1_000;
    const BURST: u64 = 3;
    let owned = gates::one_rate(1, 1, INTERVAL, BURST);
    let gate = owned.gate();
    let clock = AtomicU64::new(0);
    let visits = Mutex::new(BTreeMap::<u64, Vec<Visit>>::new());
    in_parallel(4, |thread| {
        let mut dice = Dice::new(thread);
        let mut mine = Vec::new();
        for turn in 0..60_000u64 {
            // Each thread stays with a few of the callers for a while, so that some come to rest.
            let key = (turn / 500 * 7 + thread % 2 * 3 + dice.below(12)) % 40;
            let told_ns = clock.fetch_add(1 + dice.below(20), SeqCst);
            if dice.below(50) == 0 {
                std::thread::yield_now();
            }
            let admission = gate.admit(&call_of(&gate, key), Time::at(told_ns)).unwrap();
            if admission.decision.admitted() {
                mine.push((key, Visit { told_ns, done_ns: clock.load(SeqCst) }));
            }
        }
        let mut visits = visits.lock().unwrap();
        for (key, visit) in mine {
            visits.entry(key).or_default().push(visit);
        }
    });
    let visits = visits.into_inner().unwrap();
    assert!(visits.values().map(Vec::len).sum::<usize>() > 1_000);
    for (key, mut visits) in visits {
        check_windows(&format!("key {key}"), &mut visits, BURST, INTERVAL);
    }
}

/// The two settings take as long to fill, so no change of one for the other forgives a debt.
#[test]
fn while_a_limit_is_changed_no_more_is_admitted_than_by_the_looser_setting() {
    let setting = |count| RateLimit { count, period_ns: HOUR, burst: count };
    let (tight, loose) = (Limit::Rate(setting(1_000)), Limit::Rate(setting(2_000)));
    let policy = vec![Rule { limit: 0, scope: Scope::Caller }];
    for _ in 0..20 {
        let owned = gates::open(100, SECRET, &[tight], std::slice::from_ref(&policy));
        let gate = owned.gate();
        let (admitted, over) = (AtomicU64::new(0), AtomicBool::new(false));
        in_parallel(5, |thread| match thread {
            0 => {
                while !over.load(SeqCst) {
                    for to in [loose, tight] {
                        gate.reconfigure(0, &gates::limit(&to), Time::at(0)).unwrap();
                    }
                }
            }
            1 => {
                while !over.load(SeqCst) {
                    // Of a full bucket all is left: by one setting or the other, not by half of each.
                    let stranger = Call { cost: 0, ..call_of(&gate, 2) };
                    for _ in 0..200 {
                        let said = gate.peek(&stranger, Time::at(0)).unwrap()[0];
                        assert!(matches!(said.limit, 0 | 1_000 | 2_000), "{said:?}");
                        assert_eq!(said.remaining, said.limit, "{said:?}");
                    }
                    let stats = gate.stats(Time::at(0));
                    let all = stats.live + stats.at_rest + stats.claimed + stats.empty;
                    assert_eq!(all, stats.slots);
                }
            }
            _ => {
                let _over = Over(&over);
                for _ in 0..6_000 {
                    let decision = gate.admit(&call_of(&gate, 1), Time::at(0)).unwrap().decision;
                    assert!(matches!(decision.limit, 0 | 1_000 | 2_000), "{decision:?}");
                    admitted.fetch_add(u64::from(decision.admitted()), SeqCst);
                }
            }
        });
        let admitted = admitted.into_inner();
        assert!((1_000..=2_000).contains(&admitted), "{admitted}");
    }
}

#[test]
fn a_flood_on_one_caller_refuses_no_other() {
    const INTERVAL: u64 = 1_000;
    let owned = gates::one_rate(1, 1, INTERVAL, 10);
    let gate = owned.gate();
    let (over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let clock = AtomicU64::new(0);
    let patient = call_of(&gate, 0);
    assert!(gate.admit(&patient, Time::at(0)).unwrap().decision.admitted());
    in_parallel(4, |thread| {
        if thread > 0 {
            let mut dice = Dice::new(thread);
            while !over.load(SeqCst) {
                // One caller that floods, and newcomers without number beside it.
                let caller = if thread == 1 { 1 } else { 2 + dice.below(1 << 40) };
                let call = call_of(&gate, caller);
                let decision = gate.admit(&call, Time::at(clock.load(SeqCst))).unwrap().decision;
                refused.fetch_add(u64::from(!decision.admitted()), SeqCst);
            }
            return;
        }
        let _over = Over(&over);
        // As fast as it may, and never quite at rest; on a busy machine until the others have had
        // their turn.
        for n in 1..=60_000_000 {
            if n > 60_000 {
                if refused.load(SeqCst) > 1_000 {
                    break;
                }
                std::thread::yield_now();
            }
            let now_ns = n * INTERVAL - 1;
            clock.store(now_ns, SeqCst);
            let decision = gate.admit(&patient, Time::at(now_ns)).unwrap().decision;
            assert!(decision.admitted(), "call {n}: {decision:?}");
        }
    });
    assert!(refused.into_inner() > 1_000, "there was a flood");
    let flooded = gate.admit(&call_of(&gate, 1), Time::at(clock.into_inner())).unwrap().decision;
    assert!(matches!(flooded.refused, None | Some(Reason::Rate | Reason::TableFull)));
}
