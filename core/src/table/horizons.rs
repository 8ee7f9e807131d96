//! Up to when the table has forgotten.
use super::atomics::{AtomicU64, Ordering};
use crate::time::{Rest, Time};

/// By each clock, the latest time at which an entry that lost its slot had come to rest. None can
/// run ahead of a time that was really stored, whatever times callers pass.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Horizons {
    pub(super) monotonic_ns: AtomicU64,
    pub(super) unix_ns: AtomicU64,
}

impl Horizons {
    pub(super) fn raise(&self, rest: Rest) {
        // Relaxed: the swap of the state, which comes after, publishes it.
        match rest {
            Rest::Monotonic { from_ns } => self.monotonic_ns.fetch_max(from_ns, Ordering::Relaxed),
            Rest::Unix { from_ns } => self.unix_ns.fetch_max(from_ns, Ordering::Relaxed),
        };
    }

    /// The later of a time and the horizons.
    pub(super) fn past(&self, time: Time) -> Time {
        // Relaxed: read after a scan; the states and key words that were scanned publish them.
        Time {
            now_ns: time.now_ns.max(self.monotonic_ns.load(Ordering::Relaxed)),
            unix_ns: time.unix_ns.max(self.unix_ns.load(Ordering::Relaxed)),
        }
    }
}
