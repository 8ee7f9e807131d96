//! Time as the engine counts it: nanoseconds outside, ticks of 2^-32 ns inside.

/// Times are below this many nanoseconds (2^61, 73 years from the clock's zero).
pub const TIME_LIMIT_NS: u64 = 1 << 61;

const TICK_BITS: u32 = 32;

/// The instant of one operation. The engine reads no clock: time is always an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds of a monotonic clock, below [`TIME_LIMIT_NS`].
    pub now_ns: u64,
    /// Nanoseconds since the Unix epoch. Only limits in calendar windows look at it.
    pub unix_ns: u64,
}

impl Time {
    /// An instant of the monotonic clock, for gates in which no limit looks at the calendar.
    pub const fn at(now_ns: u64) -> Self {
        Self { now_ns, unix_ns: 0 }
    }

    /// Whether the engine can reckon with it.
    pub const fn is_in_range(&self) -> bool {
        self.now_ns < TIME_LIMIT_NS
    }
}

/// From when on a state is at rest, by the clock that it goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// By [`Time::now_ns`].
    Monotonic { from_ns: u64 },
    /// By [`Time::unix_ns`].
    Unix { from_ns: u64 },
}

impl Rest {
    /// How long it is until then.
    pub(crate) fn wait_ns(self, time: Time) -> u64 {
        let (from_ns, now_ns) = self.both(time);
        from_ns.saturating_sub(now_ns)
    }

    /// How long ago that was.
    pub(crate) fn age_ns(self, time: Time) -> u64 {
        let (from_ns, now_ns) = self.both(time);
        now_ns.saturating_sub(from_ns)
    }

    fn both(self, time: Time) -> (u64, u64) {
        match self {
            Self::Monotonic { from_ns } => (from_ns, time.now_ns),
            Self::Unix { from_ns } => (from_ns, time.unix_ns),
        }
    }
}

/// Nanoseconds as ticks.
#[inline]
pub(crate) const fn ticks(ns: u64) -> u128 {
    (ns as u128) << TICK_BITS
}

/// Ticks below 2^96 as nanoseconds, rounded up.
#[inline]
pub(crate) const fn ceil_ns(ticks: u128) -> u64 {
    ((ticks >> TICK_BITS) as u64).saturating_add((ticks as u32 != 0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_nanosecond_counts_as_a_whole_one() {
        assert_eq!(ceil_ns(0), 0);
        assert_eq!(ceil_ns(1), 1);
        assert_eq!(ceil_ns(ticks(5)), 5);
        assert_eq!(ceil_ns(ticks(5) + 1), 6);
        assert_eq!(ceil_ns(ticks(6) - 1), 6);
    }

    #[test]
    fn ticks_beyond_every_clock_saturate() {
        assert_eq!(ceil_ns(ticks(u64::MAX)), u64::MAX);
        assert_eq!(ceil_ns(ticks(u64::MAX) + 1), u64::MAX);
    }
}
