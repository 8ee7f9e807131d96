//! Entries that are seen half as they were and half as they are.
use super::*;

const MINE: EntryKey = key(ONE, 2, [0, 1]);
/// Nanoseconds whose ticks end in 64 bits of zero: a time below differs from one above in both halves.
const BOUNDARY_NS: u64 = (NOW >> 32) + 1 << 32;

/// A token is given back, and may be seen so or not. Either way there is one: only of a part of each, the
/// later half of the one time and the earlier half of the other, it would seem that there is none.
#[test]
fn nobody_is_refused_by_what_never_was() {
    const BACK_NS: u64 = BOUNDARY_NS - TOKEN_NS / 2;
    const TAKEN_NS: u64 = BACK_NS + TOKEN_NS;
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(TAKEN_NS), &MINE);
        table.occupy(&[1, 2, 3, 4, 5]);
    };
    check(EVERYTHING, before, |table| {
        let other = spawn(move || table.refund(&MINE, BACK_NS, BACK_NS));
        let drawn = table.draw_in_line(&MINE, TAKEN_NS);
        assert!(other.join().unwrap());
        assert_eq!(drawn, Drawn::At(TAKEN_NS));
    });
}

/// Two tokens are taken at once, by times on either side of the boundary: each is charged in full.
#[test]
fn nothing_is_charged_to_what_never_was() {
    const TWICE: EntryKey = key(TWO, 2, [0, 1]);
    const FROM_NS: u64 = BOUNDARY_NS - TOKEN_NS / 2;
    let before = |table: &Table<'static>| {
        table.put(0, Phase::Live, ticks(FROM_NS), &TWICE);
        table.occupy(&[1, 2, 3, 4, 5]);
    };
    check(EVERYTHING, before, |table| {
        let other = spawn(move || table.draw_in_line(&TWICE, FROM_NS));
        let all = [table.draw_in_line(&TWICE, FROM_NS), other.join().unwrap()];
        assert_eq!(all, [Drawn::At(FROM_NS); 2]);
        assert_eq!(table.live(&TWICE), [ticks(FROM_NS + 2 * TOKEN_NS)]);
    });
}
