//! What threads that stop half-way leave behind, set up by hand.
use std::boxed::Box;
use std::vec::Vec;

use super::vacancy::GRACE_NS;
use super::word::{GENERATION_MASK, PAYLOAD_MASK};
use super::*;
use crate::key::{Key, STORED_BITS};
use crate::limit::{Compiled, Limit};
use crate::memory::zeroed;
use crate::metrics::Stats;
use crate::policy::Scope;
use crate::rate::RateLimit;
use crate::settings::LimitCell;
use crate::time::ticks;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 100 * SECOND;

/// A table of two groups, in which every slot is a candidate of every key.
fn table() -> Table<'static> {
    let slots: Vec<Slot> = (0..2 * GROUP_SLOTS).map(|_| zeroed()).collect();
    let cells: Vec<LimitCell> = (0..2).map(|_| zeroed()).collect();
    let settings = Settings::new(Box::leak(Box::default()), cells.leak());
    let limit = Limit::Rate(RateLimit { count: 1, period_ns: SECOND, burst: 2 });
    let compiled = Compiled::new(&limit).unwrap();
    settings.init([compiled, compiled].into_iter());
    Table { slots: slots.leak(), horizons: Box::leak(Box::default()), settings }
}

fn key(n: u64) -> EntryKey {
    let key = Key { lo: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), hi: n };
    EntryKey::new(0, Scope::Caller, key, 2)
}

impl Table<'_> {
    /// Adds a second to the entry's payload, counting from the time it is run at.
    fn add(&self, key: &EntryKey, now_ns: u64) -> Charge<u64> {
        self.charge(key, Time::at(now_ns), |tat, at| {
            Step::Write(tat.max(ticks(at.now_ns)) + ticks(SECOND), at.now_ns)
        })
    }

    fn set(&self, index: usize, word: Word, keyword: u128) {
        self.slots[index].state.store(word.0, Ordering::SeqCst);
        self.slots[index].keyword.store(keyword, Ordering::SeqCst);
    }

    fn phases(&self, phase: Phase) -> usize {
        (0..self.slots.len()).filter(|&n| self.state(n).phase() == phase).count()
    }

    /// Puts an entry that rests from `from_ns` into each slot that is empty.
    fn fill(&self, from_ns: u64) {
        for index in 0..self.slots.len() {
            if self.state(index).phase() == Phase::Empty {
                let word = Word::new(Phase::Live, 1, ticks(from_ns));
                self.set(index, word, word.keyword(key(1000 + index as u64).tag));
            }
        }
    }
}

fn at<T>(charge: &Charge<T>) -> &T {
    match charge {
        Charge::Done(done) => done,
        Charge::Full { retry_after_ns } => panic!("full for {retry_after_ns} ns"),
    }
}

fn wait<T>(charge: &Charge<T>) -> u64 {
    match charge {
        Charge::Done(_) => panic!("there was a place"),
        Charge::Full { retry_after_ns } => *retry_after_ns,
    }
}

#[test]
fn an_entry_is_found_again_wherever_it_went() {
    let table = table();
    for n in 0..12 {
        at(&table.add(&key(n), NOW));
    }
    for n in 0..12 {
        let (tat, _) = table.look(&key(n), Time::at(NOW));
        assert_eq!(tat, ticks(NOW + SECOND), "key {n}");
    }
    assert_eq!(table.phases(Phase::Live), 12);
}

#[test]
fn a_full_table_says_when_the_first_place_is_free() {
    let table = table();
    table.fill(NOW + 5 * SECOND);
    let word = Word::new(Phase::Live, 1, ticks(NOW + 3 * SECOND) - 1);
    table.set(7, word, word.keyword(key(1).tag));
    assert_eq!(wait(&table.add(&key(2), NOW)), 3 * SECOND);
    assert_eq!(wait(&table.add(&key(2), NOW + 3 * SECOND - 1)), 1);
    at(&table.add(&key(2), NOW + 3 * SECOND));
    assert_eq!(table.look(&key(1), Time::at(NOW)).0, FRESH, "its place went to another");
}

#[test]
fn an_empty_slot_goes_first_and_then_the_one_longest_at_rest() {
    let table = table();
    table.fill(NOW - 2 * SECOND);
    table.set(12, Word(0), 0);
    at(&table.add(&key(2), NOW));
    assert!(table.entry_of(&key(2), 12).is_some());
    let oldest = Word::new(Phase::Live, 1, ticks(NOW - 9 * SECOND));
    for longest in 0..2 * GROUP_SLOTS {
        table.set(longest, oldest, oldest.keyword(key(1).tag));
        at(&table.add(&key(3), NOW));
        assert!(table.entry_of(&key(3), longest).is_some());
        let young = Word::new(Phase::Live, 1, ticks(NOW - 2 * SECOND));
        table.set(longest, young, young.keyword(key(1000).tag));
    }
}

#[test]
fn an_entry_goes_to_the_emptier_group_as_near_as_can_be_to_its_place() {
    let taken = |table: &Table<'_>, index: usize| {
        let word = Word::new(Phase::Live, 1, ticks(NOW + SECOND));
        table.set(index, word, word.keyword(key(1000 + index as u64).tag));
    };
    for n in 0..50 {
        let EntryKey { groups: [first, second], places: [first_place, second_place], .. } = key(n);
        let picked = |table: &Table<'_>| table.pick(&key(n), Time::at(NOW)).ok().unwrap().index;
        let table = table();
        assert_eq!(picked(&table), first + first_place, "neither is emptier");
        taken(&table, first + (first_place ^ 5));
        assert_eq!(picked(&table), second + second_place);
        taken(&table, second + second_place);
        assert_eq!(picked(&table), first + first_place, "neither is emptier");
        taken(&table, first + first_place);
        taken(&table, second + (second_place ^ 5));
        assert_eq!(picked(&table), first + (first_place ^ 1));
        taken(&table, first + (first_place ^ 1));
        assert_eq!(picked(&table), second + (second_place ^ 1));
        taken(&table, second + (second_place ^ 2));
        taken(&table, first + (first_place ^ 2));
        assert_eq!(picked(&table), second + (second_place ^ 1));
        taken(&table, second + (second_place ^ 3));
        assert_eq!(picked(&table), second + (second_place ^ 1), "nearer, and both are as full");
    }
}

#[test]
fn a_claim_that_nobody_finishes_is_taken_over_after_the_grace_time() {
    let table = table();
    table.fill(NOW + 100 * SECOND);
    table.set(4, Word::new(Phase::Claimed, 8, u128::from(NOW)), key(9).tag);
    assert_eq!(wait(&table.add(&key(1), NOW + 1)), GRACE_NS - 1);
    at(&table.add(&key(1), NOW + GRACE_NS));
    assert_eq!(table.state(4).generation(), 9);
    assert!(table.entry_of(&key(1), 4).is_some());
}

#[test]
fn a_claim_from_far_ahead_is_taken_over_as_well() {
    let table = table();
    table.fill(NOW + 100 * SECOND);
    table.set(4, Word::new(Phase::Claimed, 8, u128::from(NOW + 50 * SECOND)), 0);
    at(&table.add(&key(1), NOW));
}

#[test]
fn a_join_that_nobody_finishes_is_charged_by_whoever_comes_next() {
    let table = table();
    let join = Word::new(Phase::Join, 3, u128::from(NOW));
    table.set(5, join, join.keyword(key(1).tag));
    assert_eq!(table.look(&key(1), Time::at(NOW)).0, FRESH, "nobody has charged it");
    at(&table.add(&key(1), NOW));
    assert_eq!(table.state(5), Word::new(Phase::Live, 3, ticks(NOW + SECOND)));
    assert_eq!(table.phases(Phase::Live), 1);
}

#[test]
fn a_join_has_nothing_to_give_back() {
    let table = table();
    let join = Word::new(Phase::Join, 3, u128::from(NOW));
    table.set(5, join, join.keyword(key(1).tag));
    assert!(table.amend(&key(1), |_| Step::Write(1, ())).is_none());
    assert_eq!(table.state(5), join);
}

#[test]
fn of_two_joins_of_one_key_the_lower_one_stays() {
    for (met, other) in [(2, 11), (11, 2)] {
        let table = table();
        let join = Word::new(Phase::Join, 3, u128::from(NOW));
        table.set(met, join, join.keyword(key(1).tag));
        table.set(other, join, join.keyword(key(1).tag));
        at(&table.add(&key(1), NOW));
        assert_eq!(table.state(2), Word::new(Phase::Live, 3, ticks(NOW + SECOND)));
        assert_eq!(table.state(11), join.emptied());
    }
}

#[test]
fn a_join_beside_a_live_entry_of_its_key_is_given_up() {
    let table = table();
    let live = Word::new(Phase::Live, 7, ticks(NOW + SECOND));
    table.set(14, live, live.keyword(key(1).tag));
    let join = Word::new(Phase::Join, 3, u128::from(NOW));
    table.set(1, join, join.keyword(key(1).tag));
    let mut step = |tat: u128, _| Step::Write(tat + 1, ());
    assert!(matches!(table.confirm(&key(1), 1, join, Time::at(NOW), &mut step), Pass::Retry));
    assert_eq!(table.state(1), join.emptied());
    assert_eq!(table.state(14), live);
}

#[test]
fn a_join_that_a_late_thread_left_does_not_hide_the_live_entry() {
    for (live_at, join_at) in [(2, 11), (11, 2)] {
        let table = table();
        let join = Word::new(Phase::Join, 3, u128::from(NOW));
        table.set(join_at, join, join.keyword(key(1).tag));
        let live = Word::new(Phase::Live, 7, ticks(NOW + SECOND));
        table.set(live_at, live, live.keyword(key(1).tag));
        assert_eq!(table.look(&key(1), Time::at(NOW)).0, ticks(NOW + SECOND));
        assert!(table.amend(&key(1), |tat| Step::Write(tat - 1, ())).is_some());
        at(&table.add(&key(1), NOW));
        assert_eq!(table.state(live_at).payload(), ticks(NOW + 2 * SECOND) - 1);
    }
}

#[test]
fn a_key_word_of_another_generation_is_not_believed() {
    let table = table();
    let live = Word::new(Phase::Live, 7, ticks(NOW + SECOND));
    let stale = Word::new(Phase::Live, 6, 0).keyword(key(1).tag);
    table.set(4, live, stale);
    assert_eq!(table.look(&key(1), Time::at(NOW)).0, FRESH);
    assert!(table.entry(4).is_none());
}

#[test]
fn an_operation_that_changes_nothing_makes_no_entry() {
    let table = table();
    let charge = table.charge(&key(1), Time::at(NOW), |tat, _| Step::Keep(tat));
    assert_eq!(*at(&charge), FRESH);
    assert_eq!(table.phases(Phase::Empty), table.slots.len());
}

#[test]
fn a_stale_time_starts_a_key_no_earlier_than_its_lost_entry_came_to_rest() {
    let table = table();
    at(&table.add(&key(1), NOW));
    table.fill(NOW + 100 * SECOND);
    at(&table.add(&key(2), NOW + SECOND));
    assert_eq!(table.horizons.monotonic_ns.load(Ordering::SeqCst), NOW + SECOND);
    // Key 1 lost its slot at NOW + 1 s. A thread that read its clock before that comes late.
    let (index, word) = table.find(&key(2)).unwrap();
    table.swap(index, word, word.emptied()).unwrap();
    assert_eq!(*at(&table.add(&key(1), NOW)), NOW + SECOND);
}

#[test]
fn a_slow_claimer_writes_no_key_word_over_a_newer_one() {
    let table = table();
    let newer = Word::new(Phase::Live, 9, ticks(NOW + SECOND));
    table.set(6, newer, newer.keyword(key(1).tag));
    let slow = Word::new(Phase::Claimed, 8, u128::from(NOW));
    assert!(!table.write_keyword(6, slow, key(2).tag));
    assert!(table.entry_of(&key(1), 6).is_some());
    let equal = Word::new(Phase::Claimed, 9, u128::from(NOW));
    assert!(!table.write_keyword(6, equal, key(2).tag));
}

#[test]
fn generations_wrap_around() {
    let last = GENERATION_MASK;
    assert!(not_older(0, last) && !not_older(last, 0));
    assert!(not_older(5, 5) && not_older(6, 5) && !not_older(5, 6));
    assert!(not_older(last / 2, 0) && !not_older(last / 2 + 1, 0));
    let table = table();
    table.fill(NOW + 100 * SECOND);
    let at_rest = Word::new(Phase::Live, last, ticks(NOW));
    table.set(8, at_rest, at_rest.keyword(key(1).tag));
    at(&table.add(&key(2), NOW));
    assert_eq!(table.state(8).generation(), 0);
    assert!(table.entry_of(&key(2), 8).is_some());
}

#[test]
fn a_word_holds_its_parts_whole() {
    let word = Word::new(Phase::Join, GENERATION_MASK, PAYLOAD_MASK);
    assert_eq!((word.phase(), word.generation()), (Phase::Join, GENERATION_MASK));
    assert_eq!(word.payload(), PAYLOAD_MASK);
    assert!(word.is_entry() && !Word::new(Phase::Claimed, 1, 1).is_entry());
    let keyword = word.keyword((63 << STORED_BITS) | 5);
    assert_eq!((generation_of(keyword), limit_of(keyword)), (GENERATION_MASK, 63));
}

#[test]
fn a_live_entry_is_seen_wherever_it_can_be() {
    for n in 0..50 {
        let (key, other) = (key(n), key(n + 1000));
        for index in 0..2 * GROUP_SLOTS {
            let table = table();
            let word = Word::new(Phase::Live, 1, 5);
            table.set(index, word, word.keyword(key.tag));
            let seen = table.glimpse(&key).map(|seen| (seen.index, seen.payload()));
            assert_eq!(seen, Some((index, 5)), "key {n} in {index}");
            assert!(table.glimpse(&other).is_none());
            // An entry that is joining is none to be charged so.
            let join = Word::new(Phase::Join, 1, 5);
            table.set(index, join, join.keyword(key.tag));
            assert!(table.glimpse(&key).is_none());
        }
    }
}

#[cfg(all(
    target_arch = "x86_64",
    target_pointer_width = "64",
    not(portable_atomic_sanitize_thread)
))]
#[test]
fn of_two_lines_the_slot_with_the_entry_is_told_at_once() {
    const NONE: Option<usize> = Some(2 * GROUP_SLOTS);
    for n in 1..50 {
        let (key, other) = (key(n), key(n + 1000));
        let on_lines: Vec<usize> = likeliest(&key).take(4).collect();
        for index in 0..2 * GROUP_SLOTS {
            let table = table();
            table.set(index, Word(0), key.tag);
            let expected = if on_lines.contains(&index) { Some(index) } else { NONE };
            assert_eq!(table.nearest(&key), expected, "key {n} in {index}");
            assert_eq!(table.nearest(&other), NONE);
        }
    }
}

#[test]
fn the_search_takes_a_slot_of_either_group_by_turns_from_the_preferred_places_on() {
    for n in 0..50 {
        let key = key(n);
        let mut slots: Vec<usize> = likeliest(&key).collect();
        for (turn, index) in slots.iter().enumerate() {
            let (group, place) = (key.groups[turn % 2], key.places[turn % 2]);
            assert_eq!(*index, group + (place ^ (turn / 2)), "{slots:?}");
        }
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..2 * GROUP_SLOTS), "all, each once");
    }
}

#[test]
fn an_entry_that_was_seen_is_replaced_unless_it_has_changed_since() {
    let table = table();
    let index = key(1).groups[0] + key(1).places[0];
    let word = Word::new(Phase::Live, 1, 5);
    table.set(index, word, word.keyword(key(1).tag));
    let seen = table.glimpse(&key(1)).unwrap();
    assert!(table.is_still(&seen));
    assert!(table.replace(&seen, 6));
    assert_eq!(table.state(index), Word::new(Phase::Live, 1, 6));
    assert!(!table.is_still(&seen));
    assert!(!table.replace(&seen, 7));
    assert_eq!(table.state(index), Word::new(Phase::Live, 1, 6));
}

#[test]
fn an_attempt_and_what_follows_where_it_fails_do_the_same_to_a_live_entry() {
    let table = table();
    let index = key(1).groups[1] + key(1).places[1];
    let word = Word::new(Phase::Live, 1, 5);
    table.set(index, word, word.keyword(key(1).tag));
    let one_more = |payload| Step::Write(payload + 1, payload);
    assert_eq!(table.attempt(&key(1), one_more), Some(5));
    assert_eq!(
        *at(&table.charge_surely(&key(1), Time::at(NOW), |payload, _| one_more(payload))),
        6
    );
    assert_eq!(table.amend_surely(&key(1), one_more), Some(7));
    assert_eq!(table.state(index), Word::new(Phase::Live, 1, 8));
    assert_eq!(table.attempt(&key(1), Step::Keep), Some(8));
    assert_eq!(
        *at(&table.charge_surely(&key(1), Time::at(NOW), |payload, _| Step::Keep(payload))),
        8
    );
    assert_eq!(table.amend_surely(&key(1), Step::Keep), Some(8));
    assert_eq!(table.state(index), Word::new(Phase::Live, 1, 8));
    // Where there is none, only a charge makes one.
    assert_eq!(table.attempt(&key(2), one_more), None);
    assert_eq!(table.amend_surely(&key(2), one_more), None);
    // One that is joining has nothing to be amended.
    let join = Word::new(Phase::Join, 1, 5);
    table.set(index, join, join.keyword(key(1).tag));
    assert_eq!(table.attempt(&key(1), one_more), None);
    assert_eq!(table.amend_surely(&key(1), one_more), None);
    assert_eq!(table.state(index), join);
}

#[test]
fn every_slot_is_counted_as_what_it_holds() {
    let table = table();
    assert_eq!(table.census(Time::at(NOW)), Stats { slots: 16, empty: 16, ..Stats::default() });
    let places = [
        Word::new(Phase::Claimed, 1, NOW.into()),
        Word::new(Phase::Join, 1, NOW.into()),
        Word::new(Phase::Live, 1, ticks(NOW)),
        Word::new(Phase::Live, 1, ticks(NOW) + 1),
        Word::new(Phase::Live, 1, ticks(NOW + SECOND)),
    ];
    for (index, word) in places.into_iter().enumerate() {
        table.set(index, word, word.keyword(key(index as u64).tag));
    }
    let counted = Stats { slots: 16, live: 2, at_rest: 1, claimed: 2, empty: 11 };
    assert_eq!(table.census(Time::at(NOW)), counted);
}

#[test]
fn a_change_of_all_entries_of_a_limit_leaves_the_others_alone() {
    let table = table();
    let entry = |limit: u128| Word::new(Phase::Live, 1, 5).keyword(limit << STORED_BITS | 1);
    table.set(0, Word::new(Phase::Live, 1, 5), entry(0));
    table.set(1, Word::new(Phase::Live, 1, 5), entry(1));
    table.set(2, Word::new(Phase::Join, 1, 5), entry(0));
    table.set(3, Word::new(Phase::Live, 2, 5), entry(0));
    table.amend_all(0, |payload| Step::Write(payload + 1, ()));
    let payloads = [0, 1, 2, 3].map(|index| table.state(index).payload());
    assert_eq!(payloads, [6, 5, 5, 5]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn this_machine_needs_no_lock() {
    assert!(is_lock_free());
}

#[test]
fn a_change_goes_on_where_another_thread_was_faster_but_not_on_another_entry() {
    let table = table();
    let step = |payload| Step::Write(payload + 1, payload);
    let stale = Word::new(Phase::Live, 1, 5);
    for (now, told, left) in [
        (Word::new(Phase::Live, 1, 8), Some(8), Word::new(Phase::Live, 1, 9)),
        (Word::new(Phase::Live, 2, 8), None, Word::new(Phase::Live, 2, 8)),
        (Word::new(Phase::Join, 1, 8), None, Word::new(Phase::Join, 1, 8)),
        (Word(0), None, Word(0)),
    ] {
        table.set(0, now, now.keyword(key(1).tag));
        let done = match table.change(0, stale, step) {
            Pass::Done(done) => Some(done),
            Pass::Full { .. } => panic!("a change needs no place"),
            Pass::Retry => None,
        };
        assert_eq!((done, table.state(0)), (told, left));
    }
}

#[test]
fn of_two_joins_the_higher_gives_way_to_the_lower() {
    let table = table();
    let join = Word::new(Phase::Join, 1, NOW.into());
    for index in [2, 9] {
        table.set(index, join, join.keyword(key(1).tag));
    }
    let mut step = |tat, _| Step::Write(tat + 1, ());
    assert!(matches!(table.confirm(&key(1), 9, join, Time::at(NOW), &mut step), Pass::Retry));
    assert_eq!([2, 9].map(|index| table.state(index)), [join, join.emptied()]);
}
