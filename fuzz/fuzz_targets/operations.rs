//! Any configuration, any sequence of operations, any times: nothing panics, and no bucket ever
//! admits more than its burst and what has come back since.
#![no_main]

use arbitrary::Arbitrary;
use callgate_core::{
    Call, Config, Domain, Limit, Outcome, OwnedGate, Permit, RateLimit, Rule, Scope, TIME_LIMIT_NS,
    Time,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    capacity: u8,
    limits: Vec<(u64, u64, u64)>,
    policies: Vec<Vec<(u8, u8)>>,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Admit { policy: u8, caller: u8, tool: u8, cost: u64, at: u64 },
    Peek { policy: u8, caller: u8, tool: u8, cost: u64, at: u64 },
    Settle { permit: u8, outcome: u8, at: u64 },
    Reconfigure { limit: u8, to: Option<(u64, u64, u64)>, at: u64 },
    Stats { at: u64 },
}

fn limit((count, period_ns, burst): (u64, u64, u64)) -> Limit {
    Limit::Rate(RateLimit { count, period_ns, burst })
}

fn rule((limit, scope): (u8, u8)) -> Rule {
    let scope = [Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared][scope as usize % 4];
    Rule { limit, scope }
}

fuzz_target!(|input: Input| {
    let limits: Vec<_> = input.limits.iter().copied().map(limit).collect();
    let policies: Vec<Vec<_>> =
        input.policies.iter().map(|rules| rules.iter().copied().map(rule).collect()).collect();
    let policies: Vec<&[Rule]> = policies.iter().map(Vec::as_slice).collect();
    let config = Config {
        capacity: input.capacity.into(),
        secret: [1; 16],
        limits: &limits,
        policies: &policies,
    };
    let Ok(owned) = OwnedGate::new(&config) else { return };
    let gate = owned.gate();
    let call = |policy: u8, caller: u8, tool: u8, cost| Call {
        policy: policy.into(),
        // One identity in sixteen is absent.
        caller: gate.key(Domain::Caller, &[caller][..usize::from(caller % 16 != 0)]),
        tool: gate.key(Domain::Tool, &[tool][..usize::from(tool % 16 != 0)]),
        cost,
        reserve: 0,
    };
    let mut permits: Vec<Permit> = Vec::new();
    for operation in input.operations {
        match operation {
            Operation::Admit { policy, caller, tool, cost, at } => {
                let call = call(policy, caller, tool, cost);
                let Ok(admission) = gate.admit(&call, Time::at(at)) else { continue };
                let decision = admission.decision;
                assert!(at < TIME_LIMIT_NS);
                assert_eq!(decision.admitted(), admission.permit.is_some());
                assert!(decision.remaining <= decision.limit);
                assert!(decision.admitted() || decision.by.is_some());
                permits.extend(admission.permit);
            }
            Operation::Peek { policy, caller, tool, cost, at } => {
                let call = call(policy, caller, tool, cost);
                let before = gate.stats(Time::at(at));
                if let Ok(reports) = gate.peek(&call, Time::at(at)) {
                    assert_eq!(reports, gate.peek(&call, Time::at(at)).unwrap());
                }
                assert_eq!(before, gate.stats(Time::at(at)));
            }
            Operation::Settle { permit, outcome, at } => {
                let Some(permit) = permits.get(usize::from(permit)) else { continue };
                let outcome =
                    [Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled]
                        [usize::from(outcome % 4)];
                let _ = gate.settle(permit, outcome, 0, Time::at(at));
            }
            Operation::Reconfigure { limit: index, to, at } => {
                let _ = gate.reconfigure(index, &to.map_or(Limit::Off, limit), Time::at(at));
            }
            Operation::Stats { at } => {
                let stats = gate.stats(Time::at(at));
                assert_eq!(stats.slots, stats.live + stats.at_rest + stats.claimed + stats.empty);
            }
        }
    }
});
