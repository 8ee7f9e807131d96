//! What one decision costs: callgate's core beside governor, in one run.
//!
//! The work is the same for both: charge one token of a caller's bucket, callers drawn uniformly,
//! their keys prepared beforehand as each takes them. governor reads its clock (quanta) itself;
//! callgate is given the time, and measured once more with the system's clock.
use std::hint::black_box;
use std::num::NonZeroU32;

use callgate_core::{
    Call, CallError, ConcurrencyLimit, Config, Domain, Gate, Key, Limit, Outcome, OwnedGate,
    Permit, Quota, RateLimit, Rule, Scope, Time, Windows, system_time,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use governor::{DefaultKeyedRateLimiter, RateLimiter};

const SECOND: u64 = 1_000_000_000;
const CALLERS: [usize; 3] = [1, 10_000, 1_000_000];

/// So high a rate that every call is admitted, or so low a one that none is once drained.
#[derive(Clone, Copy)]
enum Verdict {
    Admit,
    Refuse,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Refuse => "refuse",
        }
    }

    fn limit(self) -> RateLimit {
        match self {
            Self::Admit => {
                RateLimit { count: 1_000_000_000, period_ns: SECOND, burst: 1_000_000_000 }
            }
            Self::Refuse => RateLimit { count: 1, period_ns: 3600 * SECOND, burst: 1 },
        }
    }

    fn quota(self) -> governor::Quota {
        let count = |n| NonZeroU32::new(n).unwrap();
        match self {
            Self::Admit => governor::Quota::per_second(count(1_000_000_000)),
            Self::Refuse => governor::Quota::per_hour(count(1)),
        }
    }
}

/// Draws callers, the same ones for each subject.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % count as u64) as usize
    }
}

fn gate(callers: usize, limits: &[RateLimit]) -> OwnedGate {
    let limits: Vec<_> = limits.iter().copied().map(Limit::Rate).collect();
    gate_of(callers, &limits, &[Scope::Caller; 3])
}

/// A gate of one policy, with each of the limits in its scope.
fn gate_of(callers: usize, limits: &[Limit], scopes: &[Scope]) -> OwnedGate {
    let rules: Vec<_> =
        (0..limits.len()).map(|n| Rule { limit: n as u8, scope: scopes[n] }).collect();
    let config = Config {
        capacity: callers as u32,
        secret: *b"sixteen random b",
        limits,
        policies: &[&rules],
    };
    OwnedGate::new(&config).unwrap()
}

fn keys(owned: &OwnedGate, callers: usize) -> Vec<Key> {
    let gate = owned.gate();
    (0..callers).map(|n| gate.key(Domain::Caller, format!("user:{n}").as_bytes())).collect()
}

fn admitted(gate: &Gate, caller: Key, time: Time) -> bool {
    let call = Call { caller, ..Call::default() };
    gate.admit(&call, time).is_ok_and(|admission| admission.decision.admitted())
}

fn decide(c: &mut Criterion) {
    for verdict in [Verdict::Admit, Verdict::Refuse] {
        let mut group = c.benchmark_group(verdict.name());
        for callers in CALLERS {
            let owned = gate(callers, &[verdict.limit()]);
            let gate = owned.gate();
            let keys = keys(&owned, callers);
            let governor: DefaultKeyedRateLimiter<Key> = RateLimiter::keyed(verdict.quota());
            let start = system_time().unwrap();
            for &key in &keys {
                assert!(admitted(&gate, key, start));
                assert!(governor.check_key(&key).is_ok());
            }

            let mut now_ns = start.now_ns;
            let mut draw = Draw(1);
            group.bench_function(BenchmarkId::new("callgate", callers), |b| {
                b.iter(|| {
                    now_ns += 20;
                    admitted(&gate, black_box(keys[draw.below(callers)]), Time::at(now_ns))
                });
            });
            let mut draw = Draw(1);
            group.bench_function(BenchmarkId::new("callgate with its clock", callers), |b| {
                b.iter(|| {
                    let now = gate.system_time().unwrap();
                    admitted(&gate, black_box(keys[draw.below(callers)]), now)
                });
            });
            let mut draw = Draw(1);
            group.bench_function(BenchmarkId::new("governor", callers), |b| {
                b.iter(|| governor.check_key(black_box(&keys[draw.below(callers)])).is_ok());
            });
        }
        group.finish();
    }
}

/// What is left when nothing is decided: drawing a caller, reading the clock, hashing.
fn floor(c: &mut Criterion) {
    let owned = gate(1, &[Verdict::Admit.limit()]);
    let gate = owned.gate();
    let mut group = c.benchmark_group("floor");
    let mut draw = Draw(1);
    group.bench_function("draw a caller", |b| b.iter(|| draw.below(10_000)));
    group.bench_function("read the clock", |b| b.iter(|| gate.system_time()));
    group.bench_function("make a key", |b| {
        b.iter(|| gate.key(Domain::Caller, black_box(b"user:0123456789abcdef")));
    });
    group.finish();
}

/// What each further limit of a policy costs.
fn limits(c: &mut Criterion) {
    let mut group = c.benchmark_group("limits on one caller");
    for count in [1, 2, 3] {
        let owned = gate(10_000, &[Verdict::Admit.limit(); 3][..count]);
        let gate = owned.gate();
        let keys = keys(&owned, 10_000);
        let mut now_ns = 0;
        let mut draw = Draw(1);
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                now_ns += 20;
                admitted(&gate, black_box(keys[draw.below(10_000)]), Time::at(now_ns))
            });
        });
    }
    group.finish();
}

/// What most servers have: a rate and a quota for each caller, and places that all share. The call is
/// admitted and settled.
fn kinds(c: &mut Criterion) {
    let limits = [
        Limit::Rate(Verdict::Admit.limit()),
        Limit::Quota(Quota {
            limit: 1 << 47,
            windows: Windows::Every { period_s: 86_400, anchor_unix_s: 0 },
            must_seed: false,
        }),
        Limit::Concurrency(ConcurrencyLimit {
            max_in_flight: 100,
            lease_ns: 3600 * SECOND,
            reject_trip: 0,
            failure_trip: 0,
            cooldown_ns: 0,
            half_open_probes: 0,
        }),
    ];
    let mut group = c.benchmark_group("a rate, a quota and places, admitted and settled");
    for callers in CALLERS {
        let owned = gate_of(callers, &limits, &[Scope::Caller, Scope::Caller, Scope::Shared]);
        let gate = owned.gate();
        let keys = keys(&owned, callers);
        let (mut now_ns, mut draw) = (0, Draw(1));
        group.bench_function(BenchmarkId::from_parameter(callers), |b| {
            b.iter(|| {
                now_ns += 20;
                let time = Time { now_ns, unix_ns: now_ns };
                let caller = black_box(keys[draw.below(callers)]);
                let call = Call { caller, reserve: 1, ..Call::default() };
                // Of `admit` there must be one call only, or the compiler takes it out of line above.
                let mut permit = Permit::EMPTY;
                let decided =
                    gate.admit_to(&call, || Ok::<_, CallError>(time), |time| time, |p| permit = p);
                assert!(decided.unwrap().admitted());
                gate.settle(&permit, Outcome::Success, 1, time)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decide, floor, limits, kinds);
criterion_main!(benches);
