//! The rate limit, by the formulas of DESIGN.md, section 3.
use super::{Decision, Reason};

/// `count` tokens a `period_ns`, of which `burst` can be saved up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Tokens that come back in each period.
    pub count: u64,
    /// The period.
    pub period_ns: u64,
    /// What a full bucket holds.
    pub burst: u64,
}

/// A tick is 2^-32 ns.
const TICKS_PER_NS: i128 = 1 << 32;

fn ticks(ns: u64) -> i128 {
    i128::from(ns) * TICKS_PER_NS
}

fn floor(dividend: i128, divisor: i128) -> i128 {
    dividend.div_euclid(divisor)
}

fn ceil(dividend: i128, divisor: i128) -> i128 {
    -floor(-dividend, divisor)
}

fn ns(ticks: i128) -> u64 {
    u64::try_from(ceil(ticks, TICKS_PER_NS)).expect("no time that matters is longer")
}

impl RateLimit {
    /// T, the emission interval, in ticks.
    pub fn interval(&self) -> i128 {
        ceil(ticks(self.period_ns), i128::from(self.count))
    }

    /// tau, what a full bucket holds, in ticks.
    pub fn tau(&self) -> i128 {
        i128::from(self.burst) * self.interval()
    }

    /// cost * T.
    fn amount(&self, cost: u64) -> i128 {
        i128::from(cost) * self.interval()
    }
}

/// One caller's state: the time, in ticks, at which its bucket is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    tat: i128,
}

impl Bucket {
    /// At rest iff tat <= `now_ticks`.
    pub fn is_at_rest(&self, now_ns: u64) -> bool {
        self.tat <= ticks(now_ns)
    }

    /// How long until it is at rest, unless it is.
    pub fn rests_in_ns(&self, now_ns: u64) -> Option<u64> {
        (!self.is_at_rest(now_ns)).then(|| ns(self.tat - ticks(now_ns)))
    }

    /// What a call of that cost is told. Of one that would be admitted, the figures are those
    /// after its charge.
    ///
    /// # Panics
    /// Where the limit is none that a gate takes.
    pub fn decide(&self, rate: &RateLimit, by: usize, now_ns: u64, cost: u64) -> Decision {
        let now = ticks(now_ns);
        let mut after = *self;
        let (refused, retry_after_ns) = if cost > rate.burst {
            (Some(Reason::Never), 0)
        } else {
            let base = self.tat.max(now);
            let excess = base + rate.amount(cost) - rate.tau() - now;
            if excess > 0 {
                (Some(Reason::Rate), ns(excess))
            } else {
                if cost > 0 {
                    after.charge(rate, now_ns, cost);
                }
                (None, 0)
            }
        };
        let remaining = floor(now + rate.tau() - after.tat.max(now), rate.interval()).max(0);
        Decision {
            refused,
            by: Some(by),
            retry_after_ns,
            limit: rate.burst,
            remaining: u64::try_from(remaining).expect("at most the burst"),
            reset_after_ns: ns((after.tat - now).max(0)),
        }
    }

    /// tat := base + cost*T.
    pub fn charge(&mut self, rate: &RateLimit, now_ns: u64, cost: u64) {
        self.tat = self.tat.max(ticks(now_ns)) + rate.amount(cost);
    }

    /// Gives back min(cost*T, max(0, stamp + cost*T - now)), and never more than is missing: a
    /// full bucket, which one is by `now` too, takes nothing.
    pub fn refund(&mut self, rate: &RateLimit, stamp_ns: u64, now_ns: u64, cost: u64) {
        let now = ticks(now_ns);
        let amount = rate.amount(cost);
        let back = amount.min((ticks(stamp_ns) + amount - now).max(0));
        self.tat = (self.tat - back).max(now).min(self.tat);
    }

    /// The limit was another so far. A debt stays, in time; but where T has become longer, no bucket has
    /// more whole tokens than it had, and those by which the burst is larger. None is deeper than an empty
    /// bucket's.
    pub fn follow(&mut self, old: &RateLimit, rate: &RateLimit, now_ns: u64) {
        let debt = self.tat - ticks(now_ns);
        if debt > 0 && rate.interval() > old.interval() {
            let had = (i128::from(old.burst) - ceil(debt, old.interval())).max(0);
            let has = had + i128::from(rate.burst.saturating_sub(old.burst));
            let owed = (i128::from(rate.burst) - has).max(0);
            self.tat = self.tat.max(ticks(now_ns) + owed * rate.interval());
        }
        self.tat = self.tat.min(ticks(now_ns) + rate.tau());
    }
}
