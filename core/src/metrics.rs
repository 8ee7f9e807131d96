//! What a gate counts, and what its table holds.
use portable_atomic::{AtomicU64, Ordering};

use crate::config::MAX_RULES;
use crate::gate::Reason;

/// Threads count in different places, so that they don't contend for a cache line. Targets with
/// one core have nothing to spread.
pub(crate) const STRIPES: usize = if cfg!(target_has_atomic = "64") { 4 } else { 1 };

/// The decisions of one policy, as counted by some of the threads.
#[repr(C, align(64))]
pub(crate) struct Tally {
    admitted: AtomicU64,
    refused: [[AtomicU64; Reason::COUNT]; MAX_RULES],
}

/// The decisions of one policy since the gate was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// How many calls were admitted.
    pub admitted: u64,
    /// How many calls were refused: by the rule of the policy, then by `Reason as usize`.
    pub refused: [[u64; Reason::COUNT]; MAX_RULES],
}

/// What the slots of a gate's table hold at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// All slots of the table.
    pub slots: u64,
    /// Those with a state that is not at rest.
    pub live: u64,
    /// Those with a state at rest, free for anybody.
    pub at_rest: u64,
    /// Those that a thread is about to use.
    pub claimed: u64,
    /// Those that hold nothing.
    pub empty: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Tallies<'m>(&'m [Tally]);

impl<'m> Tallies<'m> {
    pub(crate) fn new(tallies: &'m [Tally]) -> Self {
        Self(tallies)
    }

    #[inline]
    pub(crate) fn admitted(&self, policy: u32) {
        if let Some(tally) = self.mine(policy) {
            // Relaxed: a count orders nothing.
            tally.admitted.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn refused(&self, policy: u32, rule: u8, reason: Reason) {
        let tally = self.mine(policy);
        let counts = tally.and_then(|tally| tally.refused.get(usize::from(rule)));
        if let Some(count) = counts.and_then(|counts| counts.get(reason as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn sum(&self, policy: u32) -> Decisions {
        let mut sum = Decisions::default();
        let first = (policy as usize).saturating_mul(STRIPES);
        for tally in self.0.iter().skip(first).take(STRIPES) {
            sum.admitted = sum.admitted.wrapping_add(tally.admitted.load(Ordering::Relaxed));
            for (sum, count) in sum.refused.iter_mut().flatten().zip(tally.refused.iter().flatten())
            {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        sum
    }

    fn mine(&self, policy: u32) -> Option<&'m Tally> {
        self.0.get((policy as usize).checked_mul(STRIPES)?.checked_add(stripe())?)
    }
}

/// Which of the stripes this thread counts in. Any would be right; threads have stacks far apart,
/// so where the stack lies mostly tells them apart, and costs nothing.
fn stripe() -> usize {
    let here = 0u8;
    let address = core::ptr::from_ref(core::hint::black_box(&here)).addr();
    ((address >> 16).wrapping_mul(0x9e37_79b1) >> 16) % STRIPES
}
