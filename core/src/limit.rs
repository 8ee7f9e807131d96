//! The kinds of limits: what each is configured with, and how its states are read.
//!
//! The table knows of a state only when it comes to rest; that question is answered here.
use crate::config::ConfigError;
use crate::rate::{self, Divisor, Rate, RateLimit};

/// One limit of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Admits everything and keeps nothing, explicitly.
    Off,
    /// A token bucket.
    Rate(RateLimit),
}

/// A limit made ready for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    Off,
    Rate(Rate),
}

/// How an entry's payload is to be read. A limit that is switched off keeps its kind, and with it
/// the debts of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never been anything but off: has no entries.
    None = 0,
    Rate = 1,
}

impl Kind {
    /// The nanosecond from which an entry of this kind is at rest.
    pub(crate) fn at_rest_from_ns(self, payload: u128) -> u64 {
        match self {
            Self::None => 0,
            Self::Rate => rate::at_rest_from_ns(payload),
        }
    }
}

pub(crate) const WORDS: usize = 8;

const OFF_BIT: u64 = 1 << 8;

impl Compiled {
    pub(crate) fn new(limit: &Limit) -> Result<Self, ConfigError> {
        match limit {
            Limit::Off => Ok(Self::Off),
            Limit::Rate(limit) => Rate::new(limit).map(Self::Rate),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Off => Kind::None,
            Self::Rate(_) => Kind::Rate,
        }
    }

    /// As the words of a cell, of which the first leaves its upper half to the cell.
    pub(crate) fn to_words(self, kind: Kind) -> [u64; WORDS] {
        match self {
            Self::Off => [kind as u64 | OFF_BIT, 0, 0, 0, 0, 0, 0, 0],
            Self::Rate(Rate { interval, tau, burst, divisor }) => [
                kind as u64 | u64::from(divisor.before) << 16 | u64::from(divisor.after) << 24,
                interval as u64,
                (interval >> 64) as u64,
                tau as u64,
                (tau >> 64) as u64,
                burst,
                divisor.reciprocal,
                0,
            ],
        }
    }

    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let [head, interval_lo, interval_hi, tau_lo, tau_hi, burst, reciprocal, _] = *words;
        if head & OFF_BIT != 0 || kind_of(head) == Kind::None {
            return Self::Off;
        }
        // The masks change nothing that was stored; they keep the arithmetic in its bounds
        // whatever else has written to the gate's memory.
        let interval = wide(interval_hi & ((1 << 30) - 1), interval_lo);
        let [_, _, before, after, ..] = head.to_le_bytes();
        Self::Rate(Rate {
            interval,
            tau: wide(tau_hi & ((1 << 30) - 1), tau_lo),
            burst,
            divisor: Divisor::from_parts(interval, reciprocal, before.into(), after.into()),
        })
    }
}

pub(crate) fn kind_of(head: u64) -> Kind {
    if head as u8 == Kind::Rate as u8 { Kind::Rate } else { Kind::None }
}

fn wide(hi: u64, lo: u64) -> u128 {
    u128::from(hi) << 64 | u128::from(lo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::TIME_LIMIT_NS;

    #[test]
    fn words_hold_every_limit() {
        for limit in [
            Limit::Off,
            Limit::Rate(RateLimit { count: 30, period_ns: 1_000_000_000, burst: 60 }),
            Limit::Rate(RateLimit { count: 1, period_ns: TIME_LIMIT_NS, burst: 1 }),
            Limit::Rate(RateLimit { count: u64::MAX, period_ns: 1, burst: u64::MAX }),
        ] {
            let compiled = Compiled::new(&limit).unwrap();
            let words = compiled.to_words(Kind::Rate);
            assert_eq!(Compiled::from_words(&words), compiled);
            assert_eq!(kind_of(words[0]), Kind::Rate, "off keeps the kind");
        }
    }
}
