//! The atomics that threads share a table by.
//!
//! Tests with `--cfg loom` run the table on others, by which loom tries every interleaving and all
//! that weakly ordered memory allows. Only tests: a crate that is itself checked by loom, and
//! depends on this one, gets the engine as it is.
#[cfg(not(all(loom, test)))]
pub(super) use portable_atomic::{AtomicU64, AtomicU128, Ordering, fence};

#[cfg(all(loom, test))]
pub(super) mod modelled;
#[cfg(all(loom, test))]
pub(super) use modelled::{AtomicU64, AtomicU128, Ordering, fence};
