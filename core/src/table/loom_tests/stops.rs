//! Threads that stop for good, before each access to the table that they would make.
use std::sync::atomic::AtomicBool;

use super::*;

/// What stops a thread in one place.
#[derive(Clone, Copy)]
struct Stop {
    after_accesses: u32,
    happened: &'static AtomicBool,
}

impl Stop {
    fn run<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let done = stopped_after(self.after_accesses, work);
        self.happened.fetch_or(done.is_none(), Relaxed);
        done
    }
}

/// Checks `model` with a thread that stops before its first access, its second, and so on, until it is
/// always done before that.
fn check_each_stop(
    extent: Extent,
    before: impl Fn(&Table<'static>) + Send + Sync + Copy + 'static,
    model: impl Fn(Table<'static>, Stop) + Send + Sync + Copy + 'static,
) {
    for after_accesses in 0..1000 {
        let stop = Stop { after_accesses, happened: Box::leak(Box::default()) };
        check(extent, before, move |table| model(table, stop));
        if !stop.happened.load(Relaxed) {
            assert!(after_accesses >= 3, "it makes some accesses");
            return;
        }
    }
    panic!("it is never done");
}

/// Who comes later finds a place in every slot that is not drained, once the grace time is over: whatever
/// stopped keeps none for longer.
fn no_slot_is_lost(table: &Table<'static>) {
    const LATER: u64 = NOW + 2 * GRACE_NS;
    let drained = |&index: &usize| {
        let word = table.state(index);
        word.phase() == Phase::Live && word.payload() > ticks(LATER)
    };
    for n in 0..SLOTS - (0..SLOTS).filter(drained).count() {
        let newcomer = key(SLOW, 10 + n as u32, [0, 1]);
        assert_eq!(table.draw(&newcomer, LATER), Drawn::At(LATER), "newcomer {n}");
    }
    assert_eq!((0..SLOTS).filter(drained).count(), SLOTS);
}

/// One entry, drained, whoever it was that drained it.
fn is_drained_once(table: &Table<'static>, key: &EntryKey) {
    assert_eq!(table.draw(key, NOW), Drawn::Refused);
    assert_eq!(table.live(key), [ticks(NOW + SLOW_NS)]);
}

const DRAINED: EntryKey = key(SLOW, 1, [0, 1]);
const DRAINED_ELSEWHERE: EntryKey = key(SLOW, 1, [1, 0]);

#[test]
fn an_inserter_stops_beside_one_of_its_key() {
    check_each_stop(
        extent(2, 3),
        |table| table.occupy(&[1, 4, 5]),
        |table, stop| {
            let other = spawn(move || stop.run(|| table.draw(&DRAINED, NOW)));
            let mine = table.draw(&DRAINED_ELSEWHERE, NOW);
            let all = [mine, other.join().unwrap().unwrap_or(Drawn::Refused)];
            // Stopped behind its last access, it has charged, and says no more.
            assert!(admitted(&all) < 2 && mine != Drawn::Full, "{all:?}");
            is_drained_once(&table, &DRAINED);
            no_slot_is_lost(&table);
        },
    );
}

#[test]
fn an_inserter_stops_beside_one_that_takes_over() {
    check_each_stop(
        extent(2, 3),
        |table| table.occupy(&[1, 2, 3, 4, 5]),
        |table, stop| {
            let other = spawn(move || stop.run(|| table.draw(&DRAINED, NOW)));
            let mine = table.draw(&key(SLOW, 2, [0, 2]), NOW + GRACE_NS);
            let all = [mine, other.join().unwrap().unwrap_or(Drawn::Refused)];
            assert!(admitted(&all) < 2, "{all:?}");
            no_slot_is_lost(&table);
        },
    );
}

#[test]
fn a_reclaimer_stops_beside_one_of_the_key_at_rest() {
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(NOW), &DRAINED);
        table.occupy(&[1, 3, 4, 5]);
    };
    check_each_stop(extent(2, 3), before, |table, stop| {
        let other = spawn(move || stop.run(|| table.draw(&key(SLOW, 2, [0, 2]), NOW)));
        // By a time at which the key was not at rest yet.
        let stale = table.draw(&DRAINED, NOW - TOKEN_NS);
        assert!(stale == Drawn::Refused || stale == Drawn::At(NOW), "{stale:?}");
        other.join().unwrap();
        assert!(table.live(&DRAINED).len() < 2);
        no_slot_is_lost(&table);
    });
}

#[test]
fn a_helper_stops() {
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Join, NOW.into(), &DRAINED);
        table.put(2, Phase::Join, NOW.into(), &DRAINED);
        table.occupy(&[1, 4, 5]);
    };
    check_each_stop(extent(2, 3), before, |table, stop| {
        let other = spawn(move || stop.run(|| table.draw(&DRAINED, NOW)));
        let mine = table.draw(&DRAINED_ELSEWHERE, NOW);
        let all = [mine, other.join().unwrap().unwrap_or(Drawn::Refused)];
        assert!(admitted(&all) < 2 && mine != Drawn::Full, "{all:?}");
        is_drained_once(&table, &DRAINED);
        no_slot_is_lost(&table);
    });
}

/// What it gives back is given back or not, never in part; a newcomer finds the slot in the one case.
#[test]
fn a_refunder_stops() {
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(NOW + SLOW_NS), &DRAINED);
        table.occupy(&[1, 2, 3, 4, 5]);
    };
    check_each_stop(extent(2, 3), before, |table, stop| {
        let other = spawn(move || {
            stop.run(
                || if table.refund(&DRAINED, NOW, NOW) { Drawn::At(NOW) } else { Drawn::Refused },
            )
        });
        let newcomer = key(SLOW, 2, [0, 2]);
        let mine = table.draw(&newcomer, NOW);
        other.join().unwrap();
        match mine {
            Drawn::At(_) => assert_eq!(table.live(&newcomer), [ticks(NOW + SLOW_NS)]),
            _ => assert!([ticks(NOW), ticks(NOW + SLOW_NS)].contains(&table.live(&DRAINED)[0])),
        }
        assert_eq!(table.phases(Phase::Live), SLOTS);
    });
}
