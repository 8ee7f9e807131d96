//! The kinds of limits: what each is configured with, and how its states are read.
//!
//! The table knows of a state only when it comes to rest; that question is answered here.
use crate::concurrency::{Concurrency, ConcurrencyLimit};
use crate::config::{ConfigError, Field};
use crate::quota::{self, Allowance, Quota};
use crate::rate::{self, Rate, RateLimit};
use crate::time::Rest;

mod words;

pub(crate) use words::{WORDS, rate_of, switched_off};

/// One limit of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Admits everything and keeps nothing, explicitly.
    Off,
    /// A token bucket.
    Rate(RateLimit),
    /// So many calls at once, with a breaker.
    Concurrency(ConcurrencyLimit),
    /// So many units in a window of the calendar.
    Quota(Quota),
}

/// A limit made ready for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiled {
    Off,
    Rate(Rate),
    Concurrency(Concurrency),
    Quota(Allowance),
}

/// How an entry's payload is to be read. A limit that is switched off keeps its kind, and with it
/// what its callers owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never been anything but off: has no entries.
    None = 0,
    Rate = 1,
    Concurrency = 2,
    Quota = 3,
}

impl Compiled {
    pub(crate) fn new(limit: &Limit) -> Result<Self, ConfigError> {
        match limit {
            Limit::Off => Ok(Self::Off),
            Limit::Rate(limit) => Rate::new(limit).map(Self::Rate),
            Limit::Concurrency(limit) => Concurrency::new(limit).map(Self::Concurrency),
            Limit::Quota(limit) => Allowance::new(limit).map(Self::Quota),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Off => Kind::None,
            Self::Rate(_) => Kind::Rate,
            Self::Concurrency(_) => Kind::Concurrency,
            Self::Quota(_) => Kind::Quota,
        }
    }

    /// When an entry of this limit is at rest.
    pub(crate) fn rest(&self, payload: u128) -> Rest {
        match self {
            Self::Off => Rest::Monotonic { from_ns: 0 },
            Self::Rate(_) => Rest::Monotonic { from_ns: rate::at_rest_from_ns(payload) },
            Self::Concurrency(guard) => Rest::Monotonic { from_ns: guard.at_rest_from_ns(payload) },
            Self::Quota(_) => Rest::Unix { from_ns: quota::at_rest_from_unix_ns(payload) },
        }
    }

    /// Whether this may take the place of `old`, whose entries it will read.
    pub(crate) fn may_follow(&self, old: &Self) -> Result<(), Field> {
        match (old, self) {
            (Self::Off, _) | (_, Self::Off) => Ok(()),
            // Its entries are reckoned in epochs of the lease.
            (Self::Concurrency(old), Self::Concurrency(new))
                if old.limit.lease_ns != new.limit.lease_ns =>
            {
                Err(Field::LeaseNs)
            }
            (old, new) if old.kind() == new.kind() => Ok(()),
            _ => Err(Field::Kind),
        }
    }
}
