//! What a gate counts, and what its table holds.
use portable_atomic::{AtomicU64, Ordering};

use crate::call::Reason;
use crate::concurrency::Glance;
use crate::config::MAX_RULES;
use crate::quota::Cycle;

/// Threads count in different places, so that they don't contend for a cache line. Targets with
/// one core have nothing to spread.
pub(crate) const STRIPES: usize = if cfg!(target_has_atomic = "64") { 8 } else { 1 };

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

/// What a concurrency limit looks like at one instant, over all its states, and what was counted
/// since the gate was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    /// How many calls hold a place.
    pub in_flight: u64,
    /// How many breakers are open.
    pub open: u64,
    /// How many breakers are half-open.
    pub half_open: u64,
    /// How often a breaker opened.
    pub trips: u64,
    /// How many permits were settled after their lease.
    pub lapsed: u64,
}

impl Guards {
    pub(crate) fn add(&mut self, glance: Glance) {
        self.in_flight = self.in_flight.wrapping_add(glance.in_flight.into());
        self.open = self.open.wrapping_add(glance.is_open.into());
        self.half_open = self.half_open.wrapping_add(glance.is_half_open.into());
    }
}

/// What is kept of a limit beside its settings.
#[repr(C, align(32))]
pub(crate) struct Account {
    /// Of a quota: the window that the host has set, its start above its length; 0 where it has
    /// set none.
    window: AtomicU64,
    /// Of a concurrency limit: how often a breaker opened.
    trips: AtomicU64,
    /// Of a concurrency limit: permits that were settled after their lease.
    lapsed: AtomicU64,
}

const LENGTH_BITS: u32 = 29;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;

impl Account {
    /// Sets the window, unless one that begins later is set already. `None` where it is out of range.
    pub(crate) fn set_window(&self, start_s: u64, end_s: u64) -> Option<()> {
        let length_s = end_s.checked_sub(start_s)?;
        if length_s == 0 || length_s > LENGTH_MASK || start_s >> (u64::BITS - LENGTH_BITS) != 0 {
            return None;
        }
        // Relaxed: the window is one word, and nothing else is published by it.
        let _ = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |present| {
            (start_s >= present >> LENGTH_BITS).then_some(start_s << LENGTH_BITS | length_s)
        });
        Some(())
    }

    /// The window that was set and, where nothing else is known, those before and after it.
    pub(crate) fn cycle(&self) -> Cycle {
        let window = self.window.load(Ordering::Relaxed);
        Cycle::new(window & LENGTH_MASK, window >> LENGTH_BITS).unwrap_or(Cycle::DAYS)
    }

    // Relaxed: counts order nothing.

    pub(crate) fn count_trip(&self) {
        self.trips.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_lapsed(&self) {
        self.lapsed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn guards(&self) -> Guards {
        let (trips, lapsed) =
            (self.trips.load(Ordering::Relaxed), self.lapsed.load(Ordering::Relaxed));
        Guards { trips, lapsed, ..Guards::default() }
    }
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
