//! Each bound, on both sides of it, and what is said beyond it.
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::concurrency::ConcurrencyLimit;
use crate::gate::Gate;
use crate::policy::Scope;
use crate::quota::{Quota, Windows};
use crate::rate::RateLimit;
use crate::time::TIME_LIMIT_NS;

const MS: u64 = 1_000_000;
const RATE: Limit = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 1 });
const RULE: Rule = Rule { limit: 0, scope: Scope::Shared };
const GUARD: ConcurrencyLimit = ConcurrencyLimit {
    max_in_flight: 1,
    lease_ns: MS,
    reject_trip: 1,
    failure_trip: 1,
    cooldown_ns: MS,
    half_open_probes: 1,
};
const GOOD: Config<'_> =
    Config { capacity: 1, secret: [7; 16], limits: &[RATE], policies: &[&[RULE]] };

fn fault(config: &Config<'_>) -> Option<Field> {
    config.check().err().map(|error| error.field)
}

fn fault_of(limit: &Limit) -> Option<Field> {
    fault(&Config { limits: &[*limit], ..GOOD })
}

#[test]
fn a_gate_has_one_caller_to_67_million() {
    let fault = |capacity| fault(&Config { capacity, ..GOOD });
    assert_eq!(
        [0, 1, MAX_CAPACITY, MAX_CAPACITY + 1].map(fault),
        [Some(Field::Capacity), None, None, Some(Field::Capacity)]
    );
}

#[test]
fn a_secret_is_not_all_zero() {
    let nearly = core::array::from_fn(|n| u8::from(n == 15));
    assert_eq!(fault(&Config { secret: [0; 16], ..GOOD }), Some(Field::Secret));
    assert_eq!(fault(&Config { secret: nearly, ..GOOD }), None);
}

#[test]
fn a_gate_has_1_to_64_limits_and_policies_and_a_policy_1_to_8_rules() {
    let limits = |count| fault(&Config { limits: &vec![RATE; count], ..GOOD });
    assert_eq!([1, 64].map(limits), [None; 2]);
    assert_eq!([0, 65].map(limits), [Some(Field::Limits); 2]);
    let rule: &[Rule] = &[RULE];
    let policies = |count| fault(&Config { policies: &vec![rule; count], ..GOOD });
    assert_eq!([1, 64].map(policies), [None; 2]);
    assert_eq!([0, 65].map(policies), [Some(Field::Policies); 2]);
    let rules: Vec<Rule> = (0..9).map(|limit| Rule { limit, ..RULE }).collect();
    let limits = vec![RATE; 9];
    let rules = |count| fault(&Config { policies: &[&rules[..count]], limits: &limits, ..GOOD });
    assert_eq!([1, 8].map(rules), [None; 2]);
    assert_eq!([0, 9].map(rules), [Some(Field::Rules); 2]);
}

#[test]
fn a_rule_names_a_limit_that_is_there_and_each_scope_of_it_once() {
    let fault = |policy: &[Rule]| fault(&Config { policies: &[policy], ..GOOD });
    assert_eq!(fault(&[Rule { limit: 1, ..RULE }]), Some(Field::RuleLimit));
    assert_eq!(fault(&[RULE, RULE]), Some(Field::RuleTwice));
    assert_eq!(fault(&[RULE, Rule { scope: Scope::Tool, ..RULE }]), None);
}

#[test]
fn a_concurrency_limit_has_these_bounds() {
    let fault = |limit| fault_of(&Limit::Concurrency(limit));
    let places = |max_in_flight| fault(ConcurrencyLimit { max_in_flight, ..GUARD });
    assert_eq!([1, 4095].map(places), [None; 2]);
    assert_eq!([0, 4096].map(places), [Some(Field::MaxInFlight); 2]);
    let lease = |lease_ns| fault(ConcurrencyLimit { lease_ns, ..GUARD });
    assert_eq!([MS, TIME_LIMIT_NS].map(lease), [None; 2]);
    assert_eq!([MS - 1, TIME_LIMIT_NS + 1].map(lease), [Some(Field::LeaseNs); 2]);
    let rejects = |reject_trip| fault(ConcurrencyLimit { reject_trip, ..GUARD });
    assert_eq!([0, 63, 64].map(rejects), [None, None, Some(Field::RejectTrip)]);
    let failures = |failure_trip| fault(ConcurrencyLimit { failure_trip, ..GUARD });
    assert_eq!([0, 63, 64].map(failures), [None, None, Some(Field::FailureTrip)]);
    let probes = |half_open_probes| fault(ConcurrencyLimit { half_open_probes, ..GUARD });
    assert_eq!([0, 15, 16].map(probes), [None, None, Some(Field::HalfOpenProbes)]);
}

#[test]
fn a_cooldown_is_a_millisecond_where_there_is_a_trip_and_at_most_50_000_leases() {
    let fault = |reject_trip, failure_trip, lease_ns, cooldown_ns| {
        let trips = ConcurrencyLimit { reject_trip, failure_trip, ..GUARD };
        fault_of(&Limit::Concurrency(ConcurrencyLimit { lease_ns, cooldown_ns, ..trips }))
    };
    assert_eq!(fault(0, 0, MS, 0), None);
    for (rejects, failures) in [(1, 0), (0, 1), (1, 1)] {
        assert_eq!(fault(rejects, failures, MS, MS), None);
        assert_eq!(fault(rejects, failures, MS, MS - 1), Some(Field::CooldownNs));
    }
    assert_eq!(fault(1, 0, MS, 50_000 * MS), None);
    assert_eq!(fault(1, 0, MS, 50_000 * MS + 1), Some(Field::CooldownNs));
    assert_eq!(fault(1, 0, TIME_LIMIT_NS, TIME_LIMIT_NS), None);
    assert_eq!(fault(1, 0, TIME_LIMIT_NS, TIME_LIMIT_NS + 1), Some(Field::CooldownNs));
}

#[test]
fn a_quota_has_these_bounds() {
    let fault = |limit, period_s| {
        let windows = Windows::Every { period_s, anchor_unix_s: 0 };
        fault_of(&Limit::Quota(Quota { limit, windows, must_seed: false }))
    };
    assert_eq!([1, 1 << 47].map(|limit| fault(limit, 1)), [None; 2]);
    assert_eq!([0, (1 << 47) + 1].map(|limit| fault(limit, 1)), [Some(Field::Limit); 2]);
    assert_eq!([1, 1 << 33].map(|period_s| fault(1, period_s)), [None; 2]);
    assert_eq!([0, (1 << 33) + 1].map(|period_s| fault(1, period_s)), [Some(Field::PeriodS); 2]);
}

#[test]
fn an_error_names_the_limit_or_the_policy_and_says_what_is_allowed() {
    let never = Limit::Rate(RateLimit { count: 1, period_ns: MS, burst: 0 });
    let of_limit = Config { limits: &[RATE, never], ..GOOD }.check().unwrap_err();
    assert_eq!(
        of_limit.to_string(),
        "limit 1: burst is out of range (allowed: 1 or more tokens, and burst * period_ns / count \
         at most 2^61 ns)"
    );
    let of_policy = Config { policies: &[&[RULE], &[]], ..GOOD }.check().unwrap_err();
    assert_eq!(
        of_policy.to_string(),
        "policy 1: rules is out of range (allowed: 1 to 8 limits in a policy)"
    );
    let of_gate = Config { capacity: 0, ..GOOD }.check().unwrap_err();
    assert_eq!(of_gate.to_string(), "capacity is out of range (allowed: 1 to 67108864 callers)");
    assert_eq!(Gate::slots_needed(&Config { capacity: 0, ..GOOD }), Err(of_gate));
}

#[test]
fn every_field_is_called_as_in_the_configuration() {
    for (field, name) in [
        (Field::Capacity, "capacity"),
        (Field::Secret, "secret"),
        (Field::Limits, "limits"),
        (Field::Policies, "policies"),
        (Field::Rules, "rules"),
        (Field::RuleLimit, "limit"),
        (Field::RuleTwice, "rules"),
        (Field::Count, "count"),
        (Field::PeriodNs, "period_ns"),
        (Field::Burst, "burst"),
        (Field::Memory, "memory"),
        (Field::Kind, "kind"),
        (Field::Now, "now_ns"),
        (Field::MaxInFlight, "max_in_flight"),
        (Field::LeaseNs, "lease_ns"),
        (Field::RejectTrip, "reject_trip"),
        (Field::FailureTrip, "failure_trip"),
        (Field::CooldownNs, "cooldown_ns"),
        (Field::HalfOpenProbes, "half_open_probes"),
        (Field::Limit, "limit"),
        (Field::PeriodS, "period_s"),
        (Field::Window, "end_unix_s"),
    ] {
        assert_eq!(field.name(), name);
        assert!(!field.allowed().is_empty());
    }
}
