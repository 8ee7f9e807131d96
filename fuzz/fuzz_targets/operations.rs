//! Any configuration, any sequence of operations, any times: nothing panics, what is told adds up,
//! and looking changes nothing.
#![no_main]

use arbitrary::Arbitrary;
use callgate_core::{
    Call, ConcurrencyLimit, Config, Domain, Limit, Outcome, OwnedGate, Permit, Quota, RateLimit,
    Rule, Scope, TIME_LIMIT_NS, Time, Windows,
};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    capacity: u8,
    limits: Vec<Asked>,
    policies: Vec<Vec<(u8, u8)>>,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Asked {
    Off,
    Rate(u64, u64, u64),
    Concurrency { places: u16, lease_ns: u64, trips: (u8, u8), cooldown_ns: u64, probes: u8 },
    Quota { limit: u64, windows: Option<(u64, i64)>, must_seed: bool },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct At {
    now_ns: u64,
    unix_ns: u64,
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Admit { policy: u8, caller: u8, tool: u8, cost: u64, reserve: u64, at: At },
    Peek { policy: u8, caller: u8, tool: u8, cost: u64, reserve: u64, at: At },
    Settle { permit: u8, outcome: u8, used: u64, at: At },
    Seed { rule: (u8, u8), caller: u8, tool: u8, used: u64, at: At },
    Window { limit: u8, start_s: u64, end_s: u64 },
    Reconfigure { limit: u8, to: Asked, at: At },
    Stats { at: At },
}

impl From<At> for Time {
    fn from(At { now_ns, unix_ns }: At) -> Self {
        Time { now_ns, unix_ns }
    }
}

fn limit(asked: Asked) -> Limit {
    match asked {
        Asked::Off => Limit::Off,
        Asked::Rate(count, period_ns, burst) => Limit::Rate(RateLimit { count, period_ns, burst }),
        Asked::Concurrency { places, lease_ns, trips, cooldown_ns, probes } => {
            Limit::Concurrency(ConcurrencyLimit {
                max_in_flight: places.into(),
                lease_ns,
                reject_trip: trips.0.into(),
                failure_trip: trips.1.into(),
                cooldown_ns,
                half_open_probes: probes.into(),
            })
        }
        Asked::Quota { limit, windows, must_seed } => {
            let every = |(period_s, anchor_unix_s)| Windows::Every { period_s, anchor_unix_s };
            Limit::Quota(Quota {
                limit,
                windows: windows.map_or(Windows::ByHost, every),
                must_seed,
            })
        }
    }
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
    let call = |policy: u8, caller: u8, tool: u8, cost, reserve| Call {
        policy: policy.into(),
        // One identity in sixteen is absent.
        caller: gate.key(Domain::Caller, &[caller][..usize::from(caller % 16 != 0)]),
        tool: gate.key(Domain::Tool, &[tool][..usize::from(tool % 16 != 0)]),
        cost,
        reserve,
    };
    // A fault that must be noticed: looking charges as well.
    let is_seeded = std::env::var_os("CALLGATE_SEEDED").is_some();
    let mut permits: Vec<Permit> = Vec::new();
    for operation in input.operations {
        match operation {
            Operation::Admit { policy, caller, tool, cost, reserve, at } => {
                let call = call(policy, caller, tool, cost, reserve);
                let Ok(admission) = gate.admit(&call, at.into()) else { continue };
                let decision = admission.decision;
                assert!(at.now_ns < TIME_LIMIT_NS);
                assert_eq!(decision.admitted(), admission.permit.is_some());
                assert!(decision.remaining <= decision.limit);
                assert!(decision.admitted() || decision.by.is_some());
                permits.extend(admission.permit);
            }
            Operation::Peek { policy, caller, tool, cost, reserve, at } => {
                let call = call(policy, caller, tool, cost, reserve);
                let before = gate.stats(at.into());
                if let Ok(reports) = gate.peek(&call, at.into()) {
                    if is_seeded {
                        let _ = gate.admit(&call, at.into());
                    }
                    assert_eq!(reports, gate.peek(&call, at.into()).unwrap());
                }
                assert_eq!(before, gate.stats(at.into()));
            }
            Operation::Settle { permit, outcome, used, at } => {
                let Some(permit) = permits.get(usize::from(permit)) else { continue };
                let outcome =
                    [Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled]
                        [usize::from(outcome % 4)];
                let _ = gate.settle(permit, outcome, used, at.into());
            }
            Operation::Seed { rule: asked, caller, tool, used, at } => {
                let Call { caller, tool, .. } = call(0, caller, tool, 0, 0);
                let _ = gate.seed(rule(asked), caller, tool, used, at.into());
            }
            Operation::Window { limit, start_s, end_s } => {
                let _ = gate.set_window(limit, start_s, end_s);
            }
            Operation::Reconfigure { limit: index, to, at } => {
                let _ = gate.reconfigure(index, &limit(to), at.into());
            }
            Operation::Stats { at } => {
                let stats = gate.stats(at.into());
                assert_eq!(stats.slots, stats.live + stats.at_rest + stats.claimed + stats.empty);
            }
        }
    }
});
