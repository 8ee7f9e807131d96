//! Decisions through a whole gate, where they hang on the order of things inside.
use std::vec::Vec;

use super::*;
use crate::call::Reason;
use crate::rate::RateLimit;

const MS: u64 = 1_000_000;
const CALLER: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];

/// Ten calls at once, and one more each millisecond.
const TEN: Limit = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 10 });

fn memory() -> Vec<MaybeUninit<Slot>> {
    (0..512).map(|_| MaybeUninit::uninit()).collect()
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
fn a_limit_that_is_not_there_is_not_changed() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let error = gate.reconfigure(1, &TEN, Time::at(0)).unwrap_err();
    assert_eq!((error.field, error.limit), (Field::RuleLimit, Some(1)));
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
fn a_permit_of_another_gate_is_unknown_and_stays_good() {
    let mut memories = [memory(), memory()];
    let [first, second] = &mut memories;
    let limits = [TEN];
    let gate = Gate::init(first, &config(&limits, &[CALLER])).unwrap();
    let secret = [8; 16];
    let other = Gate::init(second, &Config { secret, ..config(&limits, &[CALLER]) }).unwrap();
    let permit = gate.admit(&call(&gate, 1), Time::at(0)).unwrap().permit.unwrap();
    let settle = |gate: &Gate<'_>| gate.settle(&permit, Outcome::Success, 0, Time::at(0));
    assert_eq!(settle(&other), Err(CallError::UnknownPermit));
    assert_eq!(settle(&gate), Ok(Settled::Now));
    assert_eq!(settle(&gate), Ok(Settled::Already));
}

#[test]
fn memory_that_is_too_short_is_left_as_it_was() {
    let limits = [TEN];
    let config = config(&limits, &[CALLER]);
    let needed = Gate::slots_needed(&config).unwrap();
    let mut memory = memory();
    assert_eq!(Gate::init(&mut memory[..needed - 1], &config).err().unwrap().field, Field::Memory);
    assert!(Gate::init(&mut memory[..needed], &config).is_ok());
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
fn no_decision_names_a_limit_that_is_not_there() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    // As whoever overwrites the gate's memory might.
    gate.policies[0].store(&[Rule { limit: 63, scope: Scope::Caller }]);
    let call = call(&gate, 1);
    let decision = admit(&gate, &call, 0);
    assert_eq!((decision.refused, decision.by), (Some(Reason::TableFull), None));
    assert_eq!(gate.peek(&call, Time::at(0)).unwrap().as_slice(), [decision]);
}
