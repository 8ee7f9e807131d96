//! Random operations on the engine, held against the reference model: every field of every
//! decision, with room for all, in a table that is too small, and with a clock that goes back.
mod world;

use callgate_core::{TIME_LIMIT_NS, Time};
use callgate_tests::gates::{self, SECRET};
use callgate_tests::reference::{Call, Decision, Limit, RateLimit, Reason, Reference, Rule, Scope};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;
use world::ledger::Ledger;
use world::{Blueprint, CALLERS, Op, World, blueprints, ops};

/// So many cases, unless `PROPTEST_CASES` asks for others.
fn cases(count: u32) -> Config {
    let asked = std::env::var_os("PROPTEST_CASES").map(|_| Config::default().cases);
    let cases = asked.unwrap_or(count);
    Config { cases, max_shrink_iters: 4096, failure_persistence: None, ..Config::default() }
}

/// A gate in which these few states all but never take each other's slots, and the reference.
fn roomy(plan: &Blueprint) -> World {
    let owned = gates::open(20_000, SECRET, &plan.limits, &plan.policies);
    World::new(owned, Reference::new(&plan.limits, &plan.policies), plan.start_ns)
}

/// A gate of two groups: each of its 16 slots is a candidate for every state.
fn tiny(plan: &Blueprint) -> World {
    let plan = with_rules_at_most(plan, 6);
    let owned = gates::open(1, SECRET, &plan.limits, &plan.policies);
    assert_eq!(owned.gate().stats(Time::at(0)).slots, 16);
    let reference = Reference::with_slots(16, &plan.limits, &plan.policies);
    World::new(owned, reference, plan.start_ns)
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn with_room_for_all_every_decision_is_the_references(
        plan in blueprints(), ops in ops(CALLERS, 0, 1..120),
    ) {
        let mut world = roomy(&plan);
        for op in &ops {
            world.step(op);
        }
        world.compare_counts();
        world.compare_in_flight();
        let stats = world.owned.gate().stats(world.time());
        prop_assert_eq!(stats.live, world.reference.live(world.at()) as u64);
        prop_assert_eq!(stats.claimed, 0);
        prop_assert!(stats.at_rest + stats.live <= world.reference.made() as u64);
        prop_assert_eq!(stats.live + stats.at_rest + stats.claimed + stats.empty, stats.slots);
    }

    /// A clock that goes back changes nothing either, as long as no slot changes hands: `made`
    /// says so.
    #[test]
    fn with_a_clock_that_goes_back_every_decision_is_the_references(
        plan in blueprints(), ops in ops(CALLERS, 5, 1..120),
    ) {
        let mut world = roomy(&plan);
        for op in &ops {
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step(op)));
            if let Err(panic) = told {
                let stats = world.owned.gate().stats(world.time());
                let kept = stats.live + stats.at_rest == world.reference.made() as u64;
                if kept {
                    std::panic::resume_unwind(panic);
                }
                return Err(TestCaseError::reject("a slot changed hands"));
            }
        }
        world.compare_counts();
    }

    /// More states than slots: a newcomer is refused exactly where none is at rest, and its wait
    /// is the time until the first is.
    #[test]
    fn in_a_table_that_is_too_small_every_decision_is_the_references(
        plan in blueprints(), ops in ops(40, 0, 1..200),
    ) {
        let mut world = tiny(&plan);
        for op in &ops {
            world.step(op);
            let stats = world.owned.gate().stats(world.time());
            prop_assert_eq!(stats.live, world.reference.live(world.at()) as u64);
            prop_assert_eq!(stats.claimed, 0);
            world.compare_in_flight();
        }
        world.compare_counts();
    }

    /// More groups than one state may go to: what is not refused for want of a place is decided
    /// as if there were room for all, only newcomers are refused, and no wait is too long or short.
    #[test]
    fn a_full_table_refuses_newcomers_only_and_its_waits_are_true(
        capacity in 11u32..30, plan in blueprints(), ops in ops(200, 0, 1..300),
    ) {
        let plan = with_rules_at_most(&plan, 1);
        let owned = gates::open(capacity, SECRET, &plan.limits, &plan.policies);
        let reference = Reference::new(&plan.limits, &plan.policies);
        let mut world = World::new(owned, reference, plan.start_ns);
        for op in &ops {
            let Op::Admit { policy, caller, tool, cost, reserve } = op else {
                if !matches!(op, Op::Peek { .. } | Op::Seed { .. }) {
                    world.step(op);
                }
                continue;
            };
            let call = world.call(*policy, *caller, *tool, *cost, *reserve);
            let peeked = world.peek(&call);
            let (said, permit) = world.admit(&call);
            prop_assert_eq!(&peeked, &[said], "a peek tells what comes");
            if said.refused == Some(Reason::TableFull) {
                let rule = world.reference.rules(call.policy)[0];
                prop_assert!(world.reference.is_at_rest(&call, rule, world.at()));
                prop_assert!(world.reference.peek(&call, world.at())[0].admitted());
                check_wait(&mut world, &call, said.retry_after_ns);
                continue;
            }
            let (expected, of_reference) = world.reference.admit(&call, world.at());
            prop_assert_eq!(said, expected);
            if let (Some(of_reference), Some(permit)) = (of_reference, permit) {
                world.keep(of_reference, permit);
            }
        }
    }

    /// In a table too small and with a clock that goes back, an entry may start later than the
    /// call says: at the time at which the slots' former entries came to rest. So the reference
    /// can't be asked what is refused. What it can be asked is whether a token was minted: no
    /// admission may take a bucket deeper than empty at the latest time that was ever told.
    #[test]
    fn no_clock_however_stale_mints_a_token(
        capacity in select(vec![1u32, 11, 16, 21, 26]), plan in stale_plans(),
        steps in prop::collection::vec(stale_steps(), 50..600),
    ) {
        let (burst, callers) = plan;
        let rate = RateLimit { count: 1, period_ns: 1_000, burst };
        let owned =
            gates::open(capacity, SECRET, &[Limit::Rate(rate)], &[vec![by_caller()]]);
        let gate = owned.gate();
        let mut ledger = Ledger::new(rate);
        for StaleStep { caller, quarter, drains, cancels } in steps {
            // Four instants within the time that an empty bucket takes to fill, and a few later.
            let now_ns = quarter * burst * 250;
            ledger.latest_ns = ledger.latest_ns.max(now_ns);
            if let Some(pick) = cancels {
                ledger.cancel(&gate, pick, now_ns);
                continue;
            }
            let cost = if drains { burst } else { 1 };
            let call = Call { policy: 0, caller: caller % callers, tool: 0, cost, reserve: 0 };
            let admission = gate.admit(&gates::call(&gate, &call), Time::at(now_ns)).unwrap();
            if let Some(permit) = admission.permit {
                ledger.admitted(&call, now_ns, permit);
            }
        }
    }
}

/// How many tokens a bucket holds, and how many callers there are.
fn stale_plans() -> impl Strategy<Value = (u64, u32)> {
    (1..4u64, 20..100u32)
}

#[derive(Clone, Debug)]
struct StaleStep {
    caller: u32,
    quarter: u64,
    drains: bool,
    cancels: Option<usize>,
}

fn stale_steps() -> impl Strategy<Value = StaleStep> {
    let quarters = prop_oneof![3 => Just(0), 3 => Just(4), 2 => 0..6u64];
    let cancels = prop_oneof![9 => Just(None), 1 => any::<usize>().prop_map(Some)];
    (any::<u32>(), quarters, any::<bool>(), cancels).prop_map(
        |(caller, quarter, drains, cancels)| StaleStep { caller, quarter, drains, cancels },
    )
}

fn by_caller() -> Rule {
    Rule { limit: 0, scope: Scope::Caller }
}

/// A plan whose policies have no more rules than that.
fn with_rules_at_most(plan: &Blueprint, count: usize) -> Blueprint {
    let mut plan = plan.clone();
    plan.policies.iter_mut().for_each(|rules| rules.truncate(count));
    plan
}

/// At that instant there is a place, and a nanosecond earlier there is none.
fn check_wait(world: &mut World, call: &Call, wait_ns: u64) {
    let full = |said: &[Decision]| said[0].refused == Some(Reason::TableFull);
    let (now_ns, unix_ns) = (world.now_ns, world.unix_ns);
    assert!(wait_ns > 0, "a wait of nothing");
    if now_ns.saturating_add(wait_ns) < TIME_LIMIT_NS {
        world.forward(wait_ns - 1);
        assert!(full(&world.peek(call)), "there was room before the wait was over");
        world.forward(1);
        assert!(!full(&world.peek(call)), "no room after the wait");
        (world.now_ns, world.unix_ns) = (now_ns, unix_ns);
    }
}
