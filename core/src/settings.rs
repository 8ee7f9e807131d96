//! The limits in a gate's memory, which may be changed while other threads decide by them.
//!
//! Each cell has two versions; the gate's revision says, by being even or odd, which one is in
//! force. A change is written to the other version and comes into force as a whole when the
//! revision is raised, so nobody waits for a writer, not even for one that stopped half-way. What
//! a reader took is whole if the revision is still what it was before.
use portable_atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::config::{ConfigError, Field};
use crate::limit::{Compiled, Kind, WORDS, kind_of};

#[repr(C, align(32))]
pub(crate) struct LimitCell {
    versions: [[AtomicU64; WORDS]; 2],
}

/// A limit as it was at one revision.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) limit: Compiled,
    /// The revision in which the limit was last changed.
    pub(crate) changed_at: u32,
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
        let [head, ..] = words;
        let changed_at = (head >> 32) as u32;
        (self.revision.load(Ordering::Relaxed) == revision)
            .then(|| Setting { limit: Compiled::from_words(&words), changed_at })
    }

    /// How the entries of a limit are to be read. This never changes once there are entries.
    pub(crate) fn kind(&self, limit: u8) -> Kind {
        let Some(cell) = self.cells.get(usize::from(limit)) else { return Kind::None };
        let [head, ..] = version(cell, self.revision());
        kind_of(head.load(Ordering::Relaxed))
    }

    /// Writes the limits of a gate that no other thread knows yet.
    pub(crate) fn init(&self, limits: impl Iterator<Item = Compiled>) {
        for (cell, limit) in self.cells.iter().zip(limits) {
            store(version(cell, self.revision()), limit.to_words(limit.kind()));
        }
    }

    /// Puts another limit in force. Not by two threads at once.
    pub(crate) fn write(&self, limit: u8, changed: &Compiled) -> Result<(), ConfigError> {
        if usize::from(limit) >= self.cells.len() {
            return Err(ConfigError { limit: Some(limit), ..ConfigError::of(Field::RuleLimit) });
        }
        let kind = match (self.kind(limit), changed.kind()) {
            (kind, Kind::None) | (Kind::None, kind) => kind,
            (old, new) if old == new => old,
            _ => return Err(ConfigError { limit: Some(limit), ..ConfigError::of(Field::Kind) }),
        };
        let revision = self.revision.load(Ordering::Relaxed);
        let next = revision.wrapping_add(1);
        // Release: pairs with the Acquire fence in `read`. A reader of anything that is written
        // below also sees the present revision, and knows its version to be overwritten.
        fence(Ordering::Release);
        for (n, cell) in self.cells.iter().enumerate() {
            let words = if n == usize::from(limit) {
                let mut words = changed.to_words(kind);
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
        Ok(())
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
