//! Random gates, random operations on them, and the two gates they are done to.
pub mod ledger;

use callgate_core::{Call, CallError, OwnedGate, Permit, TIME_LIMIT_NS, Time};
use callgate_tests::gates::{self, REASONS};
use callgate_tests::reference::{
    self, ConcurrencyLimit, Decision, Instant, Limit, Outcome, Quota, RateLimit, Reference, Rule,
    Scope,
};
use proptest::prelude::*;
use proptest::sample::select;

pub const CALLERS: u32 = 5;
pub const TOOLS: u32 = 3;

const SECOND: u64 = 1_000_000_000;
/// Windows that begin before it can be told to end.
const UNIX_LIMIT_NS: u64 = 1 << 63;

/// What a random gate is made from.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub limits: Vec<Limit>,
    pub policies: Vec<Vec<Rule>>,
    pub start_ns: u64,
}

/// One step of a random run. Costs and limits are picked from what is interesting there.
#[derive(Clone, Debug)]
pub enum Op {
    Admit {
        policy: usize,
        caller: u32,
        tool: u32,
        cost: Cost,
        reserve: u64,
    },
    Peek {
        policy: usize,
        caller: u32,
        tool: u32,
        cost: Cost,
        reserve: u64,
    },
    Settle {
        permit: usize,
        outcome: Outcome,
        used: u64,
    },
    Seed {
        rule: Rule,
        caller: u32,
        tool: u32,
        used: u64,
    },
    Reconfigure {
        limit: usize,
        to: Limit,
    },
    Forward(u64),
    Backward(u64),
    /// The wall clock alone.
    SetForward(u64),
    SetBackward(u64),
    /// As long as the latest refusal said, or so much less.
    WaitOut {
        less_ns: u64,
    },
}

/// What a call costs, seen from the first limit of its policy.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    Exactly(u64),
    Burst { over: u64 },
    HalfBurst,
}

fn rate(count: u64, period_ns: u64, burst: u64) -> Limit {
    Limit::Rate(RateLimit { count, period_ns, burst })
}

/// Leases and cooldowns that the steps of the clock meet.
fn guards() -> impl Strategy<Value = Limit> {
    let leases = select(vec![1_000_000, SECOND / 3, 2 * SECOND, 60 * SECOND, 1 << 40, 1 << 61]);
    let cooldowns = select(vec![1_000_000, 1_000_001, SECOND / 3, SECOND, 5 * SECOND]);
    let trips = || select(vec![0u32, 1, 1, 2, 3, 63]);
    let most = select(vec![1u32, 1, 2, 3, 4095]);
    (most, leases, trips(), trips(), cooldowns, select(vec![0u32, 1, 1, 2, 15])).prop_map(
        |(max_in_flight, lease_ns, reject_trip, failure_trip, cooldown_ns, half_open_probes)| {
            Limit::Concurrency(ConcurrencyLimit {
                max_in_flight,
                lease_ns,
                reject_trip,
                failure_trip,
                cooldown_ns,
                half_open_probes,
            })
        },
    )
}

fn quotas() -> impl Strategy<Value = Limit> {
    let limits = select(vec![1u64, 5, 10, 1 << 47]);
    let periods = select(vec![1u64, 2, 60, 86_400, 1 << 33]);
    let anchors = select(vec![0i64, 1, -28_800, i64::MIN, i64::MAX]);
    (limits, periods, anchors, prop::bool::weighted(0.2)).prop_map(
        |(limit, period_s, anchor_unix_s, must_seed)| {
            Limit::Quota(Quota { limit, period_s, anchor_unix_s, must_seed })
        },
    )
}

pub fn limits() -> impl Strategy<Value = Limit> {
    prop_oneof![3 => rates(), 3 => guards(), 2 => quotas()]
}

pub fn rates() -> impl Strategy<Value = Limit> {
    prop_oneof![
        1 => Just(Limit::Off),
        8 => select(vec![
            rate(1, SECOND, 2),
            rate(5, SECOND, 3),
            rate(3, 7, 4),
            rate(30, SECOND, 60),
            rate(1, 1 << 60, 2),
            rate(u64::MAX, 1, u64::MAX),
            rate(1_000_000_001, SECOND, 4),
            rate(1, 1, 1),
            rate(7, SECOND, 1000),
        ]),
        3 => (1..50u64, 1..3 * SECOND, 1..9u64).prop_map(|(c, p, b)| rate(c, p, b)),
    ]
}

fn scopes() -> impl Strategy<Value = Scope> + Clone {
    select(vec![Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared])
}

fn policies(limit_count: usize) -> impl Strategy<Value = Vec<Vec<Rule>>> {
    let rule = (0..limit_count, scopes()).prop_map(|(limit, scope)| Rule { limit, scope });
    let policy = prop_oneof![
        prop::collection::vec(rule.clone(), 1..=1),
        prop::collection::vec(rule.clone(), 1..=3),
        prop::collection::vec(rule, 1..=8),
    ]
    .prop_map(|rules| {
        let mut once: Vec<Rule> = Vec::new();
        for rule in rules {
            if !once.contains(&rule) {
                once.push(rule);
            }
        }
        once
    });
    prop::collection::vec(policy, 1..=4)
}

pub fn blueprints() -> impl Strategy<Value = Blueprint> {
    let limits = prop::collection::vec(limits(), 1..=4);
    let starts = select(vec![0, 1, 5 * SECOND, 1 << 40, TIME_LIMIT_NS - 1 - SECOND]);
    (limits, starts).prop_flat_map(|(limits, start_ns)| {
        let policies = policies(limits.len());
        (Just(limits), policies, Just(start_ns))
            .prop_map(|(limits, policies, start_ns)| Blueprint { limits, policies, start_ns })
    })
}

fn costs() -> impl Strategy<Value = Cost> {
    prop_oneof![
        10 => Just(Cost::Exactly(1)),
        2 => Just(Cost::Exactly(0)),
        3 => (2..6u64).prop_map(Cost::Exactly),
        2 => Just(Cost::Burst { over: 0 }),
        1 => Just(Cost::Burst { over: 1 }),
        2 => Just(Cost::HalfBurst),
        1 => select(vec![u64::MAX, u64::MAX - 1, 1 << 63]).prop_map(Cost::Exactly),
    ]
}

/// Of quotas.
fn units() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0u64), 4 => 1..6u64, 1 => select(vec![10, 11, 1 << 47, u64::MAX])]
}

fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..8u64,
        3 => 0..2 * SECOND,
        2 => select(vec![SECOND / 5, SECOND / 5 + 1, SECOND - 1, SECOND, 2 * SECOND, 1 << 32]),
        1 => 0..100 * SECOND,
        1 => (0..61u32).prop_map(|bits| 1 << bits),
    ]
}

/// Random steps; `callers` makes for how many rivals there are, `back` for how often time goes
/// backward.
pub fn ops(
    callers: u32,
    back: u32,
    count: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<Op>> {
    let call = || (any::<usize>(), 0..callers, 0..TOOLS, costs(), units());
    let rule = (any::<usize>(), scopes()).prop_map(|(limit, scope)| Rule { limit, scope });
    let outcomes =
        select(vec![Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled]);
    let outcome = prop_oneof![1 => Just(Outcome::Cancelled), 2 => outcomes];
    let op = prop_oneof![
        20 => call().prop_map(|(policy, caller, tool, cost, reserve)| Op::Admit { policy, caller, tool, cost, reserve }),
        3 => call().prop_map(|(policy, caller, tool, cost, reserve)| Op::Peek { policy, caller, tool, cost, reserve }),
        8 => (any::<usize>(), outcome, units())
            .prop_map(|(permit, outcome, used)| Op::Settle { permit, outcome, used }),
        1 => (rule, 0..callers, 0..TOOLS, units())
            .prop_map(|(rule, caller, tool, used)| Op::Seed { rule, caller, tool, used }),
        1 => (any::<usize>(), limits()).prop_map(|(limit, to)| Op::Reconfigure { limit, to }),
        4 => spans().prop_map(Op::Forward),
        back => spans().prop_map(Op::Backward),
        1 => spans().prop_map(Op::SetForward),
        back => spans().prop_map(Op::SetBackward),
        3 => (0..2u64).prop_map(|less_ns| Op::WaitOut { less_ns }),
    ];
    prop::collection::vec(op, count)
}

/// The two gates, the permits that they gave, and the clock.
pub struct World {
    pub owned: OwnedGate,
    pub reference: Reference,
    pub now_ns: u64,
    pub unix_ns: u64,
    permits: Vec<(usize, Permit)>,
    wait_ns: u64,
}

impl World {
    pub fn new(owned: OwnedGate, reference: Reference, start_ns: u64) -> Self {
        let unix_ns = 1_789_992_000 * SECOND + 5;
        Self { owned, reference, now_ns: start_ns, unix_ns, permits: Vec::new(), wait_ns: 0 }
    }

    pub fn time(&self) -> Time {
        Time { now_ns: self.now_ns, unix_ns: self.unix_ns }
    }

    /// The same for the reference.
    pub fn at(&self) -> Instant {
        Instant { now_ns: self.now_ns, unix_ns: self.unix_ns }
    }

    /// The call of a step, in both forms.
    pub fn call(
        &self,
        policy: usize,
        caller: u32,
        tool: u32,
        cost: Cost,
        reserve: u64,
    ) -> reference::Call {
        let policy = policy % self.policy_count();
        let first = self.reference.rules(policy)[0];
        let burst = match self.reference.limit(first.limit) {
            Limit::Rate(rate) => rate.burst,
            _ => 3,
        };
        let cost = match cost {
            Cost::Exactly(cost) => cost,
            Cost::Burst { over } => burst.saturating_add(over),
            Cost::HalfBurst => burst / 2 + 1,
        };
        reference::Call { policy, caller, tool, cost, reserve }
    }

    fn policy_count(&self) -> usize {
        self.reference.policy_count()
    }

    pub fn core_call(&self, call: &reference::Call) -> Call {
        gates::call(&self.owned.gate(), call)
    }

    /// What the engine says to the call, with its permit kept for the reference's of that number.
    pub fn admit(&mut self, call: &reference::Call) -> (Decision, Option<Permit>) {
        let admission = self.owned.gate().admit(&self.core_call(call), self.time()).unwrap();
        let decision = gates::decision(&admission.decision);
        if decision.retry_after_ns > 0 {
            self.wait_ns = decision.retry_after_ns;
        }
        assert_eq!(decision.admitted(), admission.permit.is_some(), "a permit where admitted");
        (decision, admission.permit)
    }

    pub fn keep(&mut self, of_reference: usize, permit: Permit) {
        self.permits.push((of_reference, permit));
    }

    pub fn peek(&self, call: &reference::Call) -> Vec<Decision> {
        let decisions = self.owned.gate().peek(&self.core_call(call), self.time()).unwrap();
        decisions.iter().map(gates::decision).collect()
    }

    /// Settles one of the permits given so far with both gates, and compares what they say.
    pub fn settle(&mut self, pick: usize, outcome: Outcome, used: u64) {
        let Some(n) = pick.checked_rem(self.permits.len()) else { return };
        let (of_reference, permit) = &self.permits[n];
        let settled =
            self.owned.gate().settle(permit, gates::outcome(outcome), used, self.time()).unwrap();
        let expected = self.reference.settle(*of_reference, outcome, used, self.at());
        assert_eq!(gates::settled(settled), expected, "{outcome:?} of permit {of_reference}");
    }

    pub fn reconfigure(&mut self, limit: usize, to: Limit) {
        let limit = limit % self.reference.limit_count();
        let index = u8::try_from(limit).unwrap();
        let changed = self.owned.gate().reconfigure(index, &gates::limit(&to), self.time());
        assert_eq!(changed.is_ok(), self.reference.reconfigure(limit, to, self.now_ns), "{to:?}");
    }

    pub fn seed(&mut self, rule: Rule, caller: u32, tool: u32, used: u64) {
        let rule = Rule { limit: rule.limit % self.reference.limit_count(), ..rule };
        let call = reference::Call { policy: 0, caller, tool, cost: 0, reserve: 0 };
        let core = self.core_call(&call);
        let gate = self.owned.gate();
        let seeded = gate.seed(gates::rule(&rule), core.caller, core.tool, used, self.time());
        match self.reference.seed(&call, rule, used, self.at()) {
            Some(expected) => assert_eq!(gates::seeded(seeded.unwrap()), expected, "{rule:?}"),
            None => assert_eq!(seeded, Err(CallError::NotAQuota)),
        }
    }

    /// Both clocks as much later.
    pub fn forward(&mut self, ns: u64) {
        self.now_ns = self.now_ns.saturating_add(ns).min(TIME_LIMIT_NS - 1);
        self.unix_ns = self.unix_ns.saturating_add(ns).min(UNIX_LIMIT_NS);
    }

    /// Moves the clock, where the step does that.
    pub fn tick(&mut self, op: &Op) {
        match op {
            Op::Forward(ns) => self.forward(*ns),
            Op::Backward(ns) => self.now_ns = self.now_ns.saturating_sub(*ns),
            Op::SetForward(ns) => {
                self.unix_ns = self.unix_ns.saturating_add(*ns).min(UNIX_LIMIT_NS);
            }
            Op::SetBackward(ns) => self.unix_ns = self.unix_ns.saturating_sub(*ns),
            Op::WaitOut { less_ns } => self.forward(self.wait_ns.saturating_sub(*less_ns)),
            _ => {}
        }
    }

    /// Compares who is in flight.
    pub fn compare_in_flight(&self) {
        for limit in 0..self.reference.limit_count() {
            let guards = self.owned.gate().guards(u8::try_from(limit).unwrap(), self.time());
            let in_flight = guards.map_or(0, |guards| guards.in_flight);
            assert_eq!(in_flight, self.reference.in_flight(limit, self.now_ns) as u64);
        }
    }

    /// Compares what both counted.
    pub fn compare_counts(&self) {
        for policy in 0..self.policy_count() {
            let counted = self.owned.gate().decisions(u32::try_from(policy).unwrap()).unwrap();
            assert_eq!(counted.admitted, self.reference.admitted(policy), "admitted by {policy}");
            for (rule, refused) in counted.refused.iter().enumerate() {
                for (core, reason) in REASONS {
                    assert_eq!(
                        refused[core as usize],
                        self.reference.refused(policy, rule, reason),
                        "refused by rule {rule} of policy {policy}: {reason:?}"
                    );
                }
            }
        }
    }

    /// Does the step to both gates, and compares all that they say.
    pub fn step(&mut self, op: &Op) {
        match op {
            Op::Admit { policy, caller, tool, cost, reserve } => {
                let call = self.call(*policy, *caller, *tool, *cost, *reserve);
                let (said, permit) = self.admit(&call);
                let (expected, of_reference) = self.reference.admit(&call, self.at());
                assert_eq!(said, expected, "{call:?} at {:?}", self.at());
                if let (Some(of_reference), Some(permit)) = (of_reference, permit) {
                    self.keep(of_reference, permit);
                }
            }
            Op::Peek { policy, caller, tool, cost, reserve } => {
                let call = self.call(*policy, *caller, *tool, *cost, *reserve);
                let expected = self.reference.peek(&call, self.at());
                assert_eq!(self.peek(&call), expected, "peek {call:?} at {:?}", self.at());
            }
            Op::Settle { permit, outcome, used } => self.settle(*permit, *outcome, *used),
            Op::Seed { rule, caller, tool, used } => self.seed(*rule, *caller, *tool, *used),
            Op::Reconfigure { limit, to } => self.reconfigure(*limit, *to),
            _ => self.tick(op),
        }
    }
}
