//! Threads that insert one key. Some prefer another slot than others, as happens where what is taken
//! changes between their looks.
use super::*;

/// One key, as threads see it that go to the one group or the other.
const fn seen_twice(limit: u8) -> [EntryKey; 2] {
    [key(limit, 1, [0, 1]), key(limit, 1, [1, 0])]
}

fn two_free(table: &Table<'static>) {
    table.occupy(&[1, 3, 4, 5]);
}

/// The key has one entry, nothing else is left, and the bucket is charged for each that was admitted.
fn is_tracked_once(table: &Table<'static>, key: &EntryKey, all: &[Drawn], burst: usize) {
    assert_eq!(admitted(all), all.len().min(burst), "{all:?}");
    let whole = ticks(NOW + TOKEN_NS * admitted(all) as u64);
    assert_eq!(table.live(key), [whole], "{all:?}");
    assert_eq!(table.phases(Phase::Claimed) + table.phases(Phase::Join), 0);
}

fn two_threads(extent: Extent, limit: u8, burst: usize) {
    check(extent, two_free, move |table| {
        let [first, second] = seen_twice(limit);
        let other = drawer(table, second, NOW);
        let all = [table.draw(&first, NOW), other.join().unwrap()];
        is_tracked_once(&table, &first, &all, burst);
    });
}

#[test]
fn of_one_token() {
    two_threads(extent(2, 3), ONE, 1);
}

#[test]
fn of_two_tokens() {
    two_threads(extent(2, 3), TWO, 2);
}

#[test]
fn of_two_tokens_by_stale_failures() {
    two_threads(Extent { stale_failures: true, ..extent(2, 3) }, TWO, 2);
}

#[test]
fn three_threads() {
    check(extent(3, 1), two_free, |table| {
        let [first, second] = seen_twice(TWO);
        let others = [drawer(table, second, NOW), drawer(table, first, NOW)];
        let mine = table.draw(&first, NOW);
        let [a, b] = others.map(|other| other.join().unwrap());
        is_tracked_once(&table, &first, &[mine, a, b], 2);
    });
}

/// A thread that stopped left the key joining; two that meet it finish it.
#[test]
fn two_helpers_of_one_join() {
    let before = |table: &Table<'static>| {
        let [first, _] = seen_twice(TWO);
        table.put(0, Phase::Join, NOW.into(), &first);
        table.occupy(&[1, 3, 4, 5]);
    };
    check(extent(2, 3), before, |table| {
        let [first, second] = seen_twice(TWO);
        let other = drawer(table, second, NOW);
        let all = [table.draw(&first, NOW), other.join().unwrap()];
        is_tracked_once(&table, &first, &all, 2);
    });
}

/// One that stopped left the key joining in each slot.
#[test]
fn two_helpers_of_two_joins() {
    let before = |table: &Table<'static>| {
        let [first, _] = seen_twice(TWO);
        table.put(0, Phase::Join, NOW.into(), &first);
        table.put(2, Phase::Join, NOW.into(), &first);
        table.occupy(&[1, 3, 4, 5]);
    };
    check(extent(2, 3), before, |table| {
        let [first, second] = seen_twice(TWO);
        let other = drawer(table, second, NOW);
        let all = [table.draw(&first, NOW), other.join().unwrap()];
        assert_eq!(admitted(&all), 2, "{all:?}");
        assert_eq!(table.live(&first), [ticks(NOW + 2 * TOKEN_NS)]);
    });
}

/// A JOIN has nothing to give back.
#[test]
fn a_refund_beside_one_that_joins() {
    check(extent(2, 3), two_free, |table| {
        let [first, _] = seen_twice(ONE);
        let other = drawer(table, first, NOW);
        let refunded = table.refund(&first, NOW, NOW);
        assert_eq!(other.join().unwrap(), Drawn::At(NOW));
        assert_eq!(table.live(&first), [ticks(NOW + if refunded { 0 } else { TOKEN_NS })]);
    });
}
