//! The limits in a gate's memory, which may be changed while other threads decide by them.
//!
//! Each cell has two versions; the gate's revision says, by being even or odd, which one is in
//! force. A change is written to the other version and comes into force as a whole when the
//! revision is raised, so nobody waits for a writer, not even for one that stopped half-way. What
//! a reader took is whole if the revision is still what it was before.
use portable_atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::config::{ConfigError, Field};
use crate::limit::{Compiled, WORDS, rate_of, switched_off};
use crate::rate::Rate;
use crate::time::Rest;

#[repr(C, align(32))]
pub(crate) struct LimitCell {
    versions: [[AtomicU64; WORDS]; 2],
}

/// A limit as it was at one revision.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    words: [u64; WORDS],
}

impl Setting {
    /// The rate limit that it is, if it is one and not off.
    #[inline]
    pub(crate) fn rate(&self) -> Option<Rate> {
        rate_of(&self.words)
    }

    pub(crate) fn limit(&self) -> Compiled {
        Compiled::from_words(&self.words)
    }

    /// The revision in which the limit was last changed.
    pub(crate) fn changed_at(&self) -> u32 {
        let [head, ..] = self.words;
        (head >> 32) as u32
    }
}

/// Whether revision `a` came after `b`, with wrap-around.
pub(crate) fn is_later(a: u32, b: u32) -> bool {
    b.wrapping_sub(a) >= 1 << 31
}

#[derive(Clone, Copy)]
pub(crate) struct Settings<'m> {
    revision: &'m AtomicU32,
    cells: &'m [LimitCell],
}

/// Each turn means that a whole reconfiguration took place within a few nanoseconds.
const READS_MAX: u32 = 64;

impl<'m> Settings<'m> {
    pub(crate) fn new(revision: &'m AtomicU32, cells: &'m [LimitCell]) -> Self {
        Self { revision, cells }
    }

    pub(crate) fn revision(&self) -> u32 {
        // Acquire: pairs with the Release store in `write`.
        self.revision.load(Ordering::Acquire)
    }

    /// The limit as it is now. `None`: there is none of this index, or it was changed under the
    /// reader time after time.
    #[inline]
    pub(crate) fn read(&self, limit: u8) -> Option<Setting> {
        let cell = self.cells.get(usize::from(limit))?;
        self.read_once(cell).or_else(|| self.read_again(cell))
    }

    /// The limit as it is now, if it is a rate limit, not off, and not changed this very moment.
    /// Apart from [`read`](Self::read), so that deciding by a rate limit alone, which most calls do,
    /// costs nothing for the other kinds.
    #[inline]
    pub(crate) fn read_rate(&self, limit: u8) -> Option<Rate> {
        let cell = self.cells.get(usize::from(limit))?;
        self.read_once(cell)?.rate()
    }

    #[cold]
    fn read_again(&self, cell: &LimitCell) -> Option<Setting> {
        (0..READS_MAX).find_map(|_| self.read_once(cell))
    }

    #[inline]
    fn read_once(&self, cell: &LimitCell) -> Option<Setting> {
        let revision = self.revision();
        let words = load(version(cell, revision));
        // Acquire: pairs with the Release fence in `write`. Whoever read a word of a later change
        // so reads a later revision as well.
        fence(Ordering::Acquire);
        (self.revision.load(Ordering::Relaxed) == revision).then_some(Setting { words })
    }

    /// How the entries of a limit are to be read, also while it is off. Of this, only what may
    /// change at any moment can be of two settings: a kind and a lease are for ever.
    #[cold]
    pub(crate) fn kept(&self, limit: u8) -> Compiled {
        let Some(cell) = self.cells.get(usize::from(limit)) else { return Compiled::Off };
        Compiled::kept(&load(version(cell, self.revision())))
    }

    /// When an entry of a limit is at rest.
    pub(crate) fn rest(&self, limit: u8, payload: u128) -> Rest {
        self.kept(limit).rest(payload)
    }

    /// Writes the limits of a gate that no other thread knows yet.
    pub(crate) fn init(&self, limits: impl Iterator<Item = Compiled>) {
        for (cell, limit) in self.cells.iter().zip(limits) {
            store(version(cell, self.revision()), limit.to_words());
        }
    }

    /// Whether a limit may be changed so.
    pub(crate) fn check(&self, limit: u8, changed: &Compiled) -> Result<(), ConfigError> {
        let blame = |field| ConfigError { limit: Some(limit), ..ConfigError::of(field) };
        if usize::from(limit) >= self.cells.len() {
            return Err(blame(Field::RuleLimit));
        }
        changed.may_follow(&self.kept(limit)).map_err(blame)
    }

    /// Puts another limit in force, which was [checked](Self::check). Not by two threads at once.
    pub(crate) fn write(&self, limit: u8, changed: &Compiled) {
        let revision = self.revision.load(Ordering::Relaxed);
        let next = revision.wrapping_add(1);
        // Release: pairs with the Acquire fence in `read`. A reader of anything that is written
        // below also sees the present revision, and knows its version to be overwritten.
        fence(Ordering::Release);
        for (n, cell) in self.cells.iter().enumerate() {
            let words = if n == usize::from(limit) {
                let mut words = match changed {
                    Compiled::Off => switched_off(load(version(cell, revision))),
                    _ => changed.to_words(),
                };
                let [head, ..] = &mut words;
                *head |= u64::from(next) << 32;
                words
            } else {
                load(version(cell, revision))
            };
            store(version(cell, next), words);
        }
        // Release: pairs with the Acquire load in `revision`, which publishes the words.
        self.revision.store(next, Ordering::Release);
    }
}

fn version(cell: &LimitCell, revision: u32) -> &[AtomicU64; WORDS] {
    let [even, odd] = &cell.versions;
    if revision.is_multiple_of(2) { even } else { odd }
}

// Relaxed: the revision orders these, as said at each caller.
fn load(words: &[AtomicU64; WORDS]) -> [u64; WORDS] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}

fn store(cell: &[AtomicU64; WORDS], words: [u64; WORDS]) {
    for (cell, word) in cell.iter().zip(words) {
        cell.store(word, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::memory::zeroed;
    use crate::rate::RateLimit;

    fn compiled(burst: u64) -> Compiled {
        Compiled::new(&Limit::Rate(RateLimit { count: 1, period_ns: 1, burst })).unwrap()
    }

    #[test]
    fn revisions_are_compared_across_their_wrap() {
        let later = [(1, 0), (0, u32::MAX), (1 << 31, 1), ((1 << 31) - 1, 0)];
        assert_eq!(later.map(|(a, b)| is_later(a, b)), [true; 4]);
        let not_later = [(0, 0), (0, 1), (u32::MAX, 0), (1, 1 << 31)];
        assert_eq!(not_later.map(|(a, b)| is_later(a, b)), [false; 4]);
    }

    #[test]
    fn what_is_read_is_what_was_last_written_and_of_when() {
        let (revision, cells): (AtomicU32, [LimitCell; 2]) =
            (AtomicU32::new(u32::MAX - 1), [zeroed(), zeroed()]);
        let settings = Settings::new(&revision, &cells);
        settings.init([compiled(1), compiled(2)].into_iter());
        let [first, _] = &cells;
        for burst in 3..7 {
            settings.write(0, &compiled(burst));
            let setting = settings.read(0).unwrap();
            assert_eq!(setting.limit(), compiled(burst));
            assert_eq!(settings.read_again(first).unwrap().words, setting.words);
            assert_eq!(settings.read_rate(0).unwrap().burst, burst);
            assert_eq!(setting.changed_at(), settings.revision());
            let other = settings.read(1).unwrap();
            assert_eq!((other.limit(), other.changed_at()), (compiled(2), 0));
        }
        assert_eq!(settings.revision(), 2, "four changes after the last but one");
        settings.write(0, &Compiled::Off);
        assert_eq!(settings.read(0).unwrap().limit(), Compiled::Off);
        assert!(settings.read_rate(0).is_none());
        assert_eq!(settings.kept(0), compiled(6));
        assert!(settings.read(2).is_none() && settings.read_rate(2).is_none());
    }
}
