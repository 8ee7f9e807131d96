//! What a gate does not do, and how it says so.
use super::*;

#[test]
fn a_limit_that_is_not_there_is_not_changed() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let error = gate.reconfigure(1, &TEN, Time::at(0)).unwrap_err();
    assert_eq!((error.field, error.limit), (Field::RuleLimit, Some(1)));
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
fn a_call_that_can_be_decided_is_told_from_one_that_cannot_and_nothing_is_charged() {
    let by_tool: &[Rule] = &[Rule { limit: 0, scope: Scope::Tool }];
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER, by_tool])).unwrap();
    assert_eq!((gate.policy_count(), gate.limit_count()), (2, 1));
    let good = call(&gate, 10);
    let too_late = Time::at(TIME_LIMIT_NS);
    for (call, time, expected) in [
        (good, Time::at(0), Ok(())),
        (good, Time::at(TIME_LIMIT_NS - 1), Ok(())),
        (good, too_late, Err(CallError::TimeOutOfRange)),
        (Call { policy: 2, ..good }, Time::at(0), Err(CallError::UnknownPolicy)),
        (Call { caller: Key::ABSENT, ..good }, Time::at(0), Err(CallError::MissingCaller)),
        (Call { policy: 1, ..good }, Time::at(0), Err(CallError::MissingTool)),
    ] {
        assert_eq!(gate.check(&call, time), expected);
        assert_eq!(gate.peek(&call, time).err(), expected.err());
        if expected.is_err() {
            assert_eq!(gate.admit(&call, time).err(), expected.err());
        }
    }
    assert!(admit(&gate, &good, 0).admitted(), "nothing was charged");
}

#[test]
fn every_error_of_a_call_begins_with_what_is_wrong() {
    for (error, beginning) in [
        (CallError::UnknownPolicy, "policy: "),
        (CallError::UnknownLimit, "limit: "),
        (CallError::MissingCaller, "caller: "),
        (CallError::MissingTool, "tool: "),
        (CallError::TimeOutOfRange, "now_ns: "),
        (CallError::UnknownPermit, "permit: "),
        (CallError::NotAQuota, "limit: "),
    ] {
        assert!(std::format!("{error}").starts_with(beginning), "{error}");
    }
}

#[test]
fn a_window_is_set_of_a_quota_whose_windows_are_the_hosts_and_of_no_other() {
    let days = Windows::Every { period_s: 86_400, anchor_unix_s: 0 };
    let limits = [TEN, Limit::Quota(UNITS), Limit::Quota(Quota { windows: days, ..UNITS })];
    let mut memory = memory();
    let policy: &[Rule] = &[Rule { limit: 1, scope: Scope::Caller }];
    let gate = Gate::init(&mut memory, &config(&limits, &[policy])).unwrap();
    let fault = |limit, start_s, end_s| {
        let error = gate.set_window(limit, start_s, end_s).unwrap_err();
        assert_eq!((error.limit, error.policy), (Some(limit), None));
        error.field
    };
    assert_eq!(fault(3, 10, 20), Field::RuleLimit);
    assert_eq!([0, 2].map(|limit| fault(limit, 10, 20)), [Field::Kind; 2]);
    assert_eq!(fault(1, 20, 20), Field::Window);
    assert_eq!(fault(1, 20, 10), Field::Window);
    assert_eq!(fault(1, 10, 10 + (1 << 29)), Field::Window);
    assert_eq!(fault(1, 1 << 35, (1 << 35) + 1), Field::Window);
    gate.set_window(1, 10, 9 + (1 << 29)).unwrap();
    gate.set_window(1, 100, 200).unwrap();
    let at = |unix_s: u64| {
        let time = Time { now_ns: 0, unix_ns: unix_s * 1_000_000_000 };
        gate.peek(&call(&gate, 1), time).unwrap()[0].reset_after_ns / 1_000_000_000
    };
    assert_eq!([100, 150, 199, 200].map(at), [100, 50, 1, 100]);
    // One that begins earlier is late news.
    gate.set_window(1, 99, 500).unwrap();
    assert_eq!(at(150), 50);
    // One that begins at the same time is a correction.
    gate.set_window(1, 100, 160).unwrap();
    assert_eq!(at(150), 10);
}

#[test]
fn a_limit_that_can_not_become_what_is_asked_for_is_named() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN, TEN], &[CALLER])).unwrap();
    let never = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 0 });
    let fault = |to: &Limit, now_ns| gate.reconfigure(1, to, Time::at(now_ns)).unwrap_err();
    let of = |field| ConfigError { limit: Some(1), ..ConfigError::of(field) };
    assert_eq!(fault(&never, 0), of(Field::Burst));
    assert_eq!(fault(&Limit::Quota(UNITS), 0), of(Field::Kind));
    assert_eq!(fault(&TEN, TIME_LIMIT_NS), ConfigError::of(Field::Now));
    gate.reconfigure(1, &TEN, Time::at(TIME_LIMIT_NS - 1)).unwrap();
}

#[test]
fn a_ledger_is_heard_once_in_a_window_and_nobody_else_is() {
    let seeded = Limit::Quota(Quota { must_seed: true, ..UNITS });
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[seeded, TEN], &[CALLER])).unwrap();
    let caller = gate.key(Domain::Caller, b"a");
    let rule = |limit, scope| Rule { limit, scope };
    let seed =
        |rule, caller, tool, now_ns| gate.seed(rule, caller, tool, 4, Time { now_ns, unix_ns: 0 });
    let none = Key::ABSENT;
    assert_eq!(
        seed(rule(0, Scope::Caller), caller, none, TIME_LIMIT_NS),
        Err(CallError::TimeOutOfRange)
    );
    assert_eq!(seed(rule(2, Scope::Caller), caller, none, 0), Err(CallError::UnknownLimit));
    assert_eq!(seed(rule(1, Scope::Caller), caller, none, 0), Err(CallError::NotAQuota));
    for (scope, given, missing) in [
        (Scope::Caller, (none, caller), CallError::MissingCaller),
        (Scope::CallerTool, (none, caller), CallError::MissingCaller),
        (Scope::CallerTool, (caller, none), CallError::MissingTool),
        (Scope::Tool, (caller, none), CallError::MissingTool),
    ] {
        assert_eq!(seed(rule(0, scope), given.0, given.1, 0), Err(missing), "{scope:?}");
    }
    assert_eq!(admit(&gate, &call(&gate, 1), 0).refused, Some(Reason::Unseeded));
    assert_eq!(seed(rule(0, Scope::Caller), caller, none, 0), Ok(Seeded::Now));
    assert_eq!(seed(rule(0, Scope::Caller), caller, none, 0), Ok(Seeded::Already));
    assert_eq!(seed(rule(0, Scope::Shared), none, none, 0), Ok(Seeded::Now));
    let tools = [b"t", b"u"].map(|tool| gate.key(Domain::Tool, tool));
    for tool in tools {
        assert_eq!(seed(rule(0, Scope::Tool), none, tool, 0), Ok(Seeded::Now), "each by itself");
    }
    let reserving = Call { reserve: 7, ..call(&gate, 1) };
    let decision = admit(&gate, &reserving, 0);
    assert_eq!((decision.refused, decision.remaining), (Some(Reason::Quota), 6));
}

#[test]
fn a_concurrency_limit_keeps_its_lease() {
    let mut memory = memory();
    let limits = [Limit::Concurrency(PLACE)];
    let gate = Gate::init(&mut memory, &config(&limits, &[CALLER])).unwrap();
    let change = |to| gate.reconfigure(0, &Limit::Concurrency(to), Time::at(0));
    let other_lease = change(ConcurrencyLimit { lease_ns: 1001 * MS, ..PLACE });
    assert_eq!(other_lease.err().map(|error| error.field), Some(Field::LeaseNs));
    change(ConcurrencyLimit { max_in_flight: 2, ..PLACE }).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 1), 0).remaining, 1);
    // Also through having been off: who was in flight still is.
    gate.reconfigure(0, &Limit::Off, Time::at(0)).unwrap();
    assert_eq!(gate.guards(0, Time::at(0)).unwrap().in_flight, 1);
    assert_eq!(gate.stats(Time::at(0)).live, 1);
    let other_lease = change(ConcurrencyLimit { lease_ns: 1001 * MS, ..PLACE });
    assert_eq!(other_lease.err().map(|error| error.field), Some(Field::LeaseNs));
    change(PLACE).unwrap();
    assert_eq!(admit(&gate, &call(&gate, 1), 0).refused, Some(Reason::Concurrency));
}

#[test]
fn no_permit_is_told_from_one_that_is_garbage() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    let settle = |permit: &Permit| gate.settle(permit, Outcome::Success, 0, Time::at(0));
    let none = Permit::EMPTY;
    assert_eq!(settle(&none), Ok(Settled::Already));
    let copy = |permit: &Permit, at: usize, byte: u8| {
        // SAFETY: a permit is plain data, of which any bytes are one.
        let mut bytes: [u8; size_of::<Permit>()] = unsafe { core::mem::transmute_copy(permit) };
        bytes[at] = byte;
        // SAFETY: as above.
        unsafe { core::mem::transmute::<_, Permit>(bytes) }
    };
    // The state, of no permit and of one; and the gate that gave it.
    assert_eq!(settle(&copy(&none, 0, 1)), Err(CallError::UnknownPermit));
    assert_eq!(settle(&copy(&none, 4, 1)), Err(CallError::UnknownPermit));
    let permit = gate.admit(&call(&gate, 1), Time::at(0)).unwrap().permit.unwrap();
    assert_eq!(std::format!("{permit:?}"), "Permit { settled: false, .. }");
    assert_eq!(settle(&copy(&permit, 0, 3)), Err(CallError::UnknownPermit));
    assert_eq!(settle(&permit), Ok(Settled::Now));
    assert_eq!(std::format!("{permit:?}"), "Permit { settled: true, .. }");
}

#[test]
fn no_decision_names_a_limit_that_is_not_there() {
    let mut memory = memory();
    let gate = Gate::init(&mut memory, &config(&[TEN], &[CALLER])).unwrap();
    // As whoever overwrites the gate's memory might.
    for limit in [1, 63] {
        gate.policies[0].store(&[Rule { limit, scope: Scope::Caller }]);
        let call = call(&gate, 1);
        let decision = admit(&gate, &call, 0);
        assert_eq!((decision.refused, decision.by), (Some(Reason::TableFull), None));
        assert_eq!(gate.peek(&call, Time::at(0)).unwrap().as_slice(), [decision]);
    }
    assert_eq!(gate.unread(0).by, Some(0), "one that is there, and is being changed");
}
