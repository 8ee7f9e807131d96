//! The table: a fixed number of slots, found by key, changed by compare-and-swap only.
//!
//! This is the only concurrent code of the engine. The protocol, with the reasons for each of its
//! steps and the model it was checked by, is in ARCHITECTURE.md ("The table"); the names are the
//! same here and there. What a state means is none of the table's business, except when it comes
//! to rest.
use portable_atomic::{AtomicU64, AtomicU128, Ordering, fence};

use crate::key::{EntryKey, GROUP_SLOTS, STORED_BITS};
use crate::limit::Kind;
use crate::settings::Settings;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Empty = 0,
    /// Taken by a thread that is about to write the key word.
    Claimed = 1,
    /// An entry that is not charged yet, and nobody's in particular: whoever makes it live does
    /// so with its own charge.
    Join = 2,
    Live = 3,
}

const PAYLOAD_BITS: u32 = 102;
const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const PAYLOAD_MASK: u128 = (1 << PAYLOAD_BITS) - 1;
const TAG_MASK: u128 = (1 << (128 - GENERATION_BITS)) - 1;

/// The payload of an entry that nobody has charged: of every kind of limit, the state at rest.
const FRESH: u128 = 0;

/// A state word, taken apart on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u128);

impl Word {
    fn new(phase: Phase, generation: u32, payload: u128) -> Self {
        Self(
            (phase as u128) << 126
                | u128::from(generation & GENERATION_MASK) << PAYLOAD_BITS
                | payload & PAYLOAD_MASK,
        )
    }

    fn phase(self) -> Phase {
        match self.0 >> 126 {
            0 => Phase::Empty,
            1 => Phase::Claimed,
            2 => Phase::Join,
            _ => Phase::Live,
        }
    }

    fn is_entry(self) -> bool {
        self.0 >> 127 == 1
    }

    fn generation(self) -> u32 {
        (self.0 >> PAYLOAD_BITS) as u32 & GENERATION_MASK
    }

    fn next_generation(self) -> u32 {
        (self.generation() + 1) & GENERATION_MASK
    }

    fn payload(self) -> u128 {
        self.0 & PAYLOAD_MASK
    }

    /// The key word of the entry `tag` in this state's generation.
    fn keyword(self, tag: u128) -> u128 {
        u128::from(self.generation()) << (128 - GENERATION_BITS) | tag
    }

    fn emptied(self) -> Self {
        Self::new(Phase::Empty, self.next_generation(), 0)
    }
}

/// Whether generation `a` is not older than `b`, with wrap-around.
fn not_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) & GENERATION_MASK < 1 << (GENERATION_BITS - 1)
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

/// A slot that may be taken.
struct Vacancy {
    index: usize,
    word: Word,
    /// When the entry at rest that is there came to rest.
    rested_ns: Option<u64>,
}

impl Vacancy {
    /// Whether it had better be taken than `other`: nothing before an entry at rest, whose caller
    /// may come again, and of those the one that came to rest first.
    fn is_better_than(&self, other: &Self) -> bool {
        self.rested_ns < other.rested_ns
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Table<'m> {
    pub(crate) slots: &'m [Slot],
    /// The latest time at which an entry that lost its slot had come to rest. It can't run ahead
    /// of a time that was really stored, whatever times callers pass.
    pub(crate) horizon: &'m AtomicU64,
    pub(crate) settings: Settings<'m>,
}

/// Passes of one operation. With threads paused in between over and over, two keys could evict
/// each other's joins for ever.
const PASSES_MAX: u32 = 64;

/// Attempts on one live entry in one pass. Each that fails is a success of another thread.
const ATTEMPTS_MAX: u32 = 1 << 16;

/// After this long a thread that claimed a slot is taken for stopped. For liveness only: taking
/// over is safe at any moment.
const GRACE_NS: u64 = 1_000_000_000;

impl Table<'_> {
    /// Has the processor fetch the slots where `key`'s entry is likeliest, both at once: a miss of
    /// the cache costs more than all the rest of a decision.
    #[inline]
    pub(crate) fn prefetch(&self, key: &EntryKey) {
        for (group, place) in key.groups.iter().zip(key.places) {
            let slot = self.slots.as_ptr().wrapping_add(group | place);
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a hint, which never faults. Every x86-64 has it.
            unsafe {
                use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(slot.cast());
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = slot;
        }
    }

    /// Runs `step` on the payload of `key`'s entry at `now_ns`, or on a fresh payload where it has
    /// none, and makes the entry where that is called for.
    #[inline]
    pub(crate) fn charge<T>(
        &self,
        key: &EntryKey,
        now_ns: u64,
        mut step: impl FnMut(u128, u64) -> Step<T>,
    ) -> Charge<T> {
        // What nearly every call comes to, in line: a live entry, changed at the first attempt.
        if let Some((index, word)) = self.find(key)
            && word.phase() == Phase::Live
        {
            match step(word.payload(), now_ns) {
                Step::Keep(done) => return Charge::Done(done),
                Step::Write(payload, done) => {
                    let new = Word::new(Phase::Live, word.generation(), payload);
                    if self.swap(index, word, new).is_ok() {
                        return Charge::Done(done);
                    }
                }
            }
        }
        self.charge_anyhow(key, now_ns, &mut step)
    }

    #[cold]
    #[inline(never)]
    fn charge_anyhow<T>(
        &self,
        key: &EntryKey,
        now_ns: u64,
        step: &mut impl FnMut(u128, u64) -> Step<T>,
    ) -> Charge<T> {
        for _ in 0..PASSES_MAX {
            let pass = match self.find(key) {
                Some((index, word)) if word.phase() == Phase::Live => {
                    self.change(index, word, |payload| step(payload, now_ns))
                }
                // Also where the entry is joining, so that an operation which would not change it
                // leaves it to those that would.
                found => match step(FRESH, now_ns) {
                    Step::Keep(done) => return Charge::Done(done),
                    Step::Write(..) => match found {
                        Some((index, word)) => self.confirm(key, index, word, now_ns, step),
                        None => self.insert(key, now_ns, step),
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
    pub(crate) fn amend<T>(
        &self,
        key: &EntryKey,
        mut step: impl FnMut(u128) -> Step<T>,
    ) -> Option<T> {
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
    pub(crate) fn look(&self, key: &EntryKey, now_ns: u64) -> (u128, Result<(), u64>) {
        match self.find(key) {
            Some((_, word)) if word.phase() == Phase::Live => (word.payload(), Ok(())),
            Some(_) => (FRESH, Ok(())),
            None => (FRESH, self.pick(key, now_ns).map(drop)),
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

    /// How many slots hold a live entry, one at rest at `now_ns`, a claim, nothing.
    pub(crate) fn census(&self, now_ns: u64) -> crate::metrics::Stats {
        let mut stats = crate::metrics::Stats { slots: self.slots.len() as u64, ..<_>::default() };
        for index in 0..self.slots.len() {
            let word = self.state(index);
            let of = match word.phase() {
                Phase::Empty => &mut stats.empty,
                Phase::Claimed | Phase::Join => &mut stats.claimed,
                Phase::Live => match self.at_rest_from_ns(index, word) {
                    Some(from_ns) if from_ns <= now_ns => &mut stats.at_rest,
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
    /// Looks where an entry is likeliest first; the order is free, since an entry that is missed
    /// here is met in `confirm`.
    #[inline]
    fn find(&self, key: &EntryKey) -> Option<(usize, Word)> {
        let mut joining = None;
        for line in (0..GROUP_SLOTS).step_by(2) {
            for (group, place) in key.groups.iter().zip(key.places) {
                for n in [line, line | 1] {
                    let index = group | place ^ n;
                    match self.entry_of(key, index) {
                        Some(word) if word.phase() == Phase::Live => return Some((index, word)),
                        Some(word) => joining = joining.or(Some((index, word))),
                        None => {}
                    }
                }
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
        now_ns: u64,
        step: &mut impl FnMut(u128, u64) -> Step<T>,
    ) -> Pass<T> {
        let Vacancy { index, word, rested_ns } = match self.pick(key, now_ns) {
            Ok(vacancy) => vacancy,
            Err(retry_after_ns) => return Pass::Full { retry_after_ns },
        };
        if let Some(rested_ns) = rested_ns {
            // Before the entry at rest loses its slot: whoever starts its key again, having seen
            // no entry of it, sees this. Relaxed: the swap of the state publishes it.
            self.horizon.fetch_max(rested_ns, Ordering::Relaxed);
        }
        let claim = Word::new(Phase::Claimed, word.next_generation(), u128::from(now_ns));
        if self.swap(index, word, claim).is_err() || !self.write_keyword(index, claim, key.tag) {
            return Pass::Retry;
        }
        let join = Word::new(Phase::Join, claim.generation(), u128::from(now_ns));
        // Publishes the key word; not a plain store, for the slot may have been taken over.
        if self.swap(index, claim, join).is_err() {
            return Pass::Retry;
        }
        self.confirm(key, index, join, now_ns, step)
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
        now_ns: u64,
        step: &mut impl FnMut(u128, u64) -> Step<T>,
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
        // Read after the scan. Relaxed: the states and key words that were scanned publish it.
        let stamp_ns = now_ns.max(self.horizon.load(Ordering::Relaxed));
        match step(FRESH, stamp_ns) {
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

    /// The slot that a new entry of `key` goes to: an empty one in the emptier of its groups, as
    /// near as can be to its preferred place, or else the one whose entry has been at rest for
    /// longest. Where there is none, the nanoseconds until there is.
    fn pick(&self, key: &EntryKey, now_ns: u64) -> Result<Vacancy, u64> {
        let [first, second] = key.groups;
        let [first_place, second_place] = key.places;
        let first = self.survey(first, first_place, now_ns);
        let second = self.survey(second, second_place, now_ns);
        let wait_ns = first.wait_ns.min(second.wait_ns);
        let (near, far) =
            if second.taken < first.taken { (second, first) } else { (first, second) };
        match (near.vacancy, far.vacancy) {
            (Some(near), Some(far)) => Ok(if far.is_better_than(&near) { far } else { near }),
            (near, far) => near.or(far).ok_or(wait_ns),
        }
    }

    /// How many nanoseconds until a place for `key` is free that none of `others` has.
    pub(crate) fn wait_beside(&self, key: &EntryKey, others: &[EntryKey], now_ns: u64) -> u64 {
        candidates(key)
            .filter(|&index| others.iter().all(|other| self.entry_of(other, index).is_none()))
            .map(|index| self.wait(index, self.state(index), now_ns).0)
            .fold(u64::MAX, u64::min)
            .max(1)
    }

    /// How many nanoseconds slot `index`, in that state, stays taken; and of an entry at rest, since
    /// when it is.
    fn wait(&self, index: usize, word: Word, now_ns: u64) -> (u64, Option<u64>) {
        match word.phase() {
            Phase::Empty => (0, None),
            // A claim from far ahead is as good as an old one: its thread's clock is wrong.
            Phase::Claimed | Phase::Join => {
                let age_ns = now_ns.abs_diff(word.payload() as u64);
                (GRACE_NS.saturating_sub(age_ns), None)
            }
            Phase::Live => match self.at_rest_from_ns(index, word) {
                Some(from_ns) => (from_ns.saturating_sub(now_ns), Some(from_ns)),
                // Another entry has just come here.
                None => (1, None),
            },
        }
    }

    /// Looks through one group for a slot that may be taken.
    fn survey(&self, group: usize, place: usize, now_ns: u64) -> Survey {
        let mut survey = Survey { taken: 0, wait_ns: u64::MAX, vacancy: None };
        for n in 0..GROUP_SLOTS {
            let index = group | place ^ n;
            let word = self.state(index);
            let (wait_ns, rested_ns) = self.wait(index, word, now_ns);
            if wait_ns > 0 {
                survey.taken += 1;
                survey.wait_ns = survey.wait_ns.min(wait_ns);
            } else {
                let vacancy = Vacancy { index, word, rested_ns };
                if survey.vacancy.as_ref().is_none_or(|best| vacancy.is_better_than(best)) {
                    survey.vacancy = Some(vacancy);
                }
            }
        }
        survey
    }

    /// When the live entry in slot `index` comes to rest, if its state is still `word`.
    fn at_rest_from_ns(&self, index: usize, word: Word) -> Option<u64> {
        let keyword = self.slots.get(index)?.keyword.load(Ordering::Relaxed); // as in `entry_of`
        let kind: Kind = self.settings.kind(limit_of(keyword));
        (generation_of(keyword) == word.generation()).then(|| kind.at_rest_from_ns(word.payload()))
    }
}

/// All slots in which `key`'s entry can be, each once.
fn candidates(key: &EntryKey) -> impl Iterator<Item = usize> + use<> {
    let [first, second] = key.groups;
    (0..GROUP_SLOTS)
        .map(move |n| first.wrapping_add(n))
        .chain((0..GROUP_SLOTS).map(move |n| second.wrapping_add(n)))
}

struct Survey {
    /// How many slots can't be taken.
    taken: usize,
    /// How long until the first of those can.
    wait_ns: u64,
    /// The slot that had best be taken.
    vacancy: Option<Vacancy>,
}

fn generation_of(keyword: u128) -> u32 {
    (keyword >> (128 - GENERATION_BITS)) as u32
}

fn limit_of(keyword: u128) -> u8 {
    ((keyword & TAG_MASK) >> STORED_BITS) as u8
}

#[cfg(test)]
mod tests;
