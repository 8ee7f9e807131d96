//! The way that nearly every operation takes: an entry that is live and found at once is changed as it
//! seemed to be, if it was so.
use core::hint::select_unpredictable;

use super::atomics::{glimpse, hint};
use super::word::{Phase, Word};
use super::{Step, Table, likeliest};
use crate::key::EntryKey;

/// A live entry as it seemed to be. Nothing may come of it before [`Table::replace`] or
/// [`Table::is_still`] has found that it was so.
pub(crate) struct Glimpse {
    pub(super) index: usize,
    word: Word,
}

impl Glimpse {
    #[inline]
    pub(crate) fn payload(&self) -> u128 {
        self.word.payload()
    }
}

impl Table<'_> {
    /// Has the processor fetch the slots where `key`'s entry is likeliest, both at once, and to
    /// write to: a miss of the cache costs more than all the rest of a decision.
    #[inline]
    pub(crate) fn prefetch(&self, key: &EntryKey) {
        for (group, place) in key.groups.iter().zip(key.places) {
            let slot = self.slots.as_ptr().wrapping_add(group | place);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint, which never faults, and which x86-64 processors that have no such
            // instruction pass over.
            unsafe {
                core::arch::asm!(
                    "prefetchw [{}]",
                    in(reg) slot,
                    options(nostack, preserves_flags, readonly),
                );
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = slot;
        }
    }

    /// `key`'s live entry, if it seems to have one.
    #[inline(always)]
    pub(crate) fn glimpse(&self, key: &EntryKey) -> Option<Glimpse> {
        let ([group, _], [place, _]) = (key.groups, key.places);
        self.glimpse_at(key, group | place)
            .or_else(|| self.glimpse_at(key, self.nearest(key)?))
            .or_else(|| self.glimpse_elsewhere(key))
    }

    /// Of the four slots on the lines of the cache that were fetched, the one that seems to hold `key`'s
    /// entry; none of the table's where none does. Without a branch: which it is follows no pattern, and
    /// one branch that is guessed wrong takes longer than to look at all four.
    #[inline(always)]
    pub(super) fn nearest(&self, key: &EntryKey) -> Option<usize> {
        let end = key.tag as u64;
        let [first, second] = [0, 1].map(|n| key.groups[n] | key.places[n] & !1);
        let mut nearest = self.slots.len();
        for line in [first, second] {
            let [slot, other] = self.slots.get(line..line.wrapping_add(2))? else { return None };
            let (here, there) = (hint(&slot.keyword)? == end, hint(&other.keyword)? == end);
            nearest = select_unpredictable(here, line, nearest);
            nearest = select_unpredictable(there, line | 1, nearest);
        }
        Some(nearest)
    }

    /// Apart, to leave the registers to what most calls come to.
    #[inline(never)]
    fn glimpse_elsewhere(&self, key: &EntryKey) -> Option<Glimpse> {
        likeliest(key).skip(1).find_map(|index| self.glimpse_at(key, index))
    }

    /// As [`entry_of`](Self::entry_of), of a live entry.
    #[inline(always)]
    fn glimpse_at(&self, key: &EntryKey, index: usize) -> Option<Glimpse> {
        let slot = self.slots.get(index)?;
        let word = Word(glimpse(&slot.state));
        (word.phase() == Phase::Live && glimpse(&slot.keyword) == word.keyword(key.tag))
            .then_some(Glimpse { index, word })
    }

    /// An [`attempt`](Self::attempt) where a glimpse takes less than a look. Elsewhere it is the same
    /// load, and attempts before all that is done to an entry would only take space.
    #[inline]
    pub(super) fn attempt_if_cheaper<T>(
        &self,
        key: &EntryKey,
        step: impl FnOnce(u128) -> Step<T>,
    ) -> Option<T> {
        if cfg!(target_arch = "x86_64") { self.attempt(key, step) } else { None }
    }

    /// Runs `step` on the payload of `key`'s live entry, if it seems to have one, and it was so.
    #[inline]
    pub(super) fn attempt<T>(
        &self,
        key: &EntryKey,
        step: impl FnOnce(u128) -> Step<T>,
    ) -> Option<T> {
        let seen = self.glimpse(key)?;
        let (done, was_so) = match step(seen.payload()) {
            Step::Write(payload, done) => (done, self.replace(&seen, payload)),
            Step::Keep(done) => (done, self.is_still(&seen)),
        };
        was_so.then_some(done)
    }

    /// Gives a live entry another payload, if it is as it seemed.
    #[inline]
    pub(crate) fn replace(&self, seen: &Glimpse, payload: u128) -> bool {
        let new = Word::new(Phase::Live, seen.word.generation(), payload);
        self.swap(seen.index, seen.word, new).is_ok()
    }

    /// Whether a live entry is as it seemed.
    #[inline]
    pub(crate) fn is_still(&self, seen: &Glimpse) -> bool {
        self.state(seen.index) == seen.word
    }
}
