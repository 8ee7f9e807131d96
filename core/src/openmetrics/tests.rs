//! What a gate counts, to the letter of the text that tells it.
use core::mem::MaybeUninit;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::call::Call;
use crate::concurrency::ConcurrencyLimit;
use crate::config::Config;
use crate::key::Domain;
use crate::limit::Limit;
use crate::permit::{Outcome, Settled};
use crate::policy::{Rule, Scope};
use crate::rate::RateLimit;
use crate::table::Slot;

const MS: u64 = 1_000_000;
const LEASE_NS: u64 = 1000 * MS;

const LIMITS: [Limit; 3] = [
    Limit::Rate(RateLimit { count: 1, period_ns: 1000 * MS, burst: 2 }),
    Limit::Concurrency(ConcurrencyLimit {
        max_in_flight: 2,
        lease_ns: LEASE_NS,
        reject_trip: 0,
        failure_trip: 1,
        cooldown_ns: 100 * MS,
        half_open_probes: 1,
    }),
    Limit::Off,
];
/// The rate limit in two scopes, of which one is told of both.
const TWICE: &[Rule] = &[
    Rule { limit: 0, scope: Scope::CallerTool },
    Rule { limit: 1, scope: Scope::Shared },
    Rule { limit: 0, scope: Scope::Caller },
];
const PLACES: &[Rule] = &[Rule { limit: 1, scope: Scope::Caller }];

fn memory() -> Vec<MaybeUninit<Slot>> {
    (0..512).map(|_| MaybeUninit::uninit()).collect()
}

fn gate(memory: &mut [MaybeUninit<Slot>]) -> Gate<'_> {
    let policies: &[&[Rule]] = &[TWICE, PLACES];
    Gate::init(memory, &Config { capacity: 1, secret: [7; 16], limits: &LIMITS, policies }).unwrap()
}

fn text(gate: Gate<'_>, names: &Names<'_>, now_ns: u64) -> String {
    let mut text = String::new();
    gate.write_metrics(names, Time::at(now_ns), &mut text).unwrap();
    text
}

#[test]
fn numbers_and_names_are_written_as_they_are() {
    let told = |value| {
        let mut text = String::new();
        number(&mut text, value).unwrap();
        text
    };
    for value in [0, 7, 10, 99, 1_000, u64::MAX] {
        assert_eq!(told(value), std::format!("{value}"));
    }
    let mut text = String::new();
    name(&mut text, &["a\\b\"c\nd", ""], 0).unwrap();
    assert_eq!(text, "a\\\\b\\\"c\\nd");
    name(&mut text, &[], 12).unwrap();
    assert!(text.ends_with("12"));
}

#[test]
fn a_gate_is_told_as_it_is() {
    let mut memory = memory();
    let gate = gate(&mut memory);
    let caller = |name: &[u8]| gate.key(Domain::Caller, name);
    let tool = gate.key(Domain::Tool, b"t");
    let call = |policy, name| Call { policy, caller: caller(name), tool, ..Call::default() };
    let admit = |call: &Call, now_ns| gate.admit(call, Time::at(now_ns)).unwrap();

    // Two calls that take the tool's two tokens and both places of all callers; the third finds no
    // token by tool, the fourth none of its own.
    let first = admit(&call(0, b"a"), 0).permit.unwrap();
    assert!(admit(&call(0, b"a"), 0).decision.admitted());
    assert_eq!(admit(&call(0, b"a"), 0).decision.by, Some(0));
    let of_other_tool = Call { tool: gate.key(Domain::Tool, b"u"), ..call(0, b"a") };
    assert_eq!(admit(&of_other_tool, 0).decision.refused, Some(Reason::Concurrency));
    // A breaker of one caller's own opens, and refuses.
    let failing = admit(&call(1, b"b"), 0).permit.unwrap();
    gate.settle(&failing, Outcome::Failure, 0, Time::at(0)).unwrap();
    assert_eq!(admit(&call(1, b"b"), 0).decision.refused, Some(Reason::BreakerOpen));
    let expected = "\
# HELP callgate_decisions Calls decided, by policy, limit and reason.
# TYPE callgate_decisions counter
callgate_decisions_total{policy=\"both\",limit=\"\",reason=\"admitted\"} 2
callgate_decisions_total{policy=\"both\",limit=\"rate\",reason=\"rate\"} 1
callgate_decisions_total{policy=\"both\",limit=\"places\",reason=\"concurrency\"} 1
callgate_decisions_total{policy=\"1\",limit=\"\",reason=\"admitted\"} 1
callgate_decisions_total{policy=\"1\",limit=\"places\",reason=\"breaker_open\"} 1
# HELP callgate_in_flight Calls that hold a place.
# TYPE callgate_in_flight gauge
callgate_in_flight{limit=\"places\"} 2
# HELP callgate_breaker_open Breakers that are open.
# TYPE callgate_breaker_open gauge
callgate_breaker_open{limit=\"places\"} 1
# HELP callgate_breaker_half_open Breakers that are half-open.
# TYPE callgate_breaker_half_open gauge
callgate_breaker_half_open{limit=\"places\"} 0
# HELP callgate_breaker_trips How often a breaker opened.
# TYPE callgate_breaker_trips counter
callgate_breaker_trips_total{limit=\"places\"} 1
# HELP callgate_permits_lapsed Permits settled after their lease.
# TYPE callgate_permits_lapsed counter
callgate_permits_lapsed_total{limit=\"places\"} 0
# HELP callgate_table_slots Slots of the table, by what they hold.
# TYPE callgate_table_slots gauge
callgate_table_slots{state=\"live\"} 4
callgate_table_slots{state=\"at_rest\"} 1
callgate_table_slots{state=\"claimed\"} 0
callgate_table_slots{state=\"empty\"} 11
# EOF
";
    let names = Names { policies: &["both"], limits: &["rate", "places"] };
    assert_eq!(text(gate, &names, 0), expected);

    // After the cooldown the breaker is half-open; after its lease, a place is lost for good.
    let later = text(gate, &names, 100 * MS);
    assert!(later.contains("callgate_breaker_open{limit=\"places\"} 0\n"), "{later}");
    assert!(later.contains("callgate_breaker_half_open{limit=\"places\"} 1\n"), "{later}");
    let long_after = Time::at(2 * LEASE_NS);
    assert_eq!(gate.settle(&first, Outcome::Success, 0, long_after), Ok(Settled::Lapsed));
    let later = text(gate, &Names::default(), long_after.now_ns);
    assert!(later.contains("callgate_in_flight{limit=\"1\"} 0\n"), "{later}");
    assert!(later.contains("callgate_permits_lapsed_total{limit=\"1\"} 1\n"), "{later}");
    assert!(later.contains("callgate_table_slots{state=\"live\"} 0\n"), "{later}");
}

#[test]
fn counts_of_all_threads_come_together() {
    let mut memory = memory();
    let gate = gate(&mut memory);
    let call = Call { policy: 1, caller: gate.key(Domain::Caller, b"a"), ..Call::default() };
    // Two of each three are admitted: the third finds no place.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(move || gate.admit(&call, Time::at(0)).unwrap().decision);
        }
    });
    let Decisions { admitted, refused } = gate.decisions(1).unwrap();
    assert_eq!((admitted, refused[0][Reason::Concurrency as usize]), (2, 14));
    assert_eq!(refused.iter().flatten().sum::<u64>(), 14);
    assert_eq!(gate.decisions(0), Some(Decisions::default()));
    assert_eq!(gate.decisions(2), None);
    assert_eq!(gate.guards(0, Time::at(0)), None, "a rate limit holds no places");
    assert_eq!(gate.guards(3, Time::at(0)), None, "there is no such limit");
}
