//! Limits as the words of a cell.
//!
//! The masks on the way back change nothing that was stored; they keep the arithmetic in its
//! bounds whatever else has written to the gate's memory.
use super::{Compiled, Kind};
use crate::concurrency::{Concurrency, ConcurrencyLimit, Layout};
use crate::quota::{Allowance, Cycle};
use crate::rate::{Divisor, Rate};

pub(crate) const WORDS: usize = 8;

/// In the head, of which the upper half is the cell's: the kind in the lowest byte, then this.
/// Where it is set, the other words are the limit's from before it was switched off.
const OFF_BIT: u64 = 1 << 8;

impl Kind {
    fn of(head: u64) -> Self {
        match head as u8 {
            1 => Self::Rate,
            2 => Self::Concurrency,
            3 => Self::Quota,
            _ => Self::None,
        }
    }
}

/// The same limit, switched off.
pub(crate) fn switched_off(mut words: [u64; WORDS]) -> [u64; WORDS] {
    let [head, ..] = &mut words;
    *head = u64::from(*head as u32) | OFF_BIT;
    words
}

impl Compiled {
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let kind = self.kind() as u64;
        match self {
            Self::Off => [kind | OFF_BIT, 0, 0, 0, 0, 0, 0, 0],
            Self::Rate(Rate { interval, tau, burst, divisor }) => [
                kind | u64::from(divisor.before) << 16 | u64::from(divisor.after) << 24,
                interval as u64,
                (interval >> 64) as u64,
                tau as u64,
                (tau >> 64) as u64,
                burst,
                divisor.reciprocal,
                0,
            ],
            Self::Concurrency(Concurrency { limit, layout }) => [
                kind | u64::from(layout.epoch_bits) << 16 | u64::from(layout.time_bits) << 24,
                limit.lease_ns,
                limit.cooldown_ns,
                pair(limit.max_in_flight, limit.half_open_probes),
                pair(limit.reject_trip, limit.failure_trip),
                0,
                0,
                0,
            ],
            Self::Quota(Allowance { limit, cycle, must_seed }) => {
                let Cycle { period_s, start_s } =
                    cycle.unwrap_or(Cycle { period_s: 0, start_s: 0 });
                [kind | u64::from(must_seed) << 16, limit, period_s, start_s, 0, 0, 0, 0]
            }
        }
    }

    /// What a limit decides by.
    pub(crate) fn from_words(words: &[u64; WORDS]) -> Self {
        let [head, ..] = *words;
        if head & OFF_BIT != 0 { Self::Off } else { Self::kept(words) }
    }

    /// What a limit's entries are read by, also where it is off.
    pub(crate) fn kept(words: &[u64; WORDS]) -> Self {
        let [head, ..] = *words;
        match Kind::of(head) {
            Kind::None => Self::Off,
            Kind::Rate => Self::Rate(rate(words)),
            Kind::Concurrency => Self::Concurrency(concurrency(words)),
            Kind::Quota => Self::Quota(allowance(words)),
        }
    }
}

/// The rate limit that the words are of, if they are and it is not off.
#[inline]
pub(crate) fn rate_of(words: &[u64; WORDS]) -> Option<Rate> {
    let [head, ..] = *words;
    (head as u16 == Kind::Rate as u16).then(|| rate(words))
}

#[inline]
fn rate(words: &[u64; WORDS]) -> Rate {
    let [head, interval_lo, interval_hi, tau_lo, tau_hi, burst, reciprocal, _] = *words;
    let interval = wide(interval_hi & ((1 << 30) - 1), interval_lo);
    let [_, _, before, after, ..] = head.to_le_bytes();
    Rate {
        interval,
        tau: wide(tau_hi & ((1 << 30) - 1), tau_lo),
        burst,
        divisor: Divisor::from_parts(interval, reciprocal, before.into(), after.into()),
    }
}

fn concurrency(words: &[u64; WORDS]) -> Concurrency {
    let [head, lease_ns, cooldown_ns, places, trips, ..] = *words;
    let [_, _, epoch_bits, time_bits, ..] = head.to_le_bytes();
    let limit = ConcurrencyLimit {
        max_in_flight: places as u32 & 0xfff,
        lease_ns,
        reject_trip: trips as u32 & 0x3f,
        failure_trip: (trips >> 32) as u32 & 0x3f,
        cooldown_ns,
        half_open_probes: (places >> 32) as u32 & 0xf,
    };
    Concurrency { limit, layout: Layout::from_parts(epoch_bits.into(), time_bits.into()) }
}

fn allowance(words: &[u64; WORDS]) -> Allowance {
    let [head, limit, period_s, start_s, ..] = *words;
    let [_, _, must_seed, ..] = head.to_le_bytes();
    Allowance {
        limit: limit & ((1 << 48) - 1),
        cycle: Cycle::new(period_s, start_s),
        must_seed: must_seed != 0,
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn wide(hi: u64, lo: u64) -> u128 {
    u128::from(hi) << 64 | u128::from(lo)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::quota::{Quota, Windows};
    use crate::rate::RateLimit;
    use crate::time::TIME_LIMIT_NS;

    fn guard(max_in_flight: u32, lease_ns: u64, cooldown_ns: u64) -> Limit {
        Limit::Concurrency(ConcurrencyLimit {
            max_in_flight,
            lease_ns,
            reject_trip: 63,
            failure_trip: 1,
            cooldown_ns,
            half_open_probes: 15,
        })
    }

    fn quota(limit: u64, windows: Windows, must_seed: bool) -> Limit {
        Limit::Quota(Quota { limit, windows, must_seed })
    }

    #[test]
    fn words_hold_every_limit() {
        for limit in [
            Limit::Rate(RateLimit { count: 30, period_ns: 1_000_000_000, burst: 60 }),
            Limit::Rate(RateLimit { count: 1, period_ns: TIME_LIMIT_NS, burst: 1 }),
            Limit::Rate(RateLimit { count: u64::MAX, period_ns: 1, burst: u64::MAX }),
            guard(1, 1_000_000, 50_000_000_000),
            Limit::Concurrency(ConcurrencyLimit {
                max_in_flight: 0x555,
                lease_ns: 60_000_000_000,
                reject_trip: 0x15,
                failure_trip: 0x2a,
                cooldown_ns: 1_000_000_000,
                half_open_probes: 5,
            }),
            guard(4095, TIME_LIMIT_NS, TIME_LIMIT_NS),
            quota(1 << 47, Windows::ByHost, true),
            quota(1, Windows::Every { period_s: 1 << 33, anchor_unix_s: i64::MIN }, false),
        ] {
            let compiled = Compiled::new(&limit).unwrap();
            let words = compiled.to_words();
            assert_eq!(Compiled::from_words(&words), compiled);
            let off = switched_off(words);
            assert_eq!(Compiled::from_words(&off), Compiled::Off);
            assert_eq!(Compiled::kept(&off), compiled, "off keeps how its entries are read");
        }
        assert_eq!(Compiled::from_words(&Compiled::Off.to_words()), Compiled::Off);
    }
}
