//! A guard: who is in flight, and how the breaker stands, unpacked from and packed into a state.
use super::{Concurrency, MS, PLACES_MAX, PROBES_MAX, TRIP_MAX};
use crate::time::TIME_LIMIT_NS;

/// How the upper 64 bits of a state are shared between the epoch, the breaker's time and the trip
/// counter: the shorter the lease, the more epochs there are, and the less time lies in four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) epoch_bits: u32,
    pub(crate) time_bits: u32,
}

/// The bits of the places, the phase and the counts.
const LOWER_BITS: u32 = 38;
const PLACE_BITS: u32 = 12;
/// Above the longest cooldown and the epochs that a time may lie in, in leases.
const SPAN_LEASES: u64 = super::COOLDOWN_LEASES_MAX + 5;
/// The most bits of the trip counter that are used: what a [`Place`] has room for.
const TRIP_BITS_MAX: u32 = 12;
/// Of the wave of probes.
const WAVE_MASK: u32 = 0xff;

impl Layout {
    /// At least 6 bits are left for the trip counter: 42 bits of epochs go with 16 of time, and
    /// twice the lease takes one from those and adds one to these.
    pub(super) fn new(lease_ns: u64) -> Self {
        let epoch_max = (TIME_LIMIT_NS - 1) / lease_ns.max(1);
        let span_ms = lease_ns.saturating_mul(SPAN_LEASES).min(4 * TIME_LIMIT_NS) / MS + 2;
        Self { epoch_bits: u64::BITS - epoch_max.leading_zeros(), time_bits: span_ms.ilog2() + 1 }
    }

    /// Whatever was stored, as a layout that can be reckoned with.
    pub(crate) fn from_parts(epoch_bits: u32, time_bits: u32) -> Self {
        Self { epoch_bits: epoch_bits.min(42), time_bits: time_bits.min(44) }
    }

    fn trip_mask(self) -> u64 {
        let bits = u64::BITS.saturating_sub(self.epoch_bits + self.time_bits);
        mask(bits.min(TRIP_BITS_MAX))
    }
}

/// The lowest so many bits; fewer than 64.
const fn mask(bits: u32) -> u64 {
    (1 << (bits & 63)) - 1
}

/// Fields that don't overlap, in one word.
fn joined<const N: usize>(fields: [u64; N]) -> u64 {
    fields.into_iter().fold(0, |word, field| word | field)
}

/// A place that was taken: in which epoch, and after how many trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(super) epoch: u64,
    pub(super) trips: u64,
    /// Of a probe: in which wave it was admitted.
    pub(super) wave: Option<u32>,
}

impl Place {
    const EPOCH_BITS: u32 = 42;
    const WAVE_SHIFT: u32 = Self::EPOCH_BITS + TRIP_BITS_MAX;

    /// As a permit keeps it; never 0.
    pub(crate) fn to_word(self) -> u64 {
        joined([
            1 << 63,
            u64::from(self.wave.is_some()) << 62,
            u64::from(self.wave.unwrap_or(0) & WAVE_MASK) << Self::WAVE_SHIFT,
            (self.trips & mask(TRIP_BITS_MAX)) << Self::EPOCH_BITS,
            self.epoch & mask(Self::EPOCH_BITS),
        ])
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let wave = (word >> Self::WAVE_SHIFT) as u32 & WAVE_MASK;
        (word >> 63 == 1).then_some(Self {
            epoch: word & mask(Self::EPOCH_BITS),
            trips: word >> Self::EPOCH_BITS & mask(TRIP_BITS_MAX),
            wave: (word >> 62 & 1 == 1).then_some(wave),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Closed = 0,
    /// Until `time_ms`; half-open from then on, or closed, as the limit has it.
    Open = 1,
    /// Half-open, and a probe was admitted: the last one at `time_ms`.
    Probing = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    /// The latest epoch in which anything was written.
    pub(super) epoch: u64,
    /// Places taken in that epoch and in the one before.
    pub(super) current: u32,
    pub(super) previous: u32,
    pub(super) phase: Phase,
    /// While closed: refusals in a row.
    pub(super) rejects: u32,
    /// While closed: failures in a row, the last one at `time_ms`.
    pub(super) failures: u32,
    /// While probing: how many probes are out.
    pub(super) probes: u32,
    /// While probing: how often all probes that were out were taken for lost.
    pub(super) wave: u32,
    /// Whole milliseconds, rounded up.
    pub(super) time_ms: u64,
    /// How often the breaker opened, with wrap-around.
    pub(super) trips: u64,
}

impl Guard {
    /// Any 102 bits are a guard, and no count of it above what its field holds.
    pub(super) fn unpack(rule: &Concurrency, payload: u128) -> Self {
        let lower = payload as u64;
        let upper = (payload >> LOWER_BITS) as u64;
        let layout = rule.layout;
        let field = |shift: u32, max: u32| (lower >> shift) as u32 & max;
        let epoch = upper & mask(layout.epoch_bits);
        let offset_ms = upper >> layout.epoch_bits & mask(layout.time_bits);
        let trips = upper >> ((layout.epoch_bits + layout.time_bits) & 63) & layout.trip_mask();
        let phase = match field(24, 3) {
            0 => Phase::Closed,
            1 => Phase::Open,
            _ => Phase::Probing,
        };
        let (rejects, failures, probes, wave) = match phase {
            Phase::Closed => (field(26, TRIP_MAX), field(32, TRIP_MAX), 0, 0),
            Phase::Open => (0, 0, 0, 0),
            Phase::Probing => (0, 0, field(26, PROBES_MAX), field(30, WAVE_MASK)),
        };
        Self {
            epoch,
            current: field(0, PLACES_MAX),
            previous: field(PLACE_BITS, PLACES_MAX),
            phase,
            rejects,
            failures,
            probes,
            wave,
            time_ms: base_ms(rule, epoch) + offset_ms,
            trips,
        }
    }

    pub(super) fn pack(&self, rule: &Concurrency) -> u128 {
        let counts = match self.phase {
            Phase::Closed => [self.rejects.min(TRIP_MAX), self.failures.min(TRIP_MAX) << 6],
            Phase::Open => [0, 0],
            Phase::Probing => [self.probes.min(PROBES_MAX), (self.wave & WAVE_MASK) << 4],
        };
        let [first, second] = counts.map(|count| u64::from(count) << 26);
        let lower = joined([
            u64::from(self.current.min(PLACES_MAX)),
            u64::from(self.previous.min(PLACES_MAX)) << PLACE_BITS,
            (self.phase as u64) << 24,
            first,
            second,
        ]);
        let layout = rule.layout;
        // The cooldown's bound keeps a time from going over its field.
        let offset_ms = self.time_ms.saturating_sub(base_ms(rule, self.epoch));
        let upper = joined([
            self.epoch & mask(layout.epoch_bits),
            offset_ms.min(mask(layout.time_bits)) << layout.epoch_bits,
            (self.trips & layout.trip_mask()) << ((layout.epoch_bits + layout.time_bits) & 63),
        ]);
        u128::from(upper) << LOWER_BITS | u128::from(lower)
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.current + self.previous
    }

    /// When the time of the breaker is.
    pub(super) fn time_ns(&self) -> u64 {
        self.time_ms.saturating_mul(MS)
    }

    /// A time that lags behind another thread's is taken for the start of the epoch that the other
    /// wrote in, so that nothing moves backward.
    fn at(&self, rule: &Concurrency, now_ns: u64) -> u64 {
        now_ns.max(start_ns(rule, self.epoch))
    }

    /// Forgets what nobody touched for a lease.
    pub(super) fn age(&mut self, rule: &Concurrency, now_ns: u64) {
        let lease_ns = rule.limit.lease_ns;
        let now_ns = self.at(rule, now_ns);
        if now_ns - start_ns(rule, self.epoch) >= lease_ns {
            let epoch = now_ns.checked_div(lease_ns).unwrap_or(0);
            self.previous = if epoch == self.epoch + 1 { self.current } else { 0 };
            self.current = 0;
            self.epoch = epoch;
        }
        if self.in_flight() == 0 {
            self.rejects = 0;
        }
        let past_ns = now_ns.saturating_sub(self.time_ns());
        let is_past = now_ns >= self.time_ns();
        match self.phase {
            Phase::Closed if is_past && past_ns >= lease_ns => self.failures = 0,
            Phase::Open | Phase::Probing if now_ns >= self.closes_ns(rule) => self.close(),
            Phase::Probing if is_past && past_ns >= lease_ns => self.probes = 0,
            _ => {}
        }
        if self.phase == Phase::Closed && self.failures == 0 {
            self.time_ms = 0;
        }
    }

    /// When a breaker that nobody touches is closed.
    fn closes_ns(&self, rule: &Concurrency) -> u64 {
        let lease_ns = rule.limit.lease_ns;
        match self.phase {
            Phase::Closed => 0,
            Phase::Open if rule.limit.half_open_probes == 0 => self.time_ns(),
            Phase::Open => self.time_ns().saturating_add(lease_ns),
            Phase::Probing if rule.limit.half_open_probes == 0 => 0,
            // Its probes are lost after a lease.
            Phase::Probing => self.time_ns().saturating_add(lease_ns.saturating_mul(2)),
        }
    }

    pub(super) fn at_rest_from_ns(&self, rule: &Concurrency) -> u64 {
        let lease_ns = rule.limit.lease_ns;
        let epochs = if self.current > 0 { 2 } else { u64::from(self.previous > 0) };
        let empty_ns =
            if epochs > 0 { start_ns(rule, self.epoch.saturating_add(epochs)) } else { 0 };
        let forgotten_ns = if self.phase == Phase::Closed && self.failures > 0 {
            self.time_ns().saturating_add(lease_ns)
        } else {
            self.closes_ns(rule)
        };
        // Not before its epoch, so that whoever starts it again starts there.
        empty_ns.max(forgotten_ns).max(start_ns(rule, self.epoch))
    }

    /// Whether it is past its cooldown and not closed. To be asked of an aged guard.
    pub(super) fn is_half_open(&self, rule: &Concurrency, now_ns: u64) -> bool {
        match self.phase {
            Phase::Closed => false,
            Phase::Open => self.at(rule, now_ns) >= self.time_ns(),
            Phase::Probing => true,
        }
    }

    /// Takes a place; as a probe where it is half-open.
    pub(super) fn take(&mut self, rule: &Concurrency, now_ns: u64, is_probe: bool) -> Place {
        if is_probe {
            if self.phase == Phase::Probing && self.probes == 0 {
                // None that was lost makes room when it comes back after all.
                self.wave = (self.wave + 1) & WAVE_MASK;
            }
            self.phase = Phase::Probing;
            self.probes += 1;
            self.time_ms = self.time_ms.max(self.at(rule, now_ns).div_ceil(MS));
        }
        self.current += 1;
        Place { epoch: self.epoch, trips: self.trips, wave: is_probe.then_some(self.wave) }
    }

    /// Gives a place back; `false` where it has lapsed. Whatever the place says, no count goes
    /// below zero.
    pub(super) fn give_back(&mut self, rule: &Concurrency, place: Place) -> bool {
        let count = if place.epoch == self.epoch {
            &mut self.current
        } else if place.epoch.wrapping_add(1) == self.epoch {
            &mut self.previous
        } else {
            return false;
        };
        let Some(left) = count.checked_sub(1) else { return false };
        *count = left;
        let is_out = self.phase == Phase::Probing && place.wave == Some(self.wave);
        if is_out && self.knows(rule, place) {
            self.probes = self.probes.saturating_sub(1);
        }
        true
    }

    /// Whether a place was taken after the latest trip.
    pub(super) fn knows(&self, rule: &Concurrency, place: Place) -> bool {
        place.trips & rule.layout.trip_mask() == self.trips
    }

    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.failures = 0;
        self.probes = 0;
        self.wave = 0;
        self.time_ms = 0;
    }

    pub(super) fn open(&mut self, rule: &Concurrency, now_ns: u64) {
        let until_ns = self.at(rule, now_ns).saturating_add(rule.limit.cooldown_ns);
        self.phase = Phase::Open;
        self.wave = 0;
        self.time_ms = until_ns.div_ceil(MS);
        self.trips = self.trips.wrapping_add(1) & rule.layout.trip_mask();
    }

    /// Whether that many failures in a row open the breaker.
    pub(super) fn count_failure(&mut self, rule: &Concurrency, now_ns: u64) -> bool {
        if self.phase != Phase::Closed || rule.limit.failure_trip == 0 {
            return false;
        }
        self.failures += 1;
        self.time_ms = self.time_ms.max(self.at(rule, now_ns).div_ceil(MS));
        self.failures >= rule.limit.failure_trip
    }
}

/// When an epoch begins.
fn start_ns(rule: &Concurrency, epoch: u64) -> u64 {
    epoch.saturating_mul(rule.limit.lease_ns)
}

/// What times are kept from: before the epoch before the last one, everything is forgotten.
fn base_ms(rule: &Concurrency, epoch: u64) -> u64 {
    start_ns(rule, epoch.saturating_sub(2)) / MS
}
