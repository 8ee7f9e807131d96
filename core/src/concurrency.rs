//! The concurrency limit and its breaker, as pure steps.
//!
//! The state is unpacked into a [`Guard`], brought up to the present by [`Guard::age`], changed,
//! and packed again: 102 bits, of which 0 is the state at rest. How it ages hangs on the state and
//! the time only, so an aged state need not be written back.
use crate::config::{ConfigError, Field};
use crate::permit::Outcome;
use crate::time::TIME_LIMIT_NS;

mod guard;

use guard::{Guard, Phase};
pub(crate) use guard::{Layout, Place};

/// At most so many calls at once, and a breaker that opens when too many are refused or fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyLimit {
    /// How many calls may be in flight at once, 1 to 4095.
    pub max_in_flight: u32,
    /// A call that is not settled gives its place back by itself, between one and two of these
    /// later. 1 ms to 2^61 ns, in nanoseconds; it stays what it was when the gate was made.
    pub lease_ns: u64,
    /// So many refusals in a row, with no call settled in between, open the breaker; at most 63.
    /// 0: refusals never do.
    pub reject_trip: u32,
    /// So many calls in a row settled as failures open the breaker; at most 63. 0: failures never
    /// do.
    pub failure_trip: u32,
    /// For how long the breaker is open, in nanoseconds, rounded up to whole milliseconds when it
    /// opens. At least 1 ms where there is a trip; at most 2^61 ns and 50,000 leases.
    pub cooldown_ns: u64,
    /// How many calls at a time probe the way after the cooldown, at most 15: one that succeeds
    /// closes the breaker, one that fails opens it anew. 0: it is closed after the cooldown.
    pub half_open_probes: u32,
}

/// The most calls in flight: what 12 bits hold.
const PLACES_MAX: u32 = 4095;
const TRIP_MAX: u32 = 63;
const PROBES_MAX: u32 = 15;
const MS: u64 = 1_000_000;
/// The longest cooldown in leases, so that breaker times fit beside epochs.
const COOLDOWN_LEASES_MAX: u64 = 50_000;

/// A concurrency limit made ready for decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Concurrency {
    pub(crate) limit: ConcurrencyLimit,
    pub(crate) layout: Layout,
}

/// What a call that asks for a place is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Admitted(Place),
    /// All places are taken.
    Full,
    /// The breaker is open; for so long, where that is known.
    BreakerOpen {
        retry_after_ns: u64,
    },
}

/// What came of asking for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) answer: Answer,
    /// How many calls are in flight now.
    pub(crate) in_flight: u32,
    /// Whether this opened the breaker.
    pub(crate) tripped: bool,
}

/// What came of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Returned {
    pub(crate) payload: u128,
    /// Whether this opened the breaker.
    pub(crate) tripped: bool,
}

/// What a guard looks like at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glance {
    pub(crate) in_flight: u32,
    pub(crate) is_open: bool,
    pub(crate) is_half_open: bool,
}

impl Concurrency {
    pub(crate) fn new(limit: &ConcurrencyLimit) -> Result<Self, ConfigError> {
        let trips = limit.reject_trip > 0 || limit.failure_trip > 0;
        let cooldown_min_ns = if trips { MS } else { 0 };
        let leases = limit.lease_ns.saturating_mul(COOLDOWN_LEASES_MAX);
        let in_range = [
            (1 <= limit.max_in_flight && limit.max_in_flight <= PLACES_MAX, Field::MaxInFlight),
            (MS <= limit.lease_ns && limit.lease_ns <= TIME_LIMIT_NS, Field::LeaseNs),
            (limit.reject_trip <= TRIP_MAX, Field::RejectTrip),
            (limit.failure_trip <= TRIP_MAX, Field::FailureTrip),
            (
                cooldown_min_ns <= limit.cooldown_ns
                    && limit.cooldown_ns <= leases.min(TIME_LIMIT_NS),
                Field::CooldownNs,
            ),
            (limit.half_open_probes <= PROBES_MAX, Field::HalfOpenProbes),
        ];
        match in_range.iter().find(|(holds, _)| !holds) {
            Some((_, field)) => Err(ConfigError::of(*field)),
            None => Ok(Self { limit: *limit, layout: Layout::new(limit.lease_ns) }),
        }
    }

    /// Takes a place, or says why not; and what the state becomes, where it changes. A refusal may
    /// change it as well: it counts toward a trip.
    pub(crate) fn ask(&self, payload: u128, now_ns: u64) -> (Option<u128>, Asked) {
        let mut guard = self.aged(payload, now_ns);
        let was_half_open = guard.is_half_open(self, now_ns);
        let in_flight = guard.in_flight();
        let refuse = |answer| (None, Asked { answer, in_flight, tripped: false });
        if guard.phase != Phase::Closed && !was_half_open {
            let retry_after_ns = guard.time_ns().saturating_sub(now_ns);
            return refuse(Answer::BreakerOpen { retry_after_ns });
        }
        if was_half_open && guard.probes >= self.limit.half_open_probes {
            return refuse(Answer::BreakerOpen { retry_after_ns: 0 });
        }
        if in_flight >= self.limit.max_in_flight {
            return if was_half_open || self.limit.reject_trip == 0 {
                refuse(Answer::Full)
            } else {
                self.count_refusal(guard, now_ns)
            };
        }
        let place = guard.take(self, now_ns, was_half_open);
        let asked =
            Asked { answer: Answer::Admitted(place), in_flight: guard.in_flight(), tripped: false };
        (Some(guard.pack(self)), asked)
    }

    /// Gives a place back and tells the breaker how its call went. `None`: the place had lapsed,
    /// and nothing changes.
    pub(crate) fn settle(
        &self,
        payload: u128,
        place: Place,
        outcome: Outcome,
        now_ns: u64,
    ) -> Option<Returned> {
        let mut guard = self.aged(payload, now_ns);
        if !guard.give_back(self, place) {
            return None;
        }
        let mut tripped = false;
        if guard.phase == Phase::Closed {
            guard.rejects = 0;
        }
        // What was admitted before the latest trip says nothing about the time after it.
        if guard.knows(self, place) && guard.phase != Phase::Open {
            let is_half_open = guard.is_half_open(self, now_ns);
            match outcome {
                Outcome::Success => guard.close(),
                Outcome::Failure if is_half_open => tripped = true,
                Outcome::Failure => tripped = guard.count_failure(self, now_ns),
                Outcome::Abandoned | Outcome::Cancelled => {}
            }
        }
        if tripped {
            guard.open(self, now_ns);
        }
        Some(Returned { payload: guard.pack(self), tripped })
    }

    /// Gives back a place of a call that was refused by a later limit, as if it had never been
    /// asked for.
    pub(crate) fn take_back(&self, payload: u128, place: Place, now_ns: u64) -> Option<u128> {
        let mut guard = self.aged(payload, now_ns);
        guard.give_back(self, place).then(|| guard.pack(self))
    }

    pub(crate) fn glance(&self, payload: u128, now_ns: u64) -> Glance {
        let guard = self.aged(payload, now_ns);
        let is_half_open = guard.is_half_open(self, now_ns);
        Glance {
            in_flight: guard.in_flight(),
            is_open: guard.phase != Phase::Closed && !is_half_open,
            is_half_open,
        }
    }

    /// The nanosecond from which a state is at rest, nobody touching it until then.
    pub(crate) fn at_rest_from_ns(&self, payload: u128) -> u64 {
        Guard::unpack(self, payload).at_rest_from_ns(self)
    }

    /// The state without what is forgotten by then.
    pub(crate) fn age(&self, payload: u128, now_ns: u64) -> u128 {
        self.aged(payload, now_ns).pack(self)
    }

    fn aged(&self, payload: u128, now_ns: u64) -> Guard {
        let mut guard = Guard::unpack(self, payload);
        guard.age(self, now_ns);
        guard
    }

    fn count_refusal(&self, mut guard: Guard, now_ns: u64) -> (Option<u128>, Asked) {
        guard.rejects += 1;
        let tripped = guard.rejects >= self.limit.reject_trip;
        let in_flight = guard.in_flight();
        let answer = if tripped {
            guard.open(self, now_ns);
            Answer::BreakerOpen { retry_after_ns: guard.time_ns().saturating_sub(now_ns) }
        } else {
            Answer::Full
        };
        (Some(guard.pack(self)), Asked { answer, in_flight, tripped })
    }
}

#[cfg(test)]
mod tests;
