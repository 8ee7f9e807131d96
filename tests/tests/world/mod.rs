//! Random gates, random operations on them, and the two gates they are done to.
pub mod ledger;

use callgate_core::{Call, OwnedGate, Permit, Settled, TIME_LIMIT_NS, Time};
use callgate_tests::gates;
use callgate_tests::reference::{
    self, Decision, Limit, Outcome, RateLimit, Reason, Reference, Rule, Scope,
};
use proptest::prelude::*;
use proptest::sample::select;

pub const CALLERS: u32 = 5;
pub const TOOLS: u32 = 3;

const SECOND: u64 = 1_000_000_000;

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
    },
    Peek {
        policy: usize,
        caller: u32,
        tool: u32,
        cost: Cost,
    },
    Settle {
        permit: usize,
        outcome: Outcome,
    },
    Reconfigure {
        limit: usize,
        to: Limit,
    },
    Forward(u64),
    Backward(u64),
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

pub fn limits() -> impl Strategy<Value = Limit> {
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

fn policies(limit_count: usize) -> impl Strategy<Value = Vec<Vec<Rule>>> {
    let scopes = select(vec![Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared]);
    let rule = (0..limit_count, scopes).prop_map(|(limit, scope)| Rule { limit, scope });
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
    let call = || (any::<usize>(), 0..callers, 0..TOOLS, costs());
    let outcomes =
        select(vec![Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled]);
    let outcome = prop_oneof![2 => Just(Outcome::Cancelled), 1 => outcomes];
    let op = prop_oneof![
        20 => call().prop_map(|(policy, caller, tool, cost)| Op::Admit { policy, caller, tool, cost }),
        3 => call().prop_map(|(policy, caller, tool, cost)| Op::Peek { policy, caller, tool, cost }),
        6 => (any::<usize>(), outcome).prop_map(|(permit, outcome)| Op::Settle { permit, outcome }),
        1 => (any::<usize>(), limits()).prop_map(|(limit, to)| Op::Reconfigure { limit, to }),
        4 => spans().prop_map(Op::Forward),
        back => spans().prop_map(Op::Backward),
        3 => (0..2u64).prop_map(|less_ns| Op::WaitOut { less_ns }),
    ];
    prop::collection::vec(op, count)
}

/// The two gates, the permits that they gave, and the clock.
pub struct World {
    pub owned: OwnedGate,
    pub reference: Reference,
    pub now_ns: u64,
    permits: Vec<(usize, Permit)>,
    wait_ns: u64,
}

impl World {
    pub fn new(owned: OwnedGate, reference: Reference, start_ns: u64) -> Self {
        Self { owned, reference, now_ns: start_ns, permits: Vec::new(), wait_ns: 0 }
    }

    pub fn time(&self) -> Time {
        Time::at(self.now_ns)
    }

    /// The call of a step, in both forms.
    pub fn call(&self, policy: usize, caller: u32, tool: u32, cost: Cost) -> reference::Call {
        let policy = policy % self.policy_count();
        let first = self.reference.rules(policy)[0];
        let burst = match self.reference.limit(first.limit) {
            Limit::Off => 3,
            Limit::Rate(rate) => rate.burst,
        };
        let cost = match cost {
            Cost::Exactly(cost) => cost,
            Cost::Burst { over } => burst.saturating_add(over),
            Cost::HalfBurst => burst / 2 + 1,
        };
        reference::Call { policy, caller, tool, cost }
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
    pub fn settle(&mut self, pick: usize, outcome: Outcome) {
        let Some(n) = pick.checked_rem(self.permits.len()) else { return };
        let (of_reference, permit) = &self.permits[n];
        let settled =
            self.owned.gate().settle(permit, gates::outcome(outcome), 0, Time::at(self.now_ns));
        let first = self.reference.settle(*of_reference, outcome, self.now_ns);
        assert_eq!(settled, Ok(if first { Settled::Now } else { Settled::Already }));
    }

    pub fn reconfigure(&mut self, limit: usize, to: Limit) {
        let limit = limit % self.reference.limit_count();
        let index = u8::try_from(limit).unwrap();
        self.owned.gate().reconfigure(index, &gates::limit(&to), self.time()).unwrap();
        self.reference.reconfigure(limit, to, self.now_ns);
    }

    /// Moves the clock, where the step does that.
    pub fn tick(&mut self, op: &Op) {
        let latest = TIME_LIMIT_NS - 1;
        let forward = |ns: u64| self.now_ns.saturating_add(ns).min(latest);
        self.now_ns = match op {
            Op::Forward(ns) => forward(*ns),
            Op::Backward(ns) => self.now_ns.saturating_sub(*ns),
            Op::WaitOut { less_ns } => forward(self.wait_ns.saturating_sub(*less_ns)),
            _ => return,
        };
    }

    /// Compares what both counted.
    pub fn compare_counts(&self) {
        for policy in 0..self.policy_count() {
            let counted = self.owned.gate().decisions(u32::try_from(policy).unwrap()).unwrap();
            assert_eq!(counted.admitted, self.reference.admitted(policy), "admitted by {policy}");
            for (rule, refused) in counted.refused.iter().enumerate() {
                for reason in [Reason::Rate, Reason::Never, Reason::TableFull] {
                    assert_eq!(
                        refused[gates::reason(reason) as usize],
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
            Op::Admit { policy, caller, tool, cost } => {
                let call = self.call(*policy, *caller, *tool, *cost);
                let (said, permit) = self.admit(&call);
                let (expected, of_reference) = self.reference.admit(&call, self.now_ns);
                assert_eq!(said, expected, "{call:?} at {}", self.now_ns);
                if let (Some(of_reference), Some(permit)) = (of_reference, permit) {
                    self.keep(of_reference, permit);
                }
            }
            Op::Peek { policy, caller, tool, cost } => {
                let call = self.call(*policy, *caller, *tool, *cost);
                let expected = self.reference.peek(&call, self.now_ns);
                assert_eq!(self.peek(&call), expected, "peek {call:?} at {}", self.now_ns);
            }
            Op::Settle { permit, outcome } => self.settle(*permit, *outcome),
            Op::Reconfigure { limit, to } => self.reconfigure(*limit, *to),
            Op::Forward(_) | Op::Backward(_) | Op::WaitOut { .. } => self.tick(op),
        }
    }
}
