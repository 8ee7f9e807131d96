//! Places that are taken, given back and lapse.
use super::*;

const MINE: EntryKey = key(PLACE, 1, [0, 1]);
/// Nobody has touched it for so long, and the place is gone.
const LAPSED: u64 = NOW + 2 * LEASE_NS;

fn in_flight(table: &Table<'static>, key: &EntryKey, now_ns: u64) -> u32 {
    let live = table.live(key);
    assert!(live.len() < 2);
    live.iter().map(|&payload| table.guard().glance(payload, now_ns).in_flight).sum()
}

/// The one place, taken at `NOW` in slot 0, and what its permit holds.
fn taken(table: &Table<'static>) -> (u128, Place) {
    match table.guard().ask(0, NOW) {
        (Some(payload), asked) => match asked.answer {
            Answer::Admitted(place) => (payload, place),
            answer => panic!("{answer:?}"),
        },
        (None, asked) => panic!("{asked:?}"),
    }
}

fn begin_taken(table: &Table<'static>, occupied: &[usize]) {
    table.put(0, Phase::Live, taken(table).0, &MINE);
    table.occupy(occupied);
}

#[test]
fn of_two_that_ask_one_gets_the_place() {
    check(
        extent(2, 3),
        |table| table.occupy(&[1, 3, 4, 5]),
        |table| {
            let other = spawn(move || table.enter(&key(PLACE, 1, [1, 0]), NOW));
            let mine = table.enter(&MINE, NOW);
            assert!(mine.is_some() != other.join().unwrap().is_some());
            assert_eq!(in_flight(&table, &MINE, NOW), 1);
        },
    );
}

/// A settlement by a clock that is behind, while the place lapses and is given to another.
#[test]
fn who_settles_late_frees_nobody_elses_place() {
    check(
        EVERYTHING,
        |table| begin_taken(table, &[1, 2, 3, 4, 5]),
        |table| {
            let other = spawn(move || table.enter(&MINE, LAPSED));
            table.leave(&MINE, taken(&table).1, NOW + LEASE_NS);
            assert!(other.join().unwrap().is_some(), "it had lapsed, or was given back");
            assert_eq!(in_flight(&table, &MINE, LAPSED), 1);
        },
    );
}

/// The same, where the slot itself goes to another.
#[test]
fn who_settles_late_touches_no_other_entry() {
    check(
        EVERYTHING,
        |table| begin_taken(table, &[1, 2, 3, 4, 5]),
        |table| {
            let others = key(PLACE, 2, [0, 2]);
            let other = spawn(move || table.enter(&others, LAPSED));
            table.leave(&MINE, taken(&table).1, NOW + LEASE_NS);
            assert!(other.join().unwrap().is_some());
            assert_eq!(in_flight(&table, &others, LAPSED), 1);
            assert_eq!(table.phases(Phase::Live), SLOTS);
        },
    );
}

/// One gives the place back in time, one asks again and again: it is given to one more, once.
#[test]
fn a_place_that_is_given_back_is_given_out_once() {
    check(
        extent(3, 3),
        |table| begin_taken(table, &[1, 2, 3, 4, 5]),
        |table| {
            let asking = [0, 1].map(|_| spawn(move || table.enter(&MINE, NOW)));
            assert!(table.leave(&MINE, taken(&table).1, NOW));
            let given = asking.map(|other| other.join().unwrap());
            let given = given.iter().flatten().count();
            assert!(given < 2);
            assert_eq!(in_flight(&table, &MINE, NOW) as usize, given);
        },
    );
}
