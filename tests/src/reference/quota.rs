//! The quota, by the rules of DESIGN.md, section 3.
use super::{Decision, Outcome, Reason};

/// So many units in each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Units.
    pub limit: u64,
    /// How long a window is.
    pub period_s: u64,
    /// When one begins.
    pub anchor_unix_s: i64,
    /// Whether calls wait for a seed.
    pub must_seed: bool,
}

/// One state: of the window that ends then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    end_ns: i128,
    used: u128,
    is_seeded: bool,
}

const SECOND: i128 = 1_000_000_000;

fn ns(ns: i128) -> u64 {
    u64::try_from(ns).expect("no window is longer")
}

impl Account {
    /// The account at that time: a new one where its window is over.
    fn at(&self, quota: &Quota, unix_ns: u64) -> Self {
        let (unix_ns, period_ns) = (i128::from(unix_ns), i128::from(quota.period_s) * SECOND);
        if unix_ns < self.end_ns {
            return *self;
        }
        let windows = (unix_ns - i128::from(quota.anchor_unix_s) * SECOND).div_euclid(period_ns);
        let end_ns = i128::from(quota.anchor_unix_s) * SECOND + (windows + 1) * period_ns;
        Self { end_ns, used: 0, is_seeded: false }
    }

    /// How long until its window is over, unless it is.
    ///
    /// # Panics
    /// Where that is more than 2^64 ns; so does the next.
    pub fn rests_in_ns(&self, unix_ns: u64) -> Option<u64> {
        let wait_ns = self.end_ns - i128::from(unix_ns);
        (wait_ns > 0).then(|| ns(wait_ns))
    }

    /// What a call is told, and what the state becomes where it is admitted.
    ///
    /// # Panics
    /// As above.
    pub fn decide(
        &self,
        quota: &Quota,
        by: usize,
        unix_ns: u64,
        reserve: u64,
    ) -> (Decision, Option<Self>) {
        let mut next = self.at(quota, unix_ns);
        let limit = u128::from(quota.limit);
        let wait_ns = ns(next.end_ns - i128::from(unix_ns));
        let (refused, retry_after_ns) = if reserve > quota.limit {
            (Some(Reason::Never), 0)
        } else if quota.must_seed && !next.is_seeded {
            (Some(Reason::Unseeded), 0)
        } else if next.used >= limit || next.used + u128::from(reserve) > limit {
            (Some(Reason::Quota), wait_ns)
        } else {
            next.used += u128::from(reserve);
            (None, 0)
        };
        let decision = Decision {
            refused,
            by: Some(by),
            retry_after_ns,
            limit: quota.limit,
            remaining: u64::try_from(limit.saturating_sub(next.used)).expect("at most the limit"),
            reset_after_ns: wait_ns,
        };
        (decision, refused.is_none().then_some(next))
    }

    /// Which window it belongs to.
    pub fn window(&self) -> i128 {
        self.end_ns
    }

    /// What it becomes when a call of that window is settled.
    #[must_use]
    pub fn settle(&self, window: i128, reserve: u64, outcome: Outcome, used: u64) -> Self {
        let mut next = *self;
        let used = match outcome {
            Outcome::Cancelled => 0,
            Outcome::Abandoned if used == 0 => reserve,
            _ => used,
        };
        if window == self.end_ns {
            next.used = (next.used - u128::from(reserve)) + u128::from(used);
        }
        next
    }

    /// What it becomes when it is told what was used before, once.
    pub fn seed(&self, quota: &Quota, unix_ns: u64, used: u64) -> Option<Self> {
        let next = self.at(quota, unix_ns);
        let used = next.used + u128::from(used);
        (!next.is_seeded).then_some(Self { used, is_seeded: true, ..next })
    }
}
