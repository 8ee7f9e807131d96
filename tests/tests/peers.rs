//! The same random traffic through governor and through callgate. What differs is explained, one
//! kind after the other, in the tests' names and in ARCHITECTURE.md; nothing else may differ.
use std::num::NonZeroU32;
use std::time::Duration;

use callgate_core::{Call, OwnedGate, Reason, Time};
use callgate_tests::gates;
use governor::clock::{Clock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use proptest::prelude::*;
use proptest::test_runner::Config;

const CALLERS: u64 = 3;
const SECOND: u64 = 1_000_000_000;

/// What either says of a call.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Answer {
    Admitted,
    RetryAfter(u64),
    Never,
}

struct Governor {
    clock: FakeRelativeClock,
    limiter: RateLimiter<u64, HashMapStateStore<u64>, FakeRelativeClock, NoOpMiddleware<Nanos>>,
}

impl Governor {
    /// One token each `period_ns / count`, by the constructor that governor has for that.
    fn new(count: u64, period_ns: u64, burst: u32) -> Self {
        let burst = NonZeroU32::new(burst).unwrap();
        let interval = Duration::from_nanos(period_ns) / u32::try_from(count).unwrap();
        let quota = Quota::with_period(interval).unwrap().allow_burst(burst);
        let clock = FakeRelativeClock::default();
        let limiter = RateLimiter::new(quota, HashMapStateStore::default(), clock.clone());
        Self { clock, limiter }
    }

    fn ask(&self, caller: u64, cost: u32) -> Answer {
        let now = self.clock.now();
        match self.limiter.check_key_n(&caller, NonZeroU32::new(cost).unwrap()) {
            Err(_) => Answer::Never,
            Ok(Ok(())) => Answer::Admitted,
            Ok(Err(until)) => Answer::RetryAfter(
                until.wait_time_from(now).as_nanos().try_into().expect("below 584 years"),
            ),
        }
    }
}

fn ask(gate: &OwnedGate, caller: u64, cost: u32, now: u64) -> Answer {
    let gate = gate.gate();
    let call = Call { cost: u64::from(cost), ..gates::call_of(&gate, caller) };
    let decision = gate.admit(&call, Time::at(now)).unwrap().decision;
    match decision.refused {
        None => Answer::Admitted,
        Some(Reason::Rate) => Answer::RetryAfter(decision.retry_after_ns),
        Some(Reason::Never) => Answer::Never,
        Some(other) => panic!("a rate limit refuses by {other:?}"),
    }
}

/// Who calls, at what cost, and how long after the last call, in thousandths of an interval.
type Asked = (u64, u32, u64);

fn traffic(burst: u32) -> impl Strategy<Value = Vec<Asked>> {
    // Costs of up to two more than the burst; waits that often end just where a token does.
    let wait = prop_oneof![Just(0), Just(1_000), 0..3_000u64, Just(u64::from(burst) * 1_000)];
    prop::collection::vec((0..CALLERS, 1..=burst + 2, wait), 1..400)
}

fn limits() -> impl Strategy<Value = (u64, u64, u32, Vec<Asked>)> {
    let period = prop_oneof![Just(SECOND), Just(60 * SECOND), Just(3_600 * SECOND), 1..SECOND];
    (1..1_000u64, period, 1..20u32)
        .prop_filter("governor knows no interval below 1 ns", |(count, period, _)| period >= count)
        .prop_flat_map(|(count, period, burst)| {
            traffic(burst).prop_map(move |asked| (count, period, burst, asked))
        })
}

proptest! {
    #![proptest_config(Config { cases: 3_000, failure_persistence: None, ..Config::default() })]

    /// governor's interval is cut to whole nanoseconds. Given that interval, callgate says the same:
    /// each admission, each wait, each cost that can never pass.
    #[test]
    fn with_governors_interval_every_answer_is_governors((count, period, burst, asked) in limits()) {
        let interval = period / count;
        let theirs = Governor::new(count, period, burst);
        let ours = gates::one_rate(100, 1, interval, u64::from(burst));
        let mut now = 0;
        for (caller, cost, wait) in asked {
            let wait = interval * wait / 1_000;
            now += wait;
            theirs.clock.advance(Duration::from_nanos(wait));
            prop_assert_eq!(ask(&ours, caller, cost, now), theirs.ask(caller, cost));
        }
    }

    /// So where the interval is a whole number of nanoseconds, nothing differs; where it is not,
    /// governor, which cuts it, may admit more than was configured, and callgate, never. Each call is
    /// held against the exact bound: burst + elapsed * count / period, for all callers apart.
    #[test]
    fn governor_may_admit_more_than_was_configured_and_callgate_not(
        (count, period, burst, asked) in limits(),
    ) {
        let theirs = Governor::new(count, period, burst);
        let ours = gates::one_rate(100, count, period, u64::from(burst));
        let whole = period.is_multiple_of(count);
        let mut now = 0;
        let mut tokens = [0u128; CALLERS as usize];
        for (caller, cost, wait) in asked {
            let wait = period * wait / 1_000 / count;
            now += wait;
            theirs.clock.advance(Duration::from_nanos(wait));
            let (we, they) = (ask(&ours, caller, cost, now), theirs.ask(caller, cost));
            if whole {
                prop_assert_eq!(we, they);
            }
            if we == Answer::Admitted {
                let taken = &mut tokens[usize::try_from(caller).unwrap()];
                *taken += u128::from(cost);
                let bound = u128::from(burst) * u128::from(period) + u128::from(now) * u128::from(count);
                prop_assert!(*taken * u128::from(period) <= bound);
            }
        }
    }
}

/// The difference at its plainest: 7 in 10 ns, for 10 µs, asked each nanosecond.
#[test]
fn seven_in_ten_nanoseconds_are_ten_in_governor() {
    let theirs = Governor::new(7, 10, 2);
    let ours = gates::one_rate(100, 7, 10, 2);
    let (mut we, mut they) = (0, 0);
    for now in 0..=10_000 {
        we += u32::from(ask(&ours, 0, 1, now) == Answer::Admitted);
        they += u32::from(theirs.ask(0, 1) == Answer::Admitted);
        theirs.clock.advance(Duration::from_nanos(1));
    }
    // Exactly, the 7,002nd falls due at the last nanosecond; rounded up by 2^-32 ns a token, just after it.
    assert_eq!((we, they), (7_001, 10_001));
}
