//! A gate of 64 callers in static memory, with a rate limit for each and one guard for all: the way a
//! device would use it.
#![no_std]
#![no_main]

mod machine;

use core::hint::black_box;

use callgate_core::{
    Call, ConcurrencyLimit, Config, Domain, Limit, Outcome, RateLimit, Rule, Scope, StaticMemory,
    Time,
};
use machine::end;

const SECOND: u64 = 1_000_000_000;

/// What such a gate takes, in slots of 32 bytes; `init` fails where it takes more.
static MEMORY: StaticMemory<GATE_SLOTS> = StaticMemory::new();
const GATE_SLOTS: usize = 193;

#[cortex_m_rt::entry]
fn main() -> ! {
    end(black_box(is_as_documented()))
}

fn is_as_documented() -> bool {
    let limits = [
        Limit::Rate(RateLimit { count: 30, period_ns: SECOND, burst: 2 }),
        Limit::Concurrency(ConcurrencyLimit {
            max_in_flight: 3,
            lease_ns: 60 * SECOND,
            reject_trip: 5,
            failure_trip: 0,
            cooldown_ns: 30 * SECOND,
            half_open_probes: 0,
        }),
    ];
    let policy: &[Rule] =
        &[Rule { limit: 0, scope: Scope::Caller }, Rule { limit: 1, scope: Scope::Shared }];
    let config =
        Config { capacity: 64, secret: *b"sixteen random b", limits: &limits, policies: &[policy] };
    let Ok(gate) = MEMORY.init(&config) else { return false };
    for caller in 0..64u32 {
        let key = gate.key(Domain::Caller, &black_box(caller).to_le_bytes());
        let call = Call { caller: key, cost: 1, ..Call::default() };
        for n in 0..3 {
            let Ok(admission) = gate.admit(&call, Time::at(black_box(0))) else { return false };
            if admission.decision.admitted() != (n < 2) {
                return false;
            }
            if let Some(permit) = admission.permit {
                if gate.settle(&permit, Outcome::Success, 0, Time::at(0)).is_err() {
                    return false;
                }
            } else if admission.decision.retry_after_ns != 33_333_334 {
                return false;
            }
        }
    }
    true
}
