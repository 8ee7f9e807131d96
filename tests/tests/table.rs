//! What the table promises: the first `capacity` callers all find a place, a drained one keeps it,
//! and who finds none is told when.
use std::mem::MaybeUninit;

use callgate_core::{
    Call, Config, ConfigError, Field, Gate, Outcome, OwnedGate, Reason, Slot, Time,
};
use callgate_tests::gates::{self, SECRET, call_of};
use callgate_tests::reference::{Limit, RateLimit, Rule, Scope};

const HOUR: u64 = 3_600_000_000_000;

fn rate(count: u64, period_ns: u64, burst: u64) -> Limit {
    Limit::Rate(RateLimit { count, period_ns, burst })
}

fn by_caller(limit: usize) -> Rule {
    Rule { limit, scope: Scope::Caller }
}

/// Drains that many callers, and sees that none was turned away and all stay drained.
fn tracks_all_drained(owned: &OwnedGate, callers: u64, rules: u64) {
    let gate = owned.gate();
    let drained: Vec<Call> = (0..callers).map(|n| call_of(&gate, n)).collect();
    for (n, call) in drained.iter().enumerate() {
        let decision = gate.admit(call, Time::at(0)).unwrap().decision;
        assert!(decision.admitted(), "caller {n} of {callers}: {decision:?}");
    }
    for (n, call) in drained.iter().enumerate() {
        let decision = gate.admit(call, Time::at(1)).unwrap().decision;
        assert_eq!(decision.refused, Some(Reason::Rate), "caller {n} of {callers}");
        assert_eq!(decision.retry_after_ns, HOUR - 1);
    }
    assert_eq!(gate.stats(Time::at(1)).live, callers * rules);
}

#[test]
fn the_first_callers_up_to_the_capacity_are_all_tracked() {
    for capacity in 1..=64 {
        for seed in 1..=150u8 {
            let secret = std::array::from_fn(|n| seed.wrapping_mul(n as u8 + 1) | 1);
            let owned = gates::open(capacity, secret, &[rate(1, HOUR, 1)], &[vec![by_caller(0)]]);
            tracks_all_drained(&owned, u64::from(capacity), 1);
        }
    }
}

#[test]
fn a_million_callers_are_all_tracked() {
    for capacity in [1_000, 10_000, 100_000, 1_000_000] {
        tracks_all_drained(&gates::one_rate(capacity, 1, HOUR, 1), u64::from(capacity), 1);
    }
}

#[test]
fn each_limit_of_a_policy_has_room_for_every_caller() {
    let limits = [rate(1, HOUR, 1), rate(1, HOUR, 2), rate(9, HOUR, 9), rate(1, 1, 1 << 50)];
    let shared = Rule { limit: 3, scope: Scope::Shared };
    let policies = [vec![by_caller(1), by_caller(2), by_caller(0), shared], vec![by_caller(0)]];
    for capacity in [1, 2, 3, 7, 20, 64, 5_000] {
        let owned = gates::open(capacity, SECRET, &limits, &policies);
        let gate = owned.gate();
        for n in 0..u64::from(capacity) {
            let decision = gate.admit(&call_of(&gate, n), Time::at(0)).unwrap().decision;
            assert!(decision.admitted(), "caller {n} of {capacity}: {decision:?}");
        }
        assert_eq!(gate.stats(Time::at(0)).live, u64::from(capacity) * 3 + 1);
    }
}

/// A gate of 16 slots, each of them held by a drained caller; the one that is free first, and when.
fn full_gate() -> OwnedGate {
    let owned = gates::one_rate(1, 1, HOUR, 100);
    let gate = owned.gate();
    for n in 0..16 {
        let call = Call { cost: 100 - n, ..call_of(&gate, n) };
        assert!(gate.admit(&call, Time::at(0)).unwrap().decision.admitted());
    }
    owned
}

#[test]
fn a_newcomer_is_refused_with_the_time_at_which_a_place_is_free() {
    let owned = full_gate();
    let gate = owned.gate();
    let newcomer = call_of(&gate, 1000);
    let free_ns = 85 * HOUR;
    let told = |at_ns| gate.admit(&newcomer, Time::at(at_ns)).unwrap().decision;
    assert_eq!(told(0).refused, Some(Reason::TableFull));
    assert_eq!(told(0).by, Some(0));
    assert_eq!(told(0).retry_after_ns, free_ns);
    assert_eq!(told(free_ns - 1).retry_after_ns, 1);
    assert!(told(free_ns).admitted());
    // The place is taken again: the next one waits for the next.
    let another = gate.admit(&call_of(&gate, 1001), Time::at(free_ns)).unwrap().decision;
    assert_eq!(another.refused, Some(Reason::TableFull));
    assert_eq!(another.retry_after_ns, HOUR);
}

#[test]
fn a_cancelled_call_frees_its_place_at_once() {
    let owned = gates::one_rate(1, 1, HOUR, 1);
    let gate = owned.gate();
    let admit = |n| gate.admit(&call_of(&gate, n), Time::at(5)).unwrap();
    let permits: Vec<_> = (0..16).map(|n| admit(n).permit.unwrap()).collect();
    assert!(!admit(16).decision.admitted());
    gate.settle(&permits[3], Outcome::Cancelled, 0, Time::at(5)).unwrap();
    assert!(admit(16).decision.admitted());
    assert!(!admit(17).decision.admitted());
}

#[test]
fn a_full_table_refuses_only_calls_that_need_a_place() {
    let owned = full_gate();
    let gate = owned.gate();
    let told = |cost, n| gate.admit(&Call { cost, ..call_of(&gate, n) }, Time::at(0)).unwrap();
    assert!(told(0, 1000).decision.admitted(), "asking takes no place");
    assert_eq!(told(101, 1000).decision.refused, Some(Reason::Never));
    assert!(told(15, 15).decision.admitted(), "who has a place keeps it");
    assert_eq!(told(1, 0).decision.refused, Some(Reason::Rate));
}

/// The wait is for a place of somebody else's: what the same call charged to its earlier limits, and
/// is given back at once, frees nothing.
#[test]
fn the_wait_for_a_place_is_true_under_a_policy_of_two_limits() {
    let limits = [rate(1, 1000, 1), rate(1, HOUR, 1)];
    let owned =
        gates::open(1, SECRET, &limits, &[vec![by_caller(0), by_caller(1)], vec![by_caller(1)]]);
    let gate = owned.gate();
    for n in 0..15 {
        let call = Call { policy: 1, ..call_of(&gate, n) };
        assert!(gate.admit(&call, Time::at(0)).unwrap().decision.admitted());
    }
    let newcomer = call_of(&gate, 1000);
    let told = gate.admit(&newcomer, Time::at(0)).unwrap().decision;
    assert_eq!(told.refused, Some(Reason::TableFull));
    let later = gate.admit(&newcomer, Time::at(told.retry_after_ns)).unwrap().decision;
    assert!(later.admitted(), "told to wait {} ns, and then {later:?}", told.retry_after_ns);
}

#[test]
fn a_limit_that_is_none_can_not_be_reconfigured() {
    let owned = gates::one_rate(1, 1, HOUR, 1);
    let to = gates::limit(&rate(1, HOUR, 1));
    for unknown in [1, 2, 63, 64, 255] {
        let error = owned.gate().reconfigure(unknown, &to, Time::at(0));
        let is_it = |e: ConfigError| e.field == Field::RuleLimit;
        assert!(error.is_err_and(is_it), "limit {unknown}: {error:?}");
    }
}

#[test]
fn a_generation_that_wraps_round_loses_nobody() {
    let owned = gates::one_rate(1, 1, HOUR, 1);
    let gate = owned.gate();
    let drained: Vec<Call> = (0..15).map(|n| call_of(&gate, n)).collect();
    for call in &drained {
        assert!(gate.admit(call, Time::at(0)).unwrap().decision.admitted());
    }
    // The one slot that is left changes hands more often than a generation can count.
    let newcomers: Vec<Call> = (100..164).map(|n| call_of(&gate, n)).collect();
    for turn in 0..(1 << 24) + 100 {
        let admission = gate.admit(&newcomers[turn % 64], Time::at(0)).unwrap();
        let permit = admission.permit.expect("the slot is at rest");
        gate.settle(&permit, Outcome::Cancelled, 0, Time::at(0)).unwrap();
    }
    let still = |call: &Call| gate.admit(call, Time::at(0)).unwrap().decision.refused;
    assert!(drained.iter().all(|call| still(call) == Some(Reason::Rate)));
}

#[test]
fn a_gate_writes_nowhere_but_in_its_memory() {
    let limits = [gates::limit(&rate(1, 1000, 1))];
    let policy: &[callgate_core::Rule] = &[gates::rule(&by_caller(0))];
    let config = Config { capacity: 50, secret: SECRET, limits: &limits, policies: &[policy] };
    let needed = Gate::slots_needed(&config).unwrap();
    let mut memory = Vec::new();
    memory.resize_with(needed + 2, MaybeUninit::<Slot>::uninit);
    // SAFETY: any bytes are a `MaybeUninit`, and these are the vector's.
    unsafe { memory.as_mut_ptr().write_bytes(0xA5, memory.len()) };
    let (before, rest) = memory.split_at_mut(1);
    let (inside, after) = rest.split_at_mut(needed);
    let gate = Gate::init(inside, &config).unwrap();
    for n in 0..10_000 {
        gate.admit(&call_of(&gate, n % 200), Time::at(n)).unwrap();
    }
    for canary in [before, after] {
        // SAFETY: all bytes of the slot were written above, and any bytes are an array.
        let bytes: [u8; 32] = unsafe { std::mem::transmute_copy(&canary[0]) };
        assert_eq!(bytes, [0xA5; 32]);
    }
}
