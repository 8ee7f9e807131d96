//! Deciding allocates nothing: an allocator that counts sees every call of a gate.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use callgate_core::{Call, Domain, Outcome, Time};
use callgate_tests::gates::{self, SECRET};
use callgate_tests::reference::{ConcurrencyLimit, Limit, Quota, RateLimit, Rule, Scope};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: the system's allocator does the work, by the same contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the contract of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: by the contract of this function.
        unsafe { System.dealloc(pointer, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the contract of this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: by the contract of this function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

fn rate(count: u64, burst: u64) -> Limit {
    Limit::Rate(RateLimit { count, period_ns: 1_000_000_000, burst })
}

fn guard() -> Limit {
    Limit::Concurrency(ConcurrencyLimit {
        max_in_flight: 1,
        lease_ns: 1_000_000,
        reject_trip: 1,
        failure_trip: 1,
        cooldown_ns: 1_000_000,
        half_open_probes: 1,
    })
}

fn quota() -> Limit {
    Limit::Quota(Quota { limit: 100, period_s: 60, anchor_unix_s: 0, must_seed: false })
}

#[test]
fn the_counting_allocator_counts() {
    let mut kept = Vec::new();
    assert_eq!(allocations_of(|| kept.push(1)), 1);
    assert_eq!(allocations_of(|| drop(kept)), 1);
}

#[test]
fn a_gate_that_is_dropped_gives_its_memory_back() {
    let owned = gates::one_rate(10, 1, 1, 1);
    assert_eq!(allocations_of(|| drop(owned)), 1);
}

#[test]
fn no_operation_of_a_gate_allocates() {
    let scopes = [Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared];
    let all: Vec<Rule> = scopes.iter().map(|&scope| Rule { limit: 0, scope }).collect();
    let one = vec![Rule { limit: 1, scope: Scope::Caller }];
    let others = [2, 3].map(|limit| Rule { limit, scope: Scope::Caller }).to_vec();
    let limits = [rate(1_000, 50), rate(1, 1), guard(), quota()];
    let owned = gates::open(10, SECRET, &limits, &[all, one, others]);
    let gate = owned.gate();
    let (to, off) = (gates::limit(&rate(2_000, 60)), gates::limit(&Limit::Off));
    let (mut admitted, mut refused) = (0, 0);
    let allocations = allocations_of(|| {
        for n in 0..2_000u32 {
            let time = Time::at(u64::from(n) * 1_000);
            let call = Call {
                policy: n / 3 % 3,
                caller: gate.key(Domain::Caller, &n.to_le_bytes()),
                tool: gate.key(Domain::Tool, &(n % 3).to_le_bytes()),
                ..Call::default()
            };
            gate.check(&call, time).unwrap();
            let _ = gate.peek(&call, time).unwrap();
            let admission = gate.admit(&call, time).unwrap();
            match admission.permit {
                Some(permit) => {
                    admitted += 1;
                    let outcome = [Outcome::Success, Outcome::Cancelled][n as usize % 2];
                    gate.settle(&permit, outcome, 0, time).unwrap();
                    gate.settle_by(&permit, outcome, 0, || time).unwrap();
                }
                None => refused += 1,
            }
            assert!(gate.admit(&Call { policy: 9, ..call }, time).is_err());
            if n % 100 == 0 {
                gate.reconfigure(0, if n % 200 == 0 { &to } else { &off }, time).unwrap();
                let _ = (gate.stats(time), gate.decisions(0), gate.guards(2, time));
                let _ = (callgate_core::system_time(), gate.system_time());
                let rule = gates::rule(&Rule { limit: 3, scope: Scope::Caller });
                gate.seed(rule, call.caller, call.tool, 1, time).unwrap();
            }
        }
    });
    assert!(admitted > 100 && refused > 100, "{admitted} admitted, {refused} refused");
    assert_eq!(allocations, 0);
}

#[test]
fn making_a_gate_in_memory_that_is_there_allocates_nothing() {
    static MEMORY: callgate_core::StaticMemory<512> = callgate_core::StaticMemory::new();
    let limits = [gates::limit(&rate(1, 1))];
    let rules = [gates::rule(&Rule { limit: 0, scope: Scope::Caller })];
    let policies: [&[callgate_core::Rule]; 1] = [&rules];
    let config = callgate_core::Config {
        capacity: 100,
        secret: SECRET,
        limits: &limits,
        policies: &policies,
    };
    let made = || assert!(MEMORY.init(&config).is_ok());
    assert_eq!(allocations_of(made), 0);
}
