//! The rate limit: a token bucket, kept as its theoretical arrival time (GCRA; ITU-T I.371).
//!
//! Pure arithmetic, exact to the tick. The one word of state, `tat`, is the time in ticks at which
//! the bucket is full again; a bucket is at rest where that is not in the future.
use crate::config::{ConfigError, Field};
use crate::time::{TIME_LIMIT_NS, ceil_ns, ticks};

/// `count` tokens a `period_ns`, of which `burst` can be saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Tokens that come back in each period, at least 1.
    pub count: u64,
    /// The period in nanoseconds, at least 1.
    pub period_ns: u64,
    /// What a full bucket holds, at least 1. Filling it from empty takes at most 2^61 ns.
    pub burst: u64,
}

/// A rate limit made ready for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// T: the emission interval, in ticks; below 2^94.
    pub(crate) interval: u128,
    /// tau: what a full bucket holds, in ticks; at most 2^93.
    pub(crate) tau: u128,
    pub(crate) burst: u64,
    pub(crate) divisor: Divisor,
}

/// All ticks that a `tat` can have: it is at most 2^62 ns.
const TICKS_MASK: u128 = (1 << 95) - 1;

/// What a bucket looks like at one instant, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// What it still has.
    credit: u128,
    /// What it is short of being full.
    debt: u128,
}

/// The same in tokens, and in nanoseconds until it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) remaining: u64,
    pub(crate) reset_after_ns: u64,
}

/// What a charge comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// There is room; the bucket's next `tat`.
    Admitted(u128),
    /// There will be room after this many nanoseconds, at least 1.
    Refused { retry_after_ns: u64 },
    /// A full bucket holds less than this.
    Never,
}

impl Rate {
    pub(crate) fn new(limit: &RateLimit) -> Result<Self, ConfigError> {
        let RateLimit { count, period_ns, burst } = *limit;
        for (value, field) in
            [(count, Field::Count), (period_ns, Field::PeriodNs), (burst, Field::Burst)]
        {
            if value == 0 {
                return Err(ConfigError::of(field));
            }
        }
        let interval = ticks(period_ns).div_ceil(u128::from(count));
        match interval.checked_mul(u128::from(burst)) {
            Some(tau) if tau <= ticks(TIME_LIMIT_NS) => {
                Ok(Self { interval, tau, burst, divisor: Divisor::new(interval, tau) })
            }
            _ => Err(ConfigError::of(Field::Burst)),
        }
    }

    /// Takes `cost` tokens at `now_ns`, or says when that can be done; and what the bucket looks
    /// like after that. Changes nothing itself.
    #[inline(always)]
    pub(crate) fn charge(&self, tat: u128, now_ns: u64, cost: u64) -> (Charge, Balance) {
        let now = ticks(now_ns);
        let ceiling = now + self.tau;
        let tat = tat.max(now);
        let (charge, tat) = if cost > self.burst {
            (Charge::Never, tat)
        } else {
            let next = tat + self.amount(cost);
            if next <= ceiling {
                (Charge::Admitted(next), next)
            } else {
                (Charge::Refused { retry_after_ns: ceil_ns(next - ceiling) }, tat)
            }
        };
        (charge, Balance { credit: ceiling.saturating_sub(tat), debt: tat - now })
    }

    /// Gives back a charge of `cost` made at `stamp_ns`: what time has not given back already.
    ///
    /// The bucket's level does not enter into how much that is, so that no sequence of refunds
    /// and charges mints a token.
    pub(crate) fn refund(&self, tat: u128, now_ns: u64, cost: u64, stamp_ns: u64) -> u128 {
        let now = ticks(now_ns);
        let amount = self.amount(cost.min(self.burst));
        let outstanding = (ticks(stamp_ns) + amount).saturating_sub(now);
        tat.saturating_sub(amount.min(outstanding)).max(now).min(tat)
    }

    /// What becomes of a bucket at `now_ns` whose limit was `old` so far. Its debt stays, in time; but
    /// where a token takes longer now, that would be fewer of them, and the rest a new burst: so a
    /// bucket has at most the tokens that it had, and those by which the burst is larger. It gets no
    /// deeper in debt than this limit can express.
    pub(crate) fn follow(&self, old: &Self, tat: u128, now_ns: u64) -> u128 {
        let now = ticks(now_ns);
        let debt = tat.saturating_sub(now);
        if debt == 0 {
            return tat;
        }
        let owed = if self.interval > old.interval {
            old.tokens(debt).saturating_sub(old.burst.saturating_sub(self.burst))
        } else {
            0
        };
        now + self.amount(owed).max(debt).min(self.tau)
    }

    /// A debt in tokens, rounded up.
    fn tokens(&self, debt: u128) -> u64 {
        let debt = debt.min(self.tau);
        let whole = self.divisor.divide(debt);
        whole.saturating_add((self.amount(whole) < debt).into())
    }

    #[inline(always)]
    pub(crate) fn level(&self, Balance { credit, debt }: Balance) -> Level {
        Level { remaining: self.divisor.divide(credit), reset_after_ns: ceil_ns(debt) }
    }

    /// At most `tau`: callers have compared `cost` with `burst`. It wraps only where foreign hands
    /// have been at the gate's memory.
    fn amount(&self, cost: u64) -> u128 {
        self.interval.wrapping_mul(u128::from(cost)) & TICKS_MASK
    }
}

/// The nanosecond from which a bucket is at rest.
pub(crate) const fn at_rest_from_ns(tat: u128) -> u64 {
    ceil_ns(tat)
}

/// Division by one fixed divisor: a multiplication by its reciprocal and a correction, exact
/// (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994), for a
/// 128-bit division costs more than the rest of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    value: u128,
    /// floor(2^127 / n), where n is `value` shifted and rounded up to have its top bit at 63.
    pub(crate) reciprocal: u64,
    /// By how much a dividend is shifted so that the largest fits 64 bits.
    pub(crate) before: u32,
    /// By how much the product is shifted then.
    pub(crate) after: u32,
}

impl Divisor {
    const CORRECTIONS_MAX: u32 = 8;

    /// For dividends of at most `most`, which is at least `value` and less than 2^64 times it;
    /// `value` is at least 1, and both are below 2^94.
    fn new(value: u128, most: u128) -> Self {
        let exponent = value.max(1).ilog2();
        let normal = if exponent <= 63 {
            value << (63 - exponent)
        } else {
            let shift = exponent - 63;
            (value >> shift) + u128::from(value.trailing_zeros() < shift)
        };
        let reciprocal = ((1 << 127) / normal.max(1)).min(u128::from(u64::MAX)) as u64;
        let before = most.max(1).ilog2().saturating_sub(63);
        Self { value, reciprocal, before, after: 64 + exponent - before }
    }

    pub(crate) fn from_parts(value: u128, reciprocal: u64, before: u32, after: u32) -> Self {
        Self { value, reciprocal, before: before & 63, after: after & 127 }
    }

    /// floor(dividend / value)
    #[inline(always)]
    fn divide(&self, dividend: u128) -> u64 {
        let top = (dividend >> self.before) as u64;
        let product = u128::from(top) * u128::from(self.reciprocal);
        // Rounded down thrice, so never above the quotient and at most a few below it.
        let mut quotient = (product >> self.after) as u64;
        let mut rest = dividend.wrapping_sub(self.value.wrapping_mul(u128::from(quotient)));
        for _ in 0..Self::CORRECTIONS_MAX {
            if rest < self.value {
                break;
            }
            rest -= self.value;
            quotient = quotient.wrapping_add(1);
        }
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// A quotient of which `value` times as much is about what a bucket can hold at most.
    fn within_tau(quotient: u64, value: u128) -> u64 {
        let most = ((1 << 94) - 1) / value;
        u64::try_from(most).map_or(quotient, |most| quotient.min(most)).min(u64::MAX - 1)
    }

    fn rate(count: u64, period_ns: u64, burst: u64) -> Rate {
        Rate::new(&RateLimit { count, period_ns, burst }).unwrap()
    }

    fn charge(rate: &Rate, tat: u128, now_ns: u64, cost: u64) -> Charge {
        rate.charge(tat, now_ns, cost).0
    }

    #[test]
    fn waiting_exactly_as_told_is_enough_and_a_nanosecond_less_is_not() {
        let rate = rate(3, SECOND, 1);
        let Charge::Admitted(tat) = charge(&rate, 0, 0, 1) else {
            panic!("an idle bucket is full")
        };
        let Charge::Refused { retry_after_ns } = charge(&rate, tat, 0, 1) else {
            panic!("drained")
        };
        assert_eq!(retry_after_ns, 333_333_334);
        assert!(matches!(charge(&rate, tat, retry_after_ns, 1), Charge::Admitted(_)));
        assert_eq!(
            charge(&rate, tat, retry_after_ns - 1, 1),
            Charge::Refused { retry_after_ns: 1 }
        );
    }

    #[test]
    fn a_cost_above_the_burst_never_fits() {
        assert_eq!(charge(&rate(1, SECOND, 10), 0, 0, 11), Charge::Never);
        assert_eq!(charge(&rate(1, SECOND, 10), 0, 0, u64::MAX), Charge::Never);
    }

    #[test]
    fn the_level_is_that_after_the_charge_or_without_one_where_it_is_refused() {
        let rate = rate(1, SECOND, 10);
        let level = |tat_s, now_s, cost| {
            let (charge, balance) = rate.charge(ticks(tat_s * SECOND), now_s * SECOND, cost);
            let Level { remaining, reset_after_ns } = rate.level(balance);
            (matches!(charge, Charge::Admitted(_)), remaining, reset_after_ns / SECOND)
        };
        assert_eq!(level(0, 20, 3), (true, 7, 3), "full before");
        assert_eq!(level(24, 20, 3), (true, 3, 7));
        assert_eq!(level(24, 20, 0), (true, 6, 4));
        assert_eq!(level(24, 20, 7), (false, 6, 4));
        assert_eq!(level(24, 20, 11), (false, 6, 4), "more than it ever holds");
        assert_eq!(level(35, 20, 0), (false, 0, 15), "deeper in debt than it can get");
    }

    #[test]
    fn the_largest_bucket_does_not_overflow() {
        let rate = rate(1, TIME_LIMIT_NS, 1);
        let now_ns = TIME_LIMIT_NS - 1;
        let Charge::Admitted(tat) = charge(&rate, 0, now_ns, 1) else { panic!("an idle bucket") };
        assert_eq!(
            charge(&rate, tat, now_ns, 1),
            Charge::Refused { retry_after_ns: TIME_LIMIT_NS }
        );
        assert!(tat < 1 << 94, "a tat fits 62.32 bits");
    }

    #[test]
    fn errors_name_the_field() {
        let field = |count, period_ns, burst| {
            Rate::new(&RateLimit { count, period_ns, burst }).unwrap_err().field
        };
        assert_eq!(field(0, 1, 1), Field::Count);
        assert_eq!(field(1, 0, 1), Field::PeriodNs);
        assert_eq!(field(1, 1, 0), Field::Burst);
        assert_eq!(field(1, TIME_LIMIT_NS, 2), Field::Burst);
        assert_eq!(field(1, u64::MAX, u64::MAX), Field::Burst);
    }

    #[test]
    fn a_debt_is_kept_in_time_and_a_bucket_gets_no_tokens_by_it() {
        let at = |old: &Rate, new: &Rate, debt_ns| {
            new.follow(old, ticks(5 * SECOND + debt_ns), 5 * SECOND) - ticks(5 * SECOND)
        };
        let (fast, slow) = (rate(10, SECOND, 20), rate(1, SECOND, 20));
        assert_eq!(at(&fast, &slow, 2 * SECOND), ticks(20 * SECOND), "drained");
        assert_eq!(at(&fast, &slow, 300_000_000), ticks(3 * SECOND));
        assert_eq!(at(&fast, &slow, 300_000_001), ticks(4 * SECOND), "a part is one");
        assert_eq!(at(&fast, &slow, 9 * SECOND), ticks(20 * SECOND), "deeper than it could get");
        assert_eq!(
            at(&fast, &rate(1, SECOND, 90), 50 * SECOND),
            ticks(50 * SECOND),
            "deeper still"
        );
        assert_eq!(at(&fast, &rate(1, SECOND, 5), 2 * SECOND), ticks(5 * SECOND));
        assert_eq!(at(&fast, &rate(1, SECOND, 5), 1_700_000_000), ticks(2 * SECOND), "3 were left");
        assert_eq!(at(&fast, &rate(1, SECOND, 5), 900_000_000), ticks(900_000_000), "11 were left");
        assert_eq!(at(&fast, &rate(1, SECOND, 30), 300_000_000), ticks(3 * SECOND), "17 and 10");
        let (loose, tight) = (rate(20, SECOND, 20), rate(10, SECOND, 10));
        assert_eq!(at(&loose, &tight, 900_000_000), ticks(900_000_000), "as long to fill");
        assert_eq!(at(&slow, &fast, 1_500_000_000), ticks(1_500_000_000));
        assert_eq!(at(&slow, &fast, 20 * SECOND), ticks(2 * SECOND));
        assert_eq!(at(&slow, &rate(1, SECOND, 9), 3_000_000_001), ticks(3_000_000_001));
        assert_eq!(
            at(&slow, &rate(1, SECOND, 20), 2_500_000_000),
            ticks(2_500_000_000),
            "the same"
        );
        assert_eq!(fast.follow(&slow, ticks(SECOND), 5 * SECOND), ticks(SECOND), "at rest");
        assert_eq!(slow.follow(&fast, ticks(SECOND), 5 * SECOND), ticks(SECOND), "at rest");
        let (many, long) = (rate(u64::MAX, SECOND, u64::MAX), rate(1, TIME_LIMIT_NS, 1));
        assert_eq!(at(&many, &long, 5 * SECOND), long.tau);
    }

    #[test]
    fn a_refund_gives_back_only_what_time_has_not() {
        let rate = rate(1, SECOND, 2);
        let drained = ticks(2 * SECOND);
        assert_eq!(rate.refund(drained, 0, 2, 0), 0);
        assert_eq!(rate.refund(drained, SECOND, 2, 0), ticks(SECOND));
        assert_eq!(rate.refund(drained, 2 * SECOND, 2, 0), drained, "time gave back all of it");
    }

    #[test]
    fn a_refund_never_raises_what_it_is_given() {
        let rate = rate(1, SECOND, 2);
        assert_eq!(rate.refund(ticks(3), 5, 1, 5), ticks(3));
    }

    proptest! {
        #[test]
        fn the_reciprocal_divides_exactly(
            value in 1u128..1 << 94,
            shrink in 0u32..94,
            burst: u64,
            keep in 0u32..64,
            dividend: u128,
        ) {
            let value = (value >> shrink).max(1);
            let most = value * u128::from(within_tau(burst >> keep, value).max(1));
            let dividend = dividend % (most + 1);
            prop_assert_eq!(u128::from(Divisor::new(value, most).divide(dividend)), dividend / value);
        }

        #[test]
        fn the_reciprocal_divides_exactly_next_to_powers_of_two(
            exponent in 1u32..94, off in -1i128..=1, burst: u64, quotient: u64, back in 0u128..=1,
        ) {
            let value = u128::try_from((1i128 << exponent) + off).unwrap();
            let burst = within_tau(burst, value).max(1);
            let dividend = (value * u128::from(quotient % (burst + 1))).saturating_sub(back);
            let divisor = Divisor::new(value, value * u128::from(burst));
            prop_assert_eq!(u128::from(divisor.divide(dividend)), dividend / value);
        }
    }
}
