//! Arbitrary gates and operations, held against the reference model: every field of every decision.
//! Beside the proptests, which draw from chosen values, this one follows what is new in the code.
#![no_main]

#[allow(dead_code, reason = "shared with the tests, which use all of it")]
#[path = "../../tests/tests/world/mod.rs"]
mod world;

use arbitrary::{Arbitrary, Result, Unstructured};
use callgate_core::{Config, Rule as CoreRule, Scope as CoreScope, TIME_LIMIT_NS};
use callgate_tests::gates::{self, SECRET};
use callgate_tests::reference::{
    ConcurrencyLimit, Limit, Outcome, Quota, RateLimit, Reference, Rule, Scope,
};
use libfuzzer_sys::fuzz_target;
use world::{Blueprint, CALLERS, Cost, Op, TOOLS, World};

/// Room for all states: which slot goes to whom is the tests' affair.
const CAPACITY: u32 = 200;
const OPS_MAX: usize = 150;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Unstructured::new(bytes);
    let Ok(plan) = blueprint(&mut input) else { return };
    let owned = gates::open(CAPACITY, SECRET, &plan.limits, &plan.policies);
    let mut limits = plan.limits.clone();
    if std::env::var_os("CALLGATE_SEEDED").is_some() {
        limits.iter_mut().for_each(falsify);
    }
    let reference = Reference::new(&limits, &plan.policies);
    let mut world = World::new(owned, reference, plan.start_ns);
    for _ in 0..OPS_MAX {
        if input.is_empty() {
            break;
        }
        let Ok(op) = op(&mut input) else { break };
        world.step(&op);
    }
    world.compare_counts();
    world.compare_in_flight();
    let stats = world.owned.gate().stats(world.time());
    assert_eq!(stats.live, world.reference.live(world.at()) as u64);
    assert_eq!(stats.claimed, 0);
});

/// A fault that must be noticed: a bucket holds one token more.
fn falsify(limit: &mut Limit) {
    if let Limit::Rate(rate) = limit {
        rate.burst = rate.burst.saturating_add(1);
    }
}

/// A number of which small ones, powers of two and their neighbours are likely.
fn number(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.int_in_range(0..=3u8)? {
        0 => u8::arbitrary(input)?.into(),
        1 => (1u64 << input.int_in_range(0..=63u32)?).wrapping_sub(bool::arbitrary(input)?.into()),
        2 => 10u64.pow(input.int_in_range(0..=19u32)?),
        _ => u64::arbitrary(input)?,
    })
}

/// A limit that the engine takes.
fn limit(input: &mut Unstructured<'_>) -> Result<Limit> {
    let made = match input.int_in_range(0..=6u8)? {
        0 => Limit::Off,
        1 | 2 => Limit::Rate(RateLimit {
            count: number(input)?,
            period_ns: number(input)?,
            burst: number(input)?,
        }),
        3 | 4 => Limit::Concurrency(ConcurrencyLimit {
            max_in_flight: input.int_in_range(1..=5)?,
            lease_ns: number(input)?.max(1_000_000),
            reject_trip: input.int_in_range(0..=4)?,
            failure_trip: input.int_in_range(0..=4)?,
            cooldown_ns: number(input)?.max(1_000_000),
            half_open_probes: input.int_in_range(0..=3)?,
        }),
        _ => Limit::Quota(Quota {
            limit: number(input)?,
            period_s: number(input)?.max(1),
            anchor_unix_s: i64::arbitrary(input)?,
            must_seed: input.ratio(1, 5)?,
        }),
    };
    let policy: &[CoreRule] = &[CoreRule { limit: 0, scope: CoreScope::Shared }];
    let limits = [gates::limit(&made)];
    let alone = Config { capacity: 1, secret: SECRET, limits: &limits, policies: &[policy] };
    if alone.check().is_ok() { Ok(made) } else { Err(arbitrary::Error::IncorrectFormat) }
}

fn rule(input: &mut Unstructured<'_>, limits: usize) -> Result<Rule> {
    let scopes = [Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared];
    Ok(Rule { limit: input.int_in_range(0..=limits - 1)?, scope: *input.choose(&scopes)? })
}

fn blueprint(input: &mut Unstructured<'_>) -> Result<Blueprint> {
    let limits: Vec<_> =
        (0..input.int_in_range(1..=3u8)?).map(|_| limit(input)).collect::<Result<_>>()?;
    let mut policies = Vec::new();
    for _ in 0..input.int_in_range(1..=3u8)? {
        let mut rules: Vec<Rule> = Vec::new();
        for _ in 0..input.int_in_range(1..=4u8)? {
            let rule = rule(input, limits.len())?;
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        policies.push(rules);
    }
    Ok(Blueprint { limits, policies, start_ns: number(input)? % TIME_LIMIT_NS })
}

fn op(input: &mut Unstructured<'_>) -> Result<Op> {
    let policy = usize::from(u8::arbitrary(input)? % 4);
    let (caller, tool) = (input.int_in_range(0..=CALLERS - 1)?, input.int_in_range(0..=TOOLS - 1)?);
    Ok(match input.int_in_range(0..=15u8)? {
        0..=6 => Op::Admit { policy, caller, tool, cost: cost(input)?, reserve: number(input)? },
        7 => Op::Peek { policy, caller, tool, cost: cost(input)?, reserve: number(input)? },
        8..=10 => {
            let outcomes =
                [Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled];
            let permit = u8::arbitrary(input)?.into();
            Op::Settle { permit, outcome: *input.choose(&outcomes)?, used: number(input)? }
        }
        11 => Op::Seed { rule: rule(input, 3)?, caller, tool, used: number(input)? },
        12 => Op::Reconfigure { limit: policy, to: limit(input)? },
        13 => Op::WaitOut { less_ns: input.int_in_range(0..=1)? },
        14 => Op::SetForward(number(input)?),
        _ => Op::Forward(number(input)?),
    })
}

fn cost(input: &mut Unstructured<'_>) -> Result<Cost> {
    Ok(match input.int_in_range(0..=4u8)? {
        0 | 1 => Cost::Exactly(1),
        2 => Cost::Burst { over: input.int_in_range(0..=1)? },
        3 => Cost::HalfBurst,
        _ => Cost::Exactly(number(input)?),
    })
}
