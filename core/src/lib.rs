//! callgate decides, without allocating, whether a tool call may run.
//!
//! A [`Gate`] is one table of 32-byte slots and its configuration, in memory that the caller owns.
//! Every limit's state has one memoryless value, *at rest*, which can't be told from no state at
//! all; a slot at rest may serve somebody else without changing any decision. So memory never
//! grows, nothing runs in the background, and a drained bucket is never evicted.
//!
//! ```
//! use callgate_core::{Call, Config, Domain, Gate, Limit, RateLimit, Rule, Scope, Slot, Time};
//! use core::mem::MaybeUninit;
//!
//! let limits = [Limit::Rate(RateLimit { count: 30, period_ns: 1_000_000_000, burst: 2 })];
//! let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
//! let config = Config { capacity: 100, secret: *b"sixteen random b", limits: &limits, policies: &[policy] };
//!
//! let mut memory = [const { MaybeUninit::<Slot>::uninit() }; 512];
//! let gate = Gate::init(&mut memory, &config).unwrap();
//!
//! let call = Call { caller: gate.key(Domain::Caller, b"user:1001"), ..Call::default() };
//! assert!(gate.admit(&call, Time::at(0)).unwrap().decision.admitted());
//! assert!(gate.admit(&call, Time::at(0)).unwrap().decision.admitted());
//! let refused = gate.admit(&call, Time::at(0)).unwrap().decision;
//! assert_eq!(refused.retry_after_ns, 33_333_334);
//! ```
//!
//! Threads: every function may be called from any thread at any time, except [`Gate::reconfigure`]
//! of the same gate by two threads at once.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "std", test))]
extern crate std;

mod call;
mod concurrency;
mod config;
mod gate;
mod key;
mod limit;
mod memory;
mod metrics;
mod openmetrics;
mod permit;
mod policy;
mod quota;
mod rate;
mod settings;
mod table;
mod time;

#[cfg(feature = "clock")]
mod clock;
#[cfg(all(feature = "std", unix))]
mod owned;

pub use call::{Admission, Call, CallError, Decision, Reason, Seeded};
#[cfg(feature = "clock")]
pub use clock::{ClockError, system_time};
pub use concurrency::ConcurrencyLimit;
pub use config::{Config, ConfigError, Field, MAX_CAPACITY, MAX_LIMITS, MAX_POLICIES, MAX_RULES};
pub use gate::Gate;
pub use key::{Domain, Key};
pub use limit::Limit;
pub use memory::StaticMemory;
pub use metrics::{Decisions, Guards, Stats};
pub use openmetrics::Names;
#[cfg(all(feature = "std", unix))]
pub use owned::OwnedGate;
pub use permit::{Outcome, Permit, Settled};
pub use policy::{Rule, Scope};
pub use quota::{Quota, Windows};
pub use rate::RateLimit;
pub use table::{Slot, is_lock_free};
pub use time::{TIME_LIMIT_NS, Time};
