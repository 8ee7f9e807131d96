//! The table: a fixed number of slots, found by key, changed by compare-and-swap only.
//!
//! This is the only concurrent code of the engine. The protocol, with the reasons for each of its
//! steps and the model it was checked by, is in ARCHITECTURE.md ("The table"); the names are the
//! same here and there. What a state means is none of the table's business, except when it comes
//! to rest.
mod atomics;
mod glimpse;
mod horizons;
mod vacancy;
mod word;

use crate::key::{EntryKey, GROUP_SLOTS};
use crate::settings::Settings;
use crate::time::{Rest, Time};
use atomics::{AtomicU128, Ordering, fence};
pub(crate) use horizons::Horizons;
use vacancy::Vacancy;
use word::{FRESH, Phase, Word, generation_of, limit_of, not_older};

/// A place for one state. All zero is an empty slot.
#[repr(C, align(32))]
pub struct Slot {
    /// Phase, generation, payload.
    state: AtomicU128,
    /// The generation it was written for, limit, key. Counts only while that is the state's.
    keyword: AtomicU128,
}

/// Whether this target changes 128 bits at once by an instruction. Where it doesn't, a lock or
/// masked interrupts take its place: the engine is then right within one process, but one thread
/// may wait for another, and its memory can't be shared between processes.
pub fn is_lock_free() -> bool {
    AtomicU128::is_lock_free()
}

/// What an operation makes of an entry's payload.
pub(crate) enum Step<T> {
    /// The payload stays as it is.
    Keep(T),
    /// The payload becomes this one.
    Write(u128, T),
}

/// What a charge comes to.
pub(crate) enum Charge<T> {
    Done(T),
    /// No slot for a new entry; the soonest candidate is free after this many nanoseconds.
    Full {
        retry_after_ns: u64,
    },
}

/// A pass of an operation over its candidates.
enum Pass<T> {
    Done(T),
    Full {
        retry_after_ns: u64,
    },
    /// Another thread was faster somewhere.
    Retry,
}

#[derive(Clone, Copy)]
pub(crate) struct Table<'m> {
    pub(crate) slots: &'m [Slot],
    pub(crate) horizons: &'m Horizons,
    pub(crate) settings: Settings<'m>,
}

/// Passes of one operation. With threads paused in between over and over, two keys could evict
/// each other's joins for ever.
const PASSES_MAX: u32 = 64;

/// Attempts on one live entry in one pass. Each that fails is a success of another thread.
const ATTEMPTS_MAX: u32 = 1 << 16;

impl Table<'_> {
    /// Runs `step` on the payload of `key`'s entry at that time, or on a fresh payload where it has
    /// none, and makes the entry where that is called for.
    #[inline]
    pub(crate) fn charge<T>(
        &self,
        key: &EntryKey,
        time: Time,
        mut step: impl FnMut(u128, Time) -> Step<T>,
    ) -> Charge<T> {
        match self.attempt_if_cheaper(key, |payload| step(payload, time)) {
            Some(done) => Charge::Done(done),
            None => self.charge_surely(key, time, step),
        }
    }

    /// As [`charge`](Self::charge), after an attempt that failed.
    #[inline(never)]
    pub(crate) fn charge_surely<T>(
        &self,
        key: &EntryKey,
        time: Time,
        mut step: impl FnMut(u128, Time) -> Step<T>,
    ) -> Charge<T> {
        for _ in 0..PASSES_MAX {
            let pass = match self.find(key) {
                Some((index, word)) if word.phase() == Phase::Live => {
                    self.change(index, word, |payload| step(payload, time))
                }
                // Also where the entry is joining, so that an operation which would not change it
                // leaves it to those that would.
                found => match step(FRESH, time) {
                    Step::Keep(done) => return Charge::Done(done),
                    Step::Write(..) => match found {
                        Some((index, word)) => self.confirm(key, index, word, time, &mut step),
                        None => self.insert(key, time, &mut step),
                    },
                },
            };
            match pass {
                Pass::Done(done) => return Charge::Done(done),
                Pass::Full { retry_after_ns } => return Charge::Full { retry_after_ns },
                Pass::Retry => {}
            }
        }
        Charge::Full { retry_after_ns: 1 }
    }

    /// Runs `step` on the payload of `key`'s live entry. An entry that is missing or only joining
    /// has nothing to give back: then nothing is done.
    #[inline]
    pub(crate) fn amend<T>(
        &self,
        key: &EntryKey,
        mut step: impl FnMut(u128) -> Step<T>,
    ) -> Option<T> {
        self.attempt_if_cheaper(key, &mut step).or_else(|| self.amend_surely(key, step))
    }

    /// As [`amend`](Self::amend), after an attempt that failed.
    #[inline(never)]
    fn amend_surely<T>(&self, key: &EntryKey, mut step: impl FnMut(u128) -> Step<T>) -> Option<T> {
        for _ in 0..PASSES_MAX {
            match self.find(key) {
                Some((index, word)) if word.phase() == Phase::Live => {
                    if let Pass::Done(done) = self.change(index, word, &mut step) {
                        return Some(done);
                    }
                }
                _ => return None,
            }
        }
        None
    }

    /// The payload of `key`'s entry, or a fresh one; and whether there is room for an entry, or in
    /// how many nanoseconds there will be.
    pub(crate) fn look(&self, key: &EntryKey, time: Time) -> (u128, Result<(), u64>) {
        match self.find(key) {
            Some((_, word)) if word.phase() == Phase::Live => (word.payload(), Ok(())),
            Some(_) => (FRESH, Ok(())),
            None => (FRESH, self.pick(key, time).map(drop)),
        }
    }

    /// Runs `step` on each live entry of `limit`.
    pub(crate) fn amend_all(&self, limit: u8, mut step: impl FnMut(u128) -> Step<()>) {
        for index in 0..self.slots.len() {
            for _ in 0..PASSES_MAX {
                let Some((word, keyword)) = self.entry(index) else { break };
                if word.phase() != Phase::Live || limit_of(keyword) != limit {
                    break;
                }
                if let Pass::Done(()) = self.change(index, word, &mut step) {
                    break;
                }
            }
        }
    }

    /// How many slots hold a live entry, one at rest by then, a claim, nothing.
    pub(crate) fn census(&self, time: Time) -> crate::metrics::Stats {
        let mut stats = crate::metrics::Stats { slots: self.slots.len() as u64, ..<_>::default() };
        for index in 0..self.slots.len() {
            let word = self.state(index);
            let of = match word.phase() {
                Phase::Empty => &mut stats.empty,
                Phase::Claimed | Phase::Join => &mut stats.claimed,
                Phase::Live => match self.rest_of(index, word) {
                    Some(rest) if rest.wait_ns(time) == 0 => &mut stats.at_rest,
                    _ => &mut stats.live,
                },
            };
            *of = of.wrapping_add(1);
        }
        stats
    }

    /// `key`'s entry and its state; one that is joining only where none is live, for a thread that
    /// came late or stopped can leave a JOIN beside the live entry.
    ///
    /// The order is free, since an entry that is missed here is met in `confirm`.
    #[inline]
    fn find(&self, key: &EntryKey) -> Option<(usize, Word)> {
        let mut joining = None;
        for index in likeliest(key) {
            match self.entry_of(key, index) {
                Some(word) if word.phase() == Phase::Live => return Some((index, word)),
                Some(word) => joining = joining.or(Some((index, word))),
                None => {}
            }
        }
        joining
    }

    /// The state of slot `index`, if it holds `key`'s entry.
    #[inline]
    fn entry_of(&self, key: &EntryKey, index: usize) -> Option<Word> {
        let slot = self.slots.get(index)?;
        // Acquire: pairs with the AcqRel compare-and-swaps of the state, by which the key word of
        // this generation was published.
        let word = Word(slot.state.load(Ordering::Acquire));
        // Relaxed: a key word is written once in a generation, before its state becomes an entry.
        (word.is_entry() && slot.keyword.load(Ordering::Relaxed) == word.keyword(key.tag))
            .then_some(word)
    }

    /// The state and key word of slot `index`, where they belong together and are an entry.
    fn entry(&self, index: usize) -> Option<(Word, u128)> {
        let slot = self.slots.get(index)?;
        let word = self.state(index);
        let keyword = slot.keyword.load(Ordering::Relaxed); // as in `entry_of`
        (word.is_entry() && generation_of(keyword) == word.generation()).then_some((word, keyword))
    }

    fn state(&self, index: usize) -> Word {
        // Acquire: as in `entry_of`. A table has every index that is asked for.
        Word(self.slots.get(index).map_or(0, |slot| slot.state.load(Ordering::Acquire)))
    }

    /// Changes the state of slot `index` from `old`; else says what it is.
    #[inline]
    fn swap(&self, index: usize, old: Word, new: Word) -> Result<(), Word> {
        let Some(slot) = self.slots.get(index) else { return Err(Word(0)) };
        // AcqRel, on failure Acquire: publishes the key word to, and takes it from, whoever loads
        // or changes this state. It also orders the horizon, which is raised before a slot is
        // reclaimed and read after the states were.
        slot.state
            .compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Word)
    }

    /// Runs `step` on a live entry until it holds, or the slot is another entry's.
    #[inline]
    fn change<T>(
        &self,
        index: usize,
        mut word: Word,
        mut step: impl FnMut(u128) -> Step<T>,
    ) -> Pass<T> {
        for _ in 0..ATTEMPTS_MAX {
            let (payload, done) = match step(word.payload()) {
                Step::Keep(done) => return Pass::Done(done),
                Step::Write(payload, done) => (payload, done),
            };
            let generation = word.generation();
            match self.swap(index, word, Word::new(Phase::Live, generation, payload)) {
                Ok(()) => return Pass::Done(done),
                // The same entry, changed by another thread: as if found anew.
                Err(now) if now.phase() == Phase::Live && now.generation() == generation => {
                    word = now;
                    core::hint::spin_loop();
                }
                Err(_) => return Pass::Retry,
            }
        }
        Pass::Retry
    }

    /// Takes a slot for `key` and charges it there.
    #[cold]
    fn insert<T>(
        &self,
        key: &EntryKey,
        time: Time,
        step: &mut impl FnMut(u128, Time) -> Step<T>,
    ) -> Pass<T> {
        let Vacancy { index, word, rest, .. } = match self.pick(key, time) {
            Ok(vacancy) => vacancy,
            Err(retry_after_ns) => return Pass::Full { retry_after_ns },
        };
        if let Some(rest) = rest {
            // Before the entry at rest loses its slot: whoever starts its key again, having seen
            // no entry of it, sees this.
            self.horizons.raise(rest);
        }
        let stamp = u128::from(time.now_ns);
        let claim = Word::new(Phase::Claimed, word.next_generation(), stamp);
        if self.swap(index, word, claim).is_err() || !self.write_keyword(index, claim, key.tag) {
            return Pass::Retry;
        }
        let join = Word::new(Phase::Join, claim.generation(), stamp);
        // Publishes the key word; not a plain store, for the slot may have been taken over.
        if self.swap(index, claim, join).is_err() {
            return Pass::Retry;
        }
        self.confirm(key, index, join, time, step)
    }

    /// Writes the key word for `claim`, unless the slot was taken over.
    fn write_keyword(&self, index: usize, claim: Word, tag: u128) -> bool {
        let Some(slot) = self.slots.get(index) else { return false };
        for _ in 0..PASSES_MAX {
            let old = slot.keyword.load(Ordering::Relaxed);
            if not_older(generation_of(old), claim.generation()) {
                return false;
            }
            // Release: pairs with the Acquire fence in `confirm`, for a scan that met the state of
            // the entry before and this key word. (The swap from CLAIMED to JOIN publishes it to
            // those who look for it.)
            let new = claim.keyword(tag);
            let swapped =
                slot.keyword.compare_exchange(old, new, Ordering::Release, Ordering::Relaxed);
            if swapped.is_ok() {
                return true;
            }
        }
        false
    }

    /// Makes the entry that is joining in slot `index` live, unless its key has another. Its owner
    /// and anybody who meets it run the same code.
    #[cold]
    fn confirm<T>(
        &self,
        key: &EntryKey,
        index: usize,
        join: Word,
        time: Time,
        step: &mut impl FnMut(u128, Time) -> Step<T>,
    ) -> Pass<T> {
        // Of two entries of one key that are joining, at least one thread must see the other's:
        // each scan below comes after the JOIN that it is for, in one order of all fences.
        fence(Ordering::SeqCst);
        for other in candidates(key) {
            if other == index {
                continue;
            }
            let Some(word) = self.entry_of(key, other) else { continue };
            if word.phase() == Phase::Live || other < index {
                // Whether this succeeds or somebody was faster, the entry is settled elsewhere.
                let _ = self.swap(index, join, join.emptied());
                return Pass::Retry;
            }
            if let Err(now) = self.swap(other, word, word.emptied()) {
                // Made live meanwhile: the entry is settled there, and nobody else would come for
                // this one before the grace time is over. Otherwise it stays, so that of several
                // the lowest wins.
                if now.phase() == Phase::Live && now.generation() == word.generation() {
                    let _ = self.swap(index, join, join.emptied());
                }
                return Pass::Retry;
            }
        }
        // Acquire: pairs with the Release in `write_keyword`. An entry that the scan took for gone
        // since its key word was of a later generation was reclaimed before that was written.
        fence(Ordering::Acquire);
        match step(FRESH, self.horizons.past(time)) {
            Step::Keep(done) => {
                let _ = self.swap(index, join, join.emptied());
                Pass::Done(done)
            }
            Step::Write(payload, done) => {
                let live = Word::new(Phase::Live, join.generation(), payload);
                match self.swap(index, join, live) {
                    Ok(()) => Pass::Done(done),
                    Err(_) => Pass::Retry,
                }
            }
        }
    }

    /// When the live entry in slot `index` comes to rest, if its state is still `word`.
    fn rest_of(&self, index: usize, word: Word) -> Option<Rest> {
        let keyword = self.slots.get(index)?.keyword.load(Ordering::Relaxed); // as in `entry_of`
        (generation_of(keyword) == word.generation())
            .then(|| self.settings.rest(limit_of(keyword), word.payload()))
    }
}

/// All slots in which `key`'s entry can be, each once, the likeliest first: by turns a slot of either
/// group, from its preferred place on.
#[inline(always)]
fn likeliest(key: &EntryKey) -> impl Iterator<Item = usize> + use<> {
    let ([first, second], [first_place, second_place]) = (key.groups, key.places);
    (0..2 * GROUP_SLOTS).map(move |n| {
        let away = n >> 1;
        if n & 1 == 0 { first | first_place ^ away } else { second | second_place ^ away }
    })
}

/// The same, in whatever order.
fn candidates(key: &EntryKey) -> impl Iterator<Item = usize> + use<> {
    let [first, second] = key.groups;
    (0..GROUP_SLOTS)
        .map(move |n| first.wrapping_add(n))
        .chain((0..GROUP_SLOTS).map(move |n| second.wrapping_add(n)))
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
