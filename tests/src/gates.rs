//! Gates made from the reference model's words, and their answers in the same words.
use callgate_core::{
    Call, ConcurrencyLimit, Config, Decision, Domain, Gate, Key, Limit, Outcome, OwnedGate, Quota,
    RateLimit, Reason, Rule, Scope, Seeded, Settled, Windows,
};

use crate::reference;

/// A secret for tests.
pub const SECRET: [u8; 16] = *b"a secret of test";

/// A gate of these limits and policies.
///
/// # Panics
/// Where no gate can be made so.
pub fn open(
    capacity: u32,
    secret: [u8; 16],
    limits: &[reference::Limit],
    policies: &[Vec<reference::Rule>],
) -> OwnedGate {
    let limits: Vec<_> = limits.iter().map(limit).collect();
    let rules: Vec<Vec<_>> = policies.iter().map(|p| p.iter().map(rule).collect()).collect();
    let policies: Vec<&[Rule]> = rules.iter().map(Vec::as_slice).collect();
    let config = Config { capacity, secret, limits: &limits, policies: &policies };
    OwnedGate::new(&config).expect("a gate")
}

/// A gate of one rate limit, kept by caller.
pub fn one_rate(capacity: u32, count: u64, period_ns: u64, burst: u64) -> OwnedGate {
    let rate = reference::RateLimit { count, period_ns, burst };
    let rule = reference::Rule { limit: 0, scope: reference::Scope::Caller };
    open(capacity, SECRET, &[reference::Limit::Rate(rate)], &[vec![rule]])
}

/// The core's form of a limit.
pub fn limit(limit: &reference::Limit) -> Limit {
    match *limit {
        reference::Limit::Off => Limit::Off,
        reference::Limit::Rate(reference::RateLimit { count, period_ns, burst }) => {
            Limit::Rate(RateLimit { count, period_ns, burst })
        }
        reference::Limit::Concurrency(reference::ConcurrencyLimit {
            max_in_flight,
            lease_ns,
            reject_trip,
            failure_trip,
            cooldown_ns,
            half_open_probes,
        }) => Limit::Concurrency(ConcurrencyLimit {
            max_in_flight,
            lease_ns,
            reject_trip,
            failure_trip,
            cooldown_ns,
            half_open_probes,
        }),
        reference::Limit::Quota(reference::Quota { limit, period_s, anchor_unix_s, must_seed }) => {
            let windows = Windows::Every { period_s, anchor_unix_s };
            Limit::Quota(Quota { limit, windows, must_seed })
        }
    }
}

/// The core's form of a rule.
///
/// # Panics
/// Where the limit's index is above every gate's.
pub fn rule(rule: &reference::Rule) -> Rule {
    let scope = match rule.scope {
        reference::Scope::Caller => Scope::Caller,
        reference::Scope::Tool => Scope::Tool,
        reference::Scope::CallerTool => Scope::CallerTool,
        reference::Scope::Shared => Scope::Shared,
    };
    Rule { limit: u8::try_from(rule.limit).expect("an index of a limit"), scope }
}

/// The core's form of an outcome.
pub fn outcome(outcome: reference::Outcome) -> Outcome {
    match outcome {
        reference::Outcome::Success => Outcome::Success,
        reference::Outcome::Failure => Outcome::Failure,
        reference::Outcome::Abandoned => Outcome::Abandoned,
        reference::Outcome::Cancelled => Outcome::Cancelled,
    }
}

/// The key of a numbered caller.
pub fn caller(gate: &Gate<'_>, number: u64) -> Key {
    gate.key(Domain::Caller, &number.to_le_bytes())
}

/// The key of a numbered tool.
pub fn tool(gate: &Gate<'_>, number: u64) -> Key {
    gate.key(Domain::Tool, &number.to_le_bytes())
}

/// The core's form of a call.
///
/// # Panics
/// Where the policy's index is above every gate's.
pub fn call(gate: &Gate<'_>, call: &reference::Call) -> Call {
    Call {
        caller: caller(gate, u64::from(call.caller)),
        tool: tool(gate, u64::from(call.tool)),
        cost: call.cost,
        reserve: call.reserve,
        policy: u32::try_from(call.policy).expect("an index of a policy"),
    }
}

/// A numbered caller's call of cost 1 under the first policy.
pub fn call_of(gate: &Gate<'_>, number: u64) -> Call {
    Call { caller: caller(gate, number), ..Call::default() }
}

/// Both words for each reason.
pub const REASONS: [(Reason, reference::Reason); 7] = [
    (Reason::Rate, reference::Reason::Rate),
    (Reason::Concurrency, reference::Reason::Concurrency),
    (Reason::BreakerOpen, reference::Reason::BreakerOpen),
    (Reason::Quota, reference::Reason::Quota),
    (Reason::Unseeded, reference::Reason::Unseeded),
    (Reason::TableFull, reference::Reason::TableFull),
    (Reason::Never, reference::Reason::Never),
];

/// A decision in the model's words.
///
/// # Panics
/// Where the reason is none that the model knows.
pub fn decision(decision: &Decision) -> reference::Decision {
    let refused = decision.refused.map(|reason| {
        *REASONS.iter().find(|(core, _)| *core == reason).map(|(_, of)| of).expect("a reason")
    });
    reference::Decision {
        refused,
        by: decision.by.map(usize::from),
        retry_after_ns: decision.retry_after_ns,
        limit: decision.limit,
        remaining: decision.remaining,
        reset_after_ns: decision.reset_after_ns,
    }
}

/// What a settlement came to, in the model's words.
pub fn settled(settled: Settled) -> reference::Settled {
    match settled {
        Settled::Now => reference::Settled::Now,
        Settled::Already => reference::Settled::Already,
        Settled::Lapsed => reference::Settled::Lapsed,
    }
}

/// What telling a quota came to, in the model's words.
pub fn seeded(seeded: Seeded) -> reference::Seeded {
    match seeded {
        Seeded::Now => reference::Seeded::Now,
        Seeded::Already => reference::Seeded::Already,
        Seeded::TableFull { retry_after_ns } => reference::Seeded::TableFull { retry_after_ns },
    }
}
