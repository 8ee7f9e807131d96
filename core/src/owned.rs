//! A gate that owns its memory.
use core::mem::MaybeUninit;
use std::boxed::Box;
use std::vec::Vec;

use crate::config::{Config, ConfigError, Field};
use crate::gate::Gate;
use crate::table::Slot;

/// A gate in memory of its own. Share it by reference, or in an `Arc`.
///
/// ```
/// use callgate_core::{Call, Config, Domain, Limit, OwnedGate, RateLimit, Rule, Scope, system_time};
///
/// let limits = [Limit::Rate(RateLimit { count: 30, period_ns: 1_000_000_000, burst: 60 })];
/// let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
/// let config =
///     Config { capacity: 10_000, secret: [7; 16], limits: &limits, policies: &[policy] };
/// let owned = OwnedGate::new(&config)?;
/// let gate = owned.gate();
/// let call = Call { caller: gate.key(Domain::Caller, b"user:1001"), ..Call::default() };
/// assert!(gate.admit(&call, system_time()?)?.decision.admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct OwnedGate {
    /// Borrows from `memory`; never handed out for longer than `self` lives.
    gate: Gate<'static>,
    memory: *mut [MaybeUninit<Slot>],
}

// SAFETY: a gate is shared between threads by design (`Gate` is Send and Sync), and the memory is
// only ever touched through it until the owner, of which there is one, is dropped.
unsafe impl Send for OwnedGate {}
// SAFETY: as above.
unsafe impl Sync for OwnedGate {}

impl OwnedGate {
    /// Makes a gate.
    ///
    /// # Errors
    /// As [`Gate::init`]; [`Field::Memory`] where the allocator has not enough.
    pub fn new(config: &Config<'_>) -> Result<Self, ConfigError> {
        let count = Gate::slots_needed(config)?;
        let mut slots = Vec::new();
        if slots.try_reserve_exact(count).is_err() {
            return Err(ConfigError { field: Field::Memory, limit: None, policy: None });
        }
        slots.resize_with(count, MaybeUninit::uninit);
        let memory = Box::into_raw(slots.into_boxed_slice());
        // SAFETY: just made, and nobody else's until `drop`.
        match Gate::init(unsafe { &mut *memory }, config) {
            Ok(gate) => Ok(Self { gate, memory }),
            Err(e) => {
                // SAFETY: from `into_raw` above, and no gate borrows from it.
                drop(unsafe { Box::from_raw(memory) });
                Err(e)
            }
        }
    }

    /// The gate.
    pub fn gate(&self) -> Gate<'_> {
        self.gate
    }
}

impl Drop for OwnedGate {
    fn drop(&mut self) {
        // SAFETY: from `into_raw` in `new`; whoever had the gate borrowed `self`.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}
