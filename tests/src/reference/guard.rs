//! The concurrency limit and its breaker, by the rules of DESIGN.md, section 3: with a list of who
//! is in flight, and every time in nanoseconds.
use super::{Decision, Outcome, Reason};

/// At most so many calls at once, with a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimit {
    /// Calls at once.
    pub max_in_flight: u32,
    /// For how long a place is kept, once or twice.
    pub lease_ns: u64,
    /// Refusals in a row that open the breaker.
    pub reject_trip: u32,
    /// Failures in a row that open the breaker.
    pub failure_trip: u32,
    /// For how long it is open.
    pub cooldown_ns: u64,
    /// Calls that probe the way after that.
    pub half_open_probes: u32,
}

/// A call in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    permit: usize,
    epoch: u64,
    /// How often the breaker had opened when it was admitted.
    trips: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Breaker {
    #[default]
    Closed,
    Open {
        until_ns: u64,
    },
    /// Half-open, with the permits of the probes that are out.
    Probing {
        latest_ns: u64,
        out: Vec<usize>,
    },
}

/// One state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    held: Vec<Held>,
    breaker: Breaker,
    rejects: u32,
    failures: u32,
    failed_ns: u64,
    trips: u64,
    /// The latest epoch in which anything was remembered: time doesn't go back before it.
    epoch: u64,
}

const MS: u64 = 1_000_000;

/// Breaker times are kept in whole milliseconds.
fn up(ns: u64) -> u64 {
    ns.div_ceil(MS) * MS
}

impl Guard {
    fn now(&self, limit: &ConcurrencyLimit, told_ns: u64) -> u64 {
        told_ns.max(self.epoch * limit.lease_ns)
    }

    /// What is left of it at that time.
    #[must_use]
    pub fn aged(&self, limit: &ConcurrencyLimit, told_ns: u64) -> Self {
        let mut aged = self.clone();
        let (now_ns, lease_ns) = (self.now(limit, told_ns), limit.lease_ns);
        aged.epoch = now_ns / lease_ns;
        aged.held.retain(|held| held.epoch + 1 >= aged.epoch);
        if aged.held.is_empty() {
            aged.rejects = 0;
        }
        if aged.failures > 0 && now_ns >= aged.failed_ns + lease_ns {
            aged.failures = 0;
        }
        aged.breaker = match aged.breaker {
            Breaker::Open { until_ns } if limit.half_open_probes == 0 && now_ns >= until_ns => {
                Breaker::Closed
            }
            Breaker::Open { until_ns } if now_ns >= until_ns + lease_ns => Breaker::Closed,
            Breaker::Probing { .. } if limit.half_open_probes == 0 => Breaker::Closed,
            Breaker::Probing { latest_ns, .. } if now_ns >= latest_ns + 2 * lease_ns => {
                Breaker::Closed
            }
            Breaker::Probing { latest_ns, .. } if now_ns >= latest_ns + lease_ns => {
                Breaker::Probing { latest_ns, out: Vec::new() }
            }
            breaker => breaker,
        };
        aged
    }

    /// How long until nothing of it is left, unless nothing is.
    pub fn rests_in_ns(&self, limit: &ConcurrencyLimit, now_ns: u64) -> Option<u64> {
        let lease_ns = limit.lease_ns;
        let places = self.held.iter().map(|held| (held.epoch + 2) * lease_ns);
        let failures = (self.failures > 0).then(|| self.failed_ns + lease_ns);
        let breaker = match self.breaker {
            Breaker::Closed => None,
            Breaker::Open { until_ns } if limit.half_open_probes == 0 => Some(until_ns),
            Breaker::Open { until_ns } => Some(until_ns + lease_ns),
            Breaker::Probing { .. } if limit.half_open_probes == 0 => None,
            Breaker::Probing { latest_ns, .. } => Some(latest_ns + 2 * lease_ns),
        };
        let rest_ns = places.chain(failures).chain(breaker).max().unwrap_or(0);
        rest_ns.checked_sub(now_ns).filter(|wait_ns| *wait_ns > 0)
    }

    /// What a call is told, and what the state becomes, if anything else. An admitted call gets
    /// that permit.
    pub fn decide(
        &self,
        limit: &ConcurrencyLimit,
        by: usize,
        told_ns: u64,
        permit: usize,
    ) -> (Decision, Option<Self>) {
        let mut next = self.aged(limit, told_ns);
        let now_ns = self.now(limit, told_ns);
        let is_full = next.held.len() >= limit.max_in_flight as usize;
        let wait = |until_ns: u64| until_ns.saturating_sub(told_ns);
        let half_open = match &next.breaker {
            Breaker::Closed => None,
            Breaker::Open { until_ns } if now_ns < *until_ns => {
                let decision = next.figures(limit, by, Some(Reason::BreakerOpen), wait(*until_ns));
                return (decision, None);
            }
            Breaker::Open { .. } => Some((0, Vec::new())),
            Breaker::Probing { latest_ns, out } => Some((*latest_ns, out.clone())),
        };
        if let Some((latest_ns, mut out)) = half_open {
            let reason = match out.len() >= limit.half_open_probes as usize {
                true => Reason::BreakerOpen,
                false if is_full => Reason::Concurrency,
                false => {
                    out.push(permit);
                    let latest_ns = latest_ns.max(up(now_ns));
                    next.breaker = Breaker::Probing { latest_ns, out };
                    return next.admitted(limit, by, permit);
                }
            };
            return (next.figures(limit, by, Some(reason), 0), None);
        }
        if !is_full {
            return next.admitted(limit, by, permit);
        }
        if limit.reject_trip == 0 {
            return (next.figures(limit, by, Some(Reason::Concurrency), 0), None);
        }
        next.rejects += 1;
        if next.rejects < limit.reject_trip {
            return (next.figures(limit, by, Some(Reason::Concurrency), 0), Some(next));
        }
        let until_ns = next.open(limit, now_ns);
        (next.figures(limit, by, Some(Reason::BreakerOpen), wait(until_ns)), Some(next))
    }

    fn admitted(
        mut self,
        limit: &ConcurrencyLimit,
        by: usize,
        permit: usize,
    ) -> (Decision, Option<Self>) {
        self.held.push(Held { permit, epoch: self.epoch, trips: self.trips });
        (self.figures(limit, by, None, 0), Some(self))
    }

    fn figures(
        &self,
        limit: &ConcurrencyLimit,
        by: usize,
        refused: Option<Reason>,
        retry_after_ns: u64,
    ) -> Decision {
        let most = u64::from(limit.max_in_flight);
        Decision {
            refused,
            by: Some(by),
            retry_after_ns,
            limit: most,
            remaining: most.saturating_sub(self.held.len() as u64),
            reset_after_ns: 0,
        }
    }

    fn open(&mut self, limit: &ConcurrencyLimit, now_ns: u64) -> u64 {
        let until_ns = up(now_ns + limit.cooldown_ns);
        self.breaker = Breaker::Open { until_ns };
        self.rejects = 0;
        self.failures = 0;
        self.trips += 1;
        until_ns
    }

    /// What it becomes when that permit is settled; `None` where its place has lapsed.
    pub fn settle(
        &self,
        limit: &ConcurrencyLimit,
        permit: usize,
        outcome: Outcome,
        told_ns: u64,
    ) -> Option<Self> {
        let mut next = self.aged(limit, told_ns);
        let now_ns = self.now(limit, told_ns);
        let place = next.held.iter().position(|held| held.permit == permit)?;
        let Held { trips, .. } = next.held.remove(place);
        next.rejects = 0;
        if let Breaker::Probing { out, .. } = &mut next.breaker {
            out.retain(|probe| *probe != permit);
        }
        if trips != next.trips {
            return Some(next);
        }
        match (outcome, &next.breaker) {
            (Outcome::Success, _) => {
                next.breaker = Breaker::Closed;
                next.failures = 0;
            }
            (Outcome::Failure, Breaker::Closed) if limit.failure_trip > 0 => {
                next.failures += 1;
                next.failed_ns = match next.failures {
                    1 => up(now_ns),
                    _ => next.failed_ns.max(up(now_ns)),
                };
                if next.failures >= limit.failure_trip {
                    next.open(limit, now_ns);
                }
            }
            (Outcome::Failure, Breaker::Probing { .. }) => {
                next.open(limit, now_ns);
            }
            _ => {}
        }
        Some(next)
    }

    /// How many are in flight.
    pub fn in_flight(&self, limit: &ConcurrencyLimit, now_ns: u64) -> usize {
        self.aged(limit, now_ns).held.len()
    }
}
