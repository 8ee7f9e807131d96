//! Slots that change hands under those who use them.
use super::*;

const MINE: EntryKey = key(ONE, 2, [0, 1]);
const OTHERS: EntryKey = key(ONE, 1, [0, 2]);

/// Slot 0 is at rest from then on, or for its key charged; slot 2, which only its key can have, is free.
fn at_rest_from(from_ns: u64) -> impl Fn(&Table<'static>) {
    move |table| {
        table.put(0, Phase::Live, ticks(from_ns), &MINE);
        table.occupy(&[1, 3, 4, 5]);
    }
}

/// The same, and no slot is free.
fn alone_and_at_rest_from(from_ns: u64) -> impl Fn(&Table<'static>) {
    move |table| {
        table.put(0, Phase::Live, ticks(from_ns), &MINE);
        table.occupy(&[1, 2, 3, 4, 5]);
    }
}

/// A key loses its slot at rest, and a thread of it comes with a time from before that.
#[test]
fn a_stale_time_starts_a_key_no_earlier_than_it_came_to_rest() {
    check(EVERYTHING, at_rest_from(NOW), |table| {
        let other = drawer(table, OTHERS, NOW);
        let stale = table.draw(&MINE, NOW - TOKEN_NS);
        // It was charged then: so either it is refused, or it starts when that charge is paid off.
        assert!(stale == Drawn::Refused || stale == Drawn::At(NOW), "{stale:?}");
        assert_eq!(other.join().unwrap(), Drawn::At(NOW));
        assert_eq!(table.live(&OTHERS), [ticks(NOW + TOKEN_NS)]);
    });
}

/// The key was not there when the thread looked for it, and is gone again when it looks for others that
/// join: it was charged meanwhile, came to rest and lost its slot.
#[test]
fn a_stale_time_misses_no_entry_that_came_and_went() {
    let before = |table: &Table<'static>| table.occupy(&[1, 3, 4, 5]);
    check(extent(2, 2), before, |table| {
        let stale_ns = NOW - TOKEN_NS;
        let other = spawn(move || {
            let charged = table.draw(&MINE, stale_ns);
            table.draw(&OTHERS, NOW);
            charged
        });
        let all = [table.draw(&key(ONE, 2, [1, 0]), stale_ns), other.join().unwrap()];
        let at_once = all.iter().filter(|&&drawn| drawn == Drawn::At(stale_ns)).count();
        assert!(at_once < 2, "one token was given twice: {all:?}");
    });
}

/// As above, with another key whose thread looks for the same free slot.
#[test]
fn a_stale_time_among_three() {
    check(extent(3, 1), at_rest_from(NOW), |table| {
        let other = drawer(table, OTHERS, NOW);
        let third = drawer(table, key(ONE, 3, [1, 2]), NOW);
        let stale = table.draw(&MINE, NOW - TOKEN_NS);
        assert!(matches!(stale, Drawn::Refused | Drawn::At(NOW) | Drawn::Full), "{stale:?}");
        assert_eq!(other.join().unwrap(), Drawn::At(NOW));
        assert!(third.join().unwrap() == Drawn::At(NOW) || stale == Drawn::At(NOW));
    });
}

/// An entry at rest is charged, in line or not, or its slot is given away: never both, never neither.
#[test]
fn a_charge_and_a_newcomer() {
    for charge in [Table::draw, Table::draw_in_line] {
        check(extent(2, 4), alone_and_at_rest_from(NOW), move |table| {
            let other = drawer(table, OTHERS, NOW);
            let mine = charge(&table, &MINE, NOW);
            let others = other.join().unwrap();
            assert_eq!(admitted(&[mine, others]), 1, "{mine:?} {others:?}");
            let of = |key| table.live(key).contains(&ticks(NOW + TOKEN_NS));
            assert_eq!(
                [of(&MINE), of(&OTHERS)],
                [mine, others].map(|drawn| drawn == Drawn::At(NOW))
            );
            assert_eq!(table.phases(Phase::Live), SLOTS);
        });
    }
}

#[test]
fn two_charges_and_a_newcomer() {
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(NOW), &key(TWO, 2, [0, 1]));
        table.occupy(&[1, 2, 3, 4, 5]);
    };
    check(extent(3, 2), before, |table| {
        let mine = key(TWO, 2, [0, 1]);
        let other = drawer(table, OTHERS, NOW);
        let twin = spawn(move || table.draw_in_line(&mine, NOW));
        let all = [table.draw_in_line(&mine, NOW), twin.join().unwrap()];
        match other.join().unwrap() {
            Drawn::At(_) => assert_eq!(admitted(&all), 0, "{all:?}"),
            _ => assert_eq!(table.live(&mine), [ticks(NOW + 2 * TOKEN_NS)], "{all:?}"),
        }
    });
}

/// A charge that lost its entry is not charged to the one that is there now, though that has a token left.
#[test]
fn a_charge_follows_no_slot_to_another_entry() {
    const KEYS: [EntryKey; 2] = [key(TWO, 2, [0, 1]), key(TWO, 1, [0, 2])];
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(NOW), &KEYS[0]);
        table.occupy(&[1, 2, 3, 4, 5]);
    };
    check(extent(2, 4), before, |table| {
        let other = drawer(table, KEYS[1], NOW);
        let all = [table.draw(&KEYS[0], NOW), other.join().unwrap()];
        assert_eq!(admitted(&all), 1, "{all:?}");
        let live = KEYS.map(|key| table.live(&key).contains(&ticks(NOW + TOKEN_NS)));
        assert_eq!(live, all.map(|drawn| drawn == Drawn::At(NOW)));
    });
}

/// A drained entry is refunded: only then may its slot be given away, and the charge is given back once,
/// to nobody else.
#[test]
fn a_refund_and_a_newcomer() {
    check(EVERYTHING, alone_and_at_rest_from(NOW + TOKEN_NS), |table| {
        let other = drawer(table, OTHERS, NOW);
        assert!(table.refund(&MINE, NOW, NOW), "the entry was there until then");
        match other.join().unwrap() {
            Drawn::At(_) => assert_eq!(table.live(&OTHERS), [ticks(NOW + TOKEN_NS)]),
            _ => assert_eq!(table.live(&MINE), [ticks(NOW)]),
        }
    });
}

/// A refund that comes with a stale time to an entry that is at rest for others.
#[test]
fn a_late_refund_gives_nothing_to_who_took_the_slot() {
    check(EVERYTHING, alone_and_at_rest_from(NOW), |table| {
        let other = drawer(table, OTHERS, NOW);
        table.refund(&MINE, NOW - TOKEN_NS, NOW - TOKEN_NS);
        assert_eq!(other.join().unwrap(), Drawn::At(NOW));
        assert_eq!(table.live(&OTHERS), [ticks(NOW + TOKEN_NS)]);
    });
}

/// A JOIN that a late thread left, and those who clear it away, never hide an entry from its refund.
#[test]
fn a_refund_finds_its_entry_behind_a_join() {
    let before = |table: &Table<'static>| {
        let mine = key(TWO, 2, [0, 1]);
        table.put(0, Phase::Live, ticks(NOW + TOKEN_NS), &mine);
        table.put(2, Phase::Join, NOW.into(), &mine);
        table.occupy(&[1, 3, 4, 5]);
    };
    check(extent(3, 2), before, |table| {
        let mine = key(TWO, 2, [0, 1]);
        let refund = spawn(move || table.refund(&key(TWO, 2, [1, 0]), NOW, NOW));
        let other = drawer(table, key(TWO, 2, [1, 0]), NOW);
        let drawn = table.draw(&mine, NOW);
        assert!(refund.join().unwrap());
        // The second of them needs what the refund gives back.
        let tokens = admitted(&[drawn, other.join().unwrap()]) as u64;
        assert!(tokens > 0);
        assert_eq!(table.live(&mine), [ticks(NOW + tokens * TOKEN_NS)]);
    });
}

/// A thread that claimed the only slot, and was held up for longer than the grace time, writes nothing over
/// who took it over.
#[test]
fn a_slow_claimer_and_who_takes_over() {
    let before = |table: &Table<'static>| table.occupy(&[1, 2, 3, 4, 5]);
    check(extent(2, 3), before, |table| {
        let (slow, fast) = (key(SLOW, 1, [0, 1]), key(SLOW, 2, [0, 2]));
        let other = drawer(table, fast, NOW + GRACE_NS);
        let drawn = table.draw(&slow, NOW);
        let all = [drawn, other.join().unwrap()];
        assert_eq!(admitted(&all), 1, "{all:?}");
        let live = [table.live(&slow).len(), table.live(&fast).len()];
        assert_eq!(live, all.map(|drawn| usize::from(matches!(drawn, Drawn::At(_)))));
    });
}

/// A slot's key word may be of a later entry than the state that was seen.
#[test]
fn nobody_takes_anothers_payload_for_its_own() {
    for mine in [MINE, OTHERS] {
        check(EVERYTHING, alone_and_at_rest_from(NOW), move |table| {
            let other = drawer(table, OTHERS, NOW);
            let (payload, _) = table.look(&mine, Time::at(NOW));
            let own = if mine == MINE { ticks(NOW) } else { ticks(NOW + TOKEN_NS) };
            assert!([FRESH, own].contains(&payload));
            assert_eq!(other.join().unwrap(), Drawn::At(NOW));
        });
    }
}
