//! Gates made from the reference model's words, and their answers in the same words.
use callgate_core::{
    Call, Config, Decision, Domain, Gate, Key, Limit, Outcome, OwnedGate, RateLimit, Reason, Rule,
    Scope,
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
        reserve: 0,
        policy: u32::try_from(call.policy).expect("an index of a policy"),
    }
}

/// A numbered caller's call of cost 1 under the first policy.
pub fn call_of(gate: &Gate<'_>, number: u64) -> Call {
    Call { caller: caller(gate, number), ..Call::default() }
}

/// A decision in the model's words.
///
/// # Panics
/// Where the reason is none that the model knows.
pub fn decision(decision: &Decision) -> reference::Decision {
    let refused = decision.refused.map(|reason| match reason {
        Reason::Rate => reference::Reason::Rate,
        Reason::Never => reference::Reason::Never,
        Reason::TableFull => reference::Reason::TableFull,
        other => panic!("a gate of rate limits refused by {other:?}"),
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

/// A reason of the model, in the core's words.
pub fn reason(reason: reference::Reason) -> Reason {
    match reason {
        reference::Reason::Rate => Reason::Rate,
        reference::Reason::Never => Reason::Never,
        reference::Reason::TableFull => Reason::TableFull,
    }
}
