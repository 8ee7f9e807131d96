//! The guard by itself: no table, no clock.
use std::vec;
use std::vec::Vec;

use super::*;
use crate::quota;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// Two places, a lease of a minute, a breaker that two refusals or two failures open for a second,
/// one probe.
const GUARD: ConcurrencyLimit = ConcurrencyLimit {
    max_in_flight: 2,
    lease_ns: 60 * SECOND,
    reject_trip: 2,
    failure_trip: 2,
    cooldown_ns: SECOND,
    half_open_probes: 1,
};

fn rule(limit: ConcurrencyLimit) -> Concurrency {
    Concurrency::new(&limit).unwrap()
}

/// A guard and its state, as a table would keep it.
struct One {
    rule: Concurrency,
    payload: u128,
}

impl One {
    fn new(limit: ConcurrencyLimit) -> Self {
        Self { rule: rule(limit), payload: 0 }
    }

    fn ask(&mut self, now_ns: u64) -> Answer {
        let (next, asked) = self.rule.ask(self.payload, now_ns);
        self.payload = next.unwrap_or(self.payload);
        asked.answer
    }

    fn take(&mut self, now_ns: u64) -> Place {
        match self.ask(now_ns) {
            Answer::Admitted(place) => place,
            other => panic!("{other:?} at {now_ns}"),
        }
    }

    fn end(&mut self, place: Place, outcome: Outcome, now_ns: u64) -> bool {
        let returned = self.rule.settle(self.payload, place, outcome, now_ns);
        self.payload = returned.map_or(self.payload, |returned| returned.payload);
        returned.is_some()
    }

    fn in_flight(&self, now_ns: u64) -> u32 {
        self.rule.glance(self.payload, now_ns).in_flight
    }
}

fn open(retry_after_ns: u64) -> Answer {
    Answer::BreakerOpen { retry_after_ns }
}

#[test]
fn every_lease_leaves_six_bits_to_count_trips() {
    let leases = (20..=61).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
    for lease_ns in leases.chain([MS]).map(|ns: u64| ns.clamp(MS, TIME_LIMIT_NS)) {
        let Layout { epoch_bits, time_bits } = Layout::new(lease_ns);
        assert!(epoch_bits <= 42 && time_bits <= 44, "{lease_ns}");
        assert!(epoch_bits + time_bits <= 58, "{lease_ns}: {epoch_bits} and {time_bits}");
    }
}

#[test]
fn a_place_lapses_at_the_end_of_the_epoch_after_its_own() {
    let mut one = One::new(GUARD);
    let place = one.take(59 * SECOND);
    assert_eq!(one.in_flight(120 * SECOND - 1), 1);
    assert_eq!(one.in_flight(120 * SECOND), 0);
    assert_eq!(one.rule.at_rest_from_ns(one.payload), 120 * SECOND);
    assert!(!one.end(place, Outcome::Success, 120 * SECOND));
}

#[test]
fn a_lapsed_place_is_not_given_back_for_another_of_its_kind() {
    let mut one = One::new(GUARD);
    let lapsed = one.take(0);
    let held = one.take(120 * SECOND);
    assert!(!one.end(lapsed, Outcome::Success, 120 * SECOND));
    assert_eq!(one.in_flight(120 * SECOND), 1);
    assert!(one.end(held, Outcome::Success, 120 * SECOND));
    assert!(!one.end(held, Outcome::Success, 120 * SECOND), "a copy finds nothing to give back");
    assert_eq!(one.in_flight(120 * SECOND), 0);
}

#[test]
fn a_stale_time_takes_no_place_from_the_past() {
    let mut one = One::new(GUARD);
    let first = one.take(0);
    one.take(130 * SECOND);
    let late = one.take(SECOND);
    assert_eq!(late.epoch, 2, "taken in the epoch that the state is in");
    assert_eq!(one.ask(SECOND), Answer::Full, "what lapsed is not back");
    assert!(!one.end(first, Outcome::Success, SECOND));
}

#[test]
fn refusals_in_a_row_trip_and_only_where_there_is_such_a_trip() {
    let mut one = One::new(GUARD);
    let mut places = [one.take(0), one.take(0)];
    // A call that ends in between breaks the row.
    for _ in 0..3 {
        assert_eq!(one.ask(0), Answer::Full);
        assert!(one.end(places[0], Outcome::Abandoned, 0));
        places[0] = one.take(0);
    }
    assert_eq!([one.ask(0), one.ask(0)], [Answer::Full, open(SECOND)]);
    let mut never = One::new(ConcurrencyLimit { reject_trip: 0, ..GUARD });
    let _ = [never.take(0), never.take(0)];
    assert_eq!([never.ask(0), never.ask(0)], [Answer::Full; 2]);
    assert_eq!(never.ask(0), Answer::Full);
}

#[test]
fn failures_in_a_row_trip_a_closed_breaker_and_one_a_half_open() {
    let mut one = One::new(GUARD);
    let fail = |one: &mut One, now_ns| {
        let place = one.take(now_ns);
        assert!(one.end(place, Outcome::Failure, now_ns));
    };
    fail(&mut one, 0);
    let success = one.take(0);
    assert!(one.end(success, Outcome::Success, 0));
    fail(&mut one, 0);
    let abandoned = one.take(0);
    assert!(one.end(abandoned, Outcome::Abandoned, 0));
    fail(&mut one, 0);
    assert_eq!(one.ask(0), open(SECOND));
    // Half-open: the probe fails, and that is enough.
    fail(&mut one, SECOND);
    assert_eq!(one.ask(SECOND), open(SECOND));
    // Closed by a probe that succeeds, it counts from the beginning.
    let probe = one.take(2 * SECOND);
    assert!(one.end(probe, Outcome::Success, 2 * SECOND));
    fail(&mut one, 2 * SECOND);
    assert!(matches!(one.ask(2 * SECOND), Answer::Admitted(_)));
}

#[test]
fn an_aged_refusal_streak_is_forgotten_once_nothing_is_in_flight() {
    let mut one = One::new(GUARD);
    let places = [one.take(0), one.take(0)];
    assert_eq!(one.ask(0), Answer::Full);
    let _ = [one.take(120 * SECOND), one.take(120 * SECOND)];
    assert_eq!(one.ask(120 * SECOND), Answer::Full, "the first again");
    assert_eq!(one.ask(120 * SECOND), open(SECOND), "and the second");
    assert!(places.iter().all(|place| !one.end(*place, Outcome::Failure, 120 * SECOND)));
}

#[test]
fn without_probes_a_breaker_is_closed_after_its_cooldown() {
    let mut one = One::new(ConcurrencyLimit { half_open_probes: 0, ..GUARD });
    let _ = [one.take(0), one.take(0)];
    assert_eq!((one.ask(0), one.ask(0)), (Answer::Full, open(SECOND)));
    assert_eq!(one.ask(SECOND - 1), open(1));
    assert_eq!(one.ask(SECOND), Answer::Full, "closed: the first refusal of a new streak");
}

#[test]
fn what_was_admitted_before_a_trip_says_nothing_after_it() {
    let mut one = One::new(ConcurrencyLimit { failure_trip: 1, ..GUARD });
    let (slow, failed) = (one.take(0), one.take(0));
    assert!(one.end(failed, Outcome::Failure, 0));
    let probe = one.take(SECOND);
    assert!(one.end(slow, Outcome::Success, SECOND), "its place comes back");
    assert_eq!(one.ask(SECOND), open(0), "and the breaker stays half-open");
    assert!(one.end(probe, Outcome::Success, SECOND));
    let _ = one.take(SECOND);
    let _ = one.take(SECOND);
}

#[test]
fn what_was_admitted_before_as_many_as_63_trips_says_nothing_after_them() {
    let eager = ConcurrencyLimit { failure_trip: 1, cooldown_ns: MS, half_open_probes: 0, ..GUARD };
    for (before, trips) in [0, 1, 2].into_iter().flat_map(|n| (1..=63).map(move |m| (n, m))) {
        let mut one = One::new(eager);
        let mut now_ns = 0;
        let mut trip = |one: &mut One| {
            let place = one.take(now_ns);
            assert!(one.end(place, Outcome::Failure, now_ns));
            now_ns += 2 * MS;
            now_ns
        };
        let taken_ns = (0..before).fold(0, |_, _| trip(&mut one));
        let stale = one.take(taken_ns);
        let now_ns = (0..trips).fold(0, |_, _| trip(&mut one));
        assert!(one.end(stale, Outcome::Failure, now_ns));
        assert!(matches!(one.ask(now_ns), Answer::Admitted(_)), "{trips} trips after {before}");
    }
}

#[test]
fn the_longest_cooldown_is_kept_whole_whatever_the_lease() {
    // Where a bit fewer, for five leases fewer, would not do; and the bounds.
    let leases = (17..40).map(|bits| (1u64 << bits) * MS / 50_000);
    for lease_ns in leases.chain([MS, TIME_LIMIT_NS]).filter(|lease_ns| *lease_ns >= MS) {
        let cooldown_ns = lease_ns.saturating_mul(50_000).min(TIME_LIMIT_NS);
        let (lately_ns, until_ns) = (TIME_LIMIT_NS / MS / 2 * MS, cooldown_ns.div_ceil(MS) * MS);
        for now_ns in [0, lately_ns] {
            let mut one = One::new(ConcurrencyLimit { lease_ns, cooldown_ns, ..GUARD });
            for _ in 0..2 {
                let place = one.take(now_ns);
                assert!(one.end(place, Outcome::Failure, now_ns));
            }
            assert_eq!(one.ask(now_ns), open(until_ns), "lease {lease_ns} at {now_ns}");
            assert_eq!(one.ask(now_ns + 1), open(until_ns - 1), "lease {lease_ns} at {now_ns}");
        }
    }
}

#[test]
fn failures_are_remembered_for_a_lease_and_so_is_the_state() {
    let fail = |one: &mut One, now_ns| {
        let place = one.take(now_ns);
        assert!(one.end(place, Outcome::Failure, now_ns));
    };
    let mut one = One::new(GUARD);
    fail(&mut one, 50 * SECOND);
    assert_eq!(one.rule.at_rest_from_ns(one.payload), 110 * SECOND);
    let between = one.take(55 * SECOND);
    assert!(one.end(between, Outcome::Abandoned, 55 * SECOND));
    fail(&mut one, 110 * SECOND - 1);
    assert_eq!(one.ask(110 * SECOND - 1), open(SECOND + 1), "the second within a lease");

    let mut one = One::new(GUARD);
    fail(&mut one, 50 * SECOND);
    fail(&mut one, 110 * SECOND);
    assert!(matches!(one.ask(110 * SECOND), Answer::Admitted(_)), "the first was forgotten");

    let mut never = One::new(ConcurrencyLimit { failure_trip: 0, ..GUARD });
    fail(&mut never, 5 * SECOND);
    assert_eq!(never.rule.at_rest_from_ns(never.payload), 0, "there is nothing to remember");
    assert!(matches!(never.ask(5 * SECOND), Answer::Admitted(_)));
}

#[test]
fn a_breaker_that_was_probing_is_closed_where_there_are_no_probes_any_more() {
    let mut one = One::new(ConcurrencyLimit { failure_trip: 1, ..GUARD });
    let failed = one.take(0);
    assert!(one.end(failed, Outcome::Failure, 0));
    let _probe = one.take(SECOND);
    assert!(one.rule.glance(one.payload, SECOND).is_half_open);
    one.rule = rule(ConcurrencyLimit { failure_trip: 1, half_open_probes: 0, ..GUARD });
    let Glance { in_flight, is_open, is_half_open } = one.rule.glance(one.payload, SECOND);
    assert_eq!((in_flight, is_open, is_half_open), (1, false, false));
}

#[test]
fn each_of_several_probes_makes_room_for_another() {
    let mut one = One::new(ConcurrencyLimit { half_open_probes: 2, max_in_flight: 9, ..GUARD });
    for _ in 0..2 {
        let place = one.take(0);
        assert!(one.end(place, Outcome::Failure, 0));
    }
    let probes = [one.take(SECOND), one.take(SECOND)];
    assert_eq!(one.ask(SECOND), open(0));
    for probe in probes {
        assert!(one.end(probe, Outcome::Abandoned, SECOND));
        let _ = one.take(SECOND);
        assert_eq!(one.ask(SECOND), open(0));
    }
}

#[test]
fn a_lost_probe_makes_no_room_for_another_when_it_comes_back() {
    let mut one = One::new(ConcurrencyLimit { failure_trip: 1, max_in_flight: 9, ..GUARD });
    let failed = one.take(0);
    assert!(one.end(failed, Outcome::Failure, 0));
    let mut lost = one.take(59 * SECOND);
    for now_ns in [119 * SECOND, 179 * SECOND, 239 * SECOND] {
        let probe = one.take(now_ns);
        assert!(one.end(lost, Outcome::Cancelled, now_ns));
        assert_eq!(one.ask(now_ns), open(0), "one probe at a time");
        lost = probe;
    }
    assert!(one.end(lost, Outcome::Abandoned, 239 * SECOND));
    let _ = one.take(239 * SECOND);
}

#[test]
fn a_breaker_that_nobody_touches_comes_to_rest() {
    let mut one = One::new(ConcurrencyLimit { failure_trip: 1, ..GUARD });
    let failed = one.take(0);
    assert!(one.end(failed, Outcome::Failure, 0));
    assert_eq!(one.rule.at_rest_from_ns(one.payload), 61 * SECOND);
    one.take(SECOND);
    assert_eq!(one.rule.at_rest_from_ns(one.payload), 121 * SECOND, "its probe is lost, and it");
    let mut without = ConcurrencyLimit { failure_trip: 1, half_open_probes: 0, ..GUARD };
    without.cooldown_ns = 100 * SECOND;
    let mut one = One::new(without);
    let failed = one.take(0);
    assert!(one.end(failed, Outcome::Failure, 0));
    assert_eq!(one.rule.at_rest_from_ns(one.payload), 100 * SECOND, "closed by then");
}

#[test]
fn a_longer_or_shorter_cooldown_leaves_an_open_breaker_as_it_is() {
    for cooldown_ns in [MS, 50_000 * GUARD.lease_ns] {
        let mut one = One::new(GUARD);
        let _ = [one.take(0), one.take(0)];
        assert_eq!((one.ask(0), one.ask(0)), (Answer::Full, open(SECOND)));
        one.rule = rule(ConcurrencyLimit { cooldown_ns, ..GUARD });
        assert_eq!(one.ask(SECOND / 2), open(SECOND / 2));
        assert!(matches!(one.ask(SECOND), Answer::Full | Answer::Admitted(_)));
    }
}

#[test]
fn a_place_taken_back_leaves_a_refusal_streak_as_it_is() {
    let mut one = One::new(GUARD);
    let (first, _) = (one.take(0), one.take(0));
    assert_eq!(one.ask(0), Answer::Full);
    one.payload = one.rule.take_back(one.payload, first, 0).unwrap();
    one.take(0);
    assert_eq!(one.ask(0), open(SECOND), "the second refusal in a row");
}

fn limits() -> impl Strategy<Value = ConcurrencyLimit> {
    let leases = prop_oneof![
        Just(MS),
        Just(TIME_LIMIT_NS),
        MS..1000 * MS,
        (20..61u32).prop_map(|bits| (1 << bits) + 1),
    ];
    (1..=4095u32, leases, 0..=63u32, 0..=63u32, any::<u64>(), 0..=15u32).prop_map(
        |(max_in_flight, lease_ns, reject_trip, failure_trip, cooldown, half_open_probes)| {
            let most = lease_ns.saturating_mul(50_000).min(TIME_LIMIT_NS);
            let cooldown_ns = MS + cooldown % (most - MS + 1);
            ConcurrencyLimit {
                max_in_flight,
                lease_ns,
                reject_trip,
                failure_trip,
                cooldown_ns,
                half_open_probes,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_place_is_read_as_it_was_written(
        epoch in 0..1u64 << 42, trips in 0..1u64 << 12, wave in prop::option::of(0..=255u32),
    ) {
        let place = Place { epoch, trips, wave };
        prop_assert_eq!(Place::from_word(place.to_word()), Some(place));
        prop_assert_eq!(Place::from_word(place.to_word() & !(1 << 63)), None);
    }

    #[test]
    fn a_guard_is_read_as_it_was_written(
        limit in limits(), epoch: u64, places in prop::array::uniform2(0..=4095u32), counts in prop::array::uniform2(0..=63u32),
        probes in 0..=15u32, wave in 0..=255u32, offset_ms: u64, trips in 0..64u64,
        phase in prop::sample::select(vec![Phase::Closed, Phase::Open, Phase::Probing]),
    ) {
        let rule = rule(limit);
        let epoch = epoch & ((1 << rule.layout.epoch_bits) - 1);
        let offset_ms = offset_ms & ((1 << rule.layout.time_bits) - 1);
        let of_phase = |of, count| if phase == of { count } else { 0 };
        let empty = Guard::unpack(&rule, u128::from(epoch) << 38);
        let guard = Guard {
            epoch,
            current: places[0],
            previous: places[1],
            phase,
            rejects: of_phase(Phase::Closed, counts[0]),
            failures: of_phase(Phase::Closed, counts[1]),
            probes: of_phase(Phase::Probing, probes),
            wave: of_phase(Phase::Probing, wave),
            time_ms: empty.time_ms + offset_ms,
            trips,
        };
        prop_assert_eq!(Guard::unpack(&rule, guard.pack(&rule)), guard);
    }

    #[test]
    fn any_bits_are_a_guard_and_no_count_leaves_its_field(
        limit in limits(), payload: u128, mark: u64, now_ns in 0..TIME_LIMIT_NS, outcome in 0..4usize,
    ) {
        let rule = rule(limit);
        let payload = payload & ((1 << 102) - 1);
        let outcome = [Outcome::Success, Outcome::Failure, Outcome::Abandoned, Outcome::Cancelled]
            [outcome];
        let (next, asked) = rule.ask(payload, now_ns);
        prop_assert!(next.is_none_or(|next| next >> 102 == 0));
        prop_assert!(asked.in_flight <= 2 * 4095);
        if let Some(place) = Place::from_word(mark) {
            prop_assert_eq!(Place::from_word(place.to_word()), Some(place));
            let returned = rule.settle(payload, place, outcome, now_ns);
            prop_assert!(returned.is_none_or(|returned| returned.payload >> 102 == 0));
            let back = rule.take_back(payload, place, now_ns);
            prop_assert!(back.is_none_or(|payload| payload >> 102 == 0));
        }
        let _ = rule.at_rest_from_ns(payload);
        let _ = quota::at_rest_from_unix_ns(payload);
    }

    /// As in a table: at any times, also earlier ones.
    #[test]
    fn what_is_taken_is_given_back_and_what_is_written_is_read(
        limit in limits(), start_ns in 0..TIME_LIMIT_NS,
        steps in prop::collection::vec((any::<u8>(), any::<u64>(), any::<usize>()), 1..60),
    ) {
        let mut one = One::new(limit);
        let mut held: Vec<Place> = Vec::new();
        let (mut now_ns, mut latest_ns) = (start_ns, start_ns);
        for (what, amount, pick) in steps {
            match what % 6 {
                0..=2 => if let Answer::Admitted(place) = one.ask(now_ns) {
                    prop_assert!(one.in_flight(now_ns) <= limit.max_in_flight);
                    prop_assert_eq!(Place::from_word(place.to_word()), Some(place));
                    held.push(place);
                },
                3 => if !held.is_empty() {
                    let place = held.swap_remove(pick % held.len());
                    let before = one.in_flight(now_ns);
                    let outcome = [Outcome::Success, Outcome::Failure, Outcome::Abandoned][pick % 3];
                    let back = one.end(place, outcome, now_ns);
                    prop_assert_eq!(one.in_flight(now_ns), before - u32::from(back));
                },
                4 => now_ns = (now_ns + amount % (3 * limit.lease_ns)).min(TIME_LIMIT_NS - 1),
                _ => now_ns = now_ns.saturating_sub(amount % limit.lease_ns),
            }
            latest_ns = latest_ns.max(now_ns);
            let guard = Guard::unpack(&one.rule, one.payload);
            prop_assert_eq!(guard.pack(&one.rule), one.payload, "{:?}", guard);
            // None is in flight that nobody holds. (One who comes back after the lease changes
            // nothing: an earlier clock still sees the place.)
            prop_assert!(one.in_flight(latest_ns) as usize <= held.len());
            let rest_ns = one.rule.at_rest_from_ns(one.payload);
            prop_assert_eq!(one.rule.glance(one.payload, rest_ns.max(latest_ns)).in_flight, 0);
            // How often the breaker opened is of no use to anybody then.
            let rested = |payload| {
                let (_, asked) = one.rule.ask(payload, rest_ns.max(latest_ns));
                (matches!(asked.answer, Answer::Admitted(_)), asked.in_flight)
            };
            prop_assert_eq!(rested(one.payload), (true, 1));
            prop_assert_eq!(rested(0), (true, 1));
        }
    }
}
