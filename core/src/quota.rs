//! The quota: units in a window of the calendar, as pure steps.
//!
//! The state is the end of the window that it belongs to, what was used in it, and whether a
//! ledger has told what was used before. It belongs to that window until the wall clock has passed
//! its end, whatever is configured meanwhile and whatever slower clocks say; then it is at rest.
use crate::config::{ConfigError, Field};
use crate::permit::Outcome;

/// `limit` units in each window of the calendar, for costs that are known only afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Units in a window, 1 to 2^47.
    pub limit: u64,
    /// Where windows begin and end.
    pub windows: Windows,
    /// Whether calls are refused until [`Gate::seed`](crate::Gate::seed) has told, for the caller
    /// and the window, what was used before.
    pub must_seed: bool,
}

/// Where the windows of a quota begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// One after the other, each of the same length.
    Every {
        /// Their length in seconds, 1 to 2^33. A day has 86,400.
        period_s: u64,
        /// When one of them begins, in seconds since the Unix epoch. Midnight at an offset of h
        /// hours east of Greenwich is -3600 h.
        anchor_unix_s: i64,
    },
    /// As the host says by [`Gate::set_window`](crate::Gate::set_window): it knows time zones and
    /// daylight saving. Days in UTC until it has.
    ByHost,
}

const UNITS_MAX: u64 = 1 << 47;
const PERIOD_S_MAX: u64 = 1 << 33;
const DAY_S: u64 = 86_400;
const SECOND_NS: u64 = 1_000_000_000;

/// Seconds since the Unix epoch at which a window can end: 64 bits of nanoseconds, and the longest
/// period.
const END_BITS: u32 = 35;
const END_MASK: u64 = (1 << END_BITS) - 1;
const USED_SHIFT: u32 = END_BITS + 1;

/// A quota made ready for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) limit: u64,
    /// `None`: the host's.
    pub(crate) cycle: Option<Cycle>,
    pub(crate) must_seed: bool,
}

/// Windows of one length that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cycle {
    /// At least 1.
    pub(crate) period_s: u64,
    /// When one of them begins, below the period.
    pub(crate) start_s: u64,
}

/// What a call that reserves units is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted,
    UsedUp,
    Unseeded,
    Never,
}

/// What came of reserving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    pub(crate) answer: Answer,
    pub(crate) remaining: u64,
    /// When the window ends, in seconds since the Unix epoch.
    pub(crate) end_s: u64,
}

/// A caller's state, unpacked. Any 102 bits are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Account {
    end_s: u64,
    is_seeded: bool,
    used: u64,
}

impl Account {
    fn unpack(payload: u128) -> Self {
        Self {
            end_s: payload as u64 & END_MASK,
            is_seeded: payload >> END_BITS & 1 == 1,
            used: (payload >> USED_SHIFT) as u64,
        }
    }

    fn pack(self) -> u128 {
        u128::from(self.used) << USED_SHIFT
            | u128::from(self.is_seeded) << END_BITS
            | u128::from(self.end_s & END_MASK)
    }
}

impl Cycle {
    /// Days in UTC.
    pub(crate) const DAYS: Self = Self { period_s: DAY_S, start_s: 0 };

    pub(crate) fn new(period_s: u64, start_s: u64) -> Option<Self> {
        let in_range = (1..=PERIOD_S_MAX).contains(&period_s);
        in_range.then(|| Self { period_s, start_s: start_s % period_s })
    }

    /// When the window ends in which that second lies.
    fn end_s(self, unix_s: u64) -> u64 {
        // Both are below 2^35, whatever was stored, and the period is at least 1.
        let since_s = unix_s.wrapping_add(self.period_s).wrapping_sub(self.start_s);
        let into_s = since_s.checked_rem(self.period_s).unwrap_or(0);
        unix_s.wrapping_sub(into_s).wrapping_add(self.period_s)
    }
}

impl Allowance {
    pub(crate) fn new(quota: &Quota) -> Result<Self, ConfigError> {
        if quota.limit == 0 || quota.limit > UNITS_MAX {
            return Err(ConfigError::of(Field::Limit));
        }
        let cycle = match quota.windows {
            Windows::ByHost => None,
            Windows::Every { period_s, anchor_unix_s } => {
                if period_s == 0 || period_s > PERIOD_S_MAX {
                    return Err(ConfigError::of(Field::PeriodS));
                }
                let start_s = anchor_unix_s.rem_euclid(period_s.cast_signed()).unsigned_abs();
                Cycle::new(period_s, start_s)
            }
        };
        Ok(Self { limit: quota.limit, cycle, must_seed: quota.must_seed })
    }

    /// The account as it is at that time: of the window that the state belongs to, or where that
    /// is over, a new one.
    fn at(&self, payload: u128, unix_ns: u64) -> Account {
        let account = Account::unpack(payload);
        let second = unix_ns / SECOND_NS;
        if second < account.end_s {
            return account;
        }
        let end_s = self.cycle.unwrap_or(Cycle::DAYS).end_s(second);
        Account { end_s, is_seeded: false, used: 0 }
    }

    /// Sets units aside, or says why not; and what the state becomes, where it changes.
    pub(crate) fn reserve(
        &self,
        payload: u128,
        unix_ns: u64,
        units: u64,
    ) -> (Option<u128>, Reserved) {
        let mut account = self.at(payload, unix_ns);
        let left = self.limit.saturating_sub(account.used);
        let answer = if units > self.limit {
            Answer::Never
        } else if self.must_seed && !account.is_seeded {
            Answer::Unseeded
        } else if left == 0 || units > left {
            Answer::UsedUp
        } else {
            account.used += units;
            Answer::Admitted
        };
        let remaining = self.limit.saturating_sub(account.used);
        let reserved = Reserved { answer, remaining, end_s: account.end_s };
        // Also a reserve of nothing makes an entry, so that its settlement finds one.
        let is_kept = answer == Answer::Admitted && account.pack() != payload;
        (is_kept.then(|| account.pack()), reserved)
    }

    /// Adds what a ledger knows to have been used before, once in a window. `None`: it was told.
    pub(crate) fn seed(&self, payload: u128, unix_ns: u64, used: u64) -> Option<u128> {
        let mut account = self.at(payload, unix_ns);
        if account.is_seeded {
            return None;
        }
        account.is_seeded = true;
        account.used = account.used.saturating_add(used);
        Some(account.pack())
    }
}

/// A reservation as a permit keeps it; never 0.
pub(crate) fn mark(end_s: u64) -> u64 {
    1 << 63 | end_s & END_MASK
}

/// Replaces a reservation by what was used. `None`: its window has given way to another, which it
/// does not touch.
pub(crate) fn settle(
    payload: u128,
    mark: u64,
    reserve: u64,
    outcome: Outcome,
    used: u64,
) -> Option<u128> {
    let mut account = Account::unpack(payload);
    if mark >> 63 == 0 || account.end_s != mark & END_MASK {
        return None;
    }
    let used = match outcome {
        Outcome::Cancelled => 0,
        // Its client went away before anybody could know.
        Outcome::Abandoned if used == 0 => reserve,
        _ => used,
    };
    account.used = account.used.saturating_sub(reserve).saturating_add(used);
    Some(account.pack())
}

/// The nanosecond of the wall clock from which a state is at rest.
pub(crate) fn at_rest_from_unix_ns(payload: u128) -> u64 {
    Account::unpack(payload).end_s.saturating_mul(SECOND_NS)
}

/// How long it is until that second.
pub(crate) fn until_ns(end_s: u64, unix_ns: u64) -> u64 {
    end_s.saturating_mul(SECOND_NS).saturating_sub(unix_ns)
}

#[cfg(test)]
mod tests;
