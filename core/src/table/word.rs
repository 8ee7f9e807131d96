//! The two words of a slot, taken apart.
use crate::key::STORED_BITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
pub(super) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
pub(super) const PAYLOAD_MASK: u128 = (1 << PAYLOAD_BITS) - 1;
const TAG_MASK: u128 = (1 << (128 - GENERATION_BITS)) - 1;

/// The payload of an entry that nobody has charged: of every kind of limit, the state at rest.
pub(super) const FRESH: u128 = 0;

/// A state word, taken apart on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u128);

impl Word {
    pub(super) fn new(phase: Phase, generation: u32, payload: u128) -> Self {
        Self(
            (phase as u128) << 126
                | u128::from(generation & GENERATION_MASK) << PAYLOAD_BITS
                | payload & PAYLOAD_MASK,
        )
    }

    pub(super) fn phase(self) -> Phase {
        match self.0 >> 126 {
            0 => Phase::Empty,
            1 => Phase::Claimed,
            2 => Phase::Join,
            _ => Phase::Live,
        }
    }

    pub(super) fn is_entry(self) -> bool {
        self.0 >> 127 == 1
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> PAYLOAD_BITS) as u32 & GENERATION_MASK
    }

    pub(super) fn next_generation(self) -> u32 {
        (self.generation() + 1) & GENERATION_MASK
    }

    pub(super) fn payload(self) -> u128 {
        self.0 & PAYLOAD_MASK
    }

    /// The key word of the entry `tag` in this state's generation.
    pub(super) fn keyword(self, tag: u128) -> u128 {
        u128::from(self.generation()) << (128 - GENERATION_BITS) | tag
    }

    pub(super) fn emptied(self) -> Self {
        Self::new(Phase::Empty, self.next_generation(), 0)
    }
}

/// Whether generation `a` is not older than `b`, with wrap-around.
pub(super) fn not_older(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) & GENERATION_MASK < 1 << (GENERATION_BITS - 1)
}

/// The generation that a key word was written for.
pub(super) fn generation_of(keyword: u128) -> u32 {
    (keyword >> (128 - GENERATION_BITS)) as u32
}

/// The limit of the entry that a key word names.
pub(super) fn limit_of(keyword: u128) -> u8 {
    ((keyword & TAG_MASK) >> STORED_BITS) as u8
}
