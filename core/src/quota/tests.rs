//! The quota by itself: no table, no clock.
use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3600 * SECOND_NS;
const DAY: u64 = 24 * HOUR;

fn quota(limit: u64, period_s: u64, anchor_unix_s: i64) -> Allowance {
    let windows = Windows::Every { period_s, anchor_unix_s };
    Allowance::new(&Quota { limit, windows, must_seed: false }).unwrap()
}

fn reserve(allowance: &Allowance, payload: &mut u128, unix_ns: u64, units: u64) -> Reserved {
    let (next, reserved) = allowance.reserve(*payload, unix_ns, units);
    *payload = next.unwrap_or(*payload);
    reserved
}

#[test]
fn errors_name_the_field() {
    let field = |limit, period_s| {
        let windows = Windows::Every { period_s, anchor_unix_s: 5 };
        Allowance::new(&Quota { limit, windows, must_seed: false }).unwrap_err().field
    };
    assert_eq!(field(0, DAY_S), Field::Limit);
    assert_eq!(field(UNITS_MAX + 1, DAY_S), Field::Limit);
    assert_eq!(field(1, 0), Field::PeriodS);
    assert_eq!(field(1, PERIOD_S_MAX + 1), Field::PeriodS);
    assert_eq!(field(1, u64::MAX), Field::PeriodS);
}

#[test]
fn a_settlement_after_midnight_does_not_touch_the_new_day() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    let yesterday = mark(reserve(&day, &mut payload, DAY - 1, 4).end_s);
    assert_eq!(reserve(&day, &mut payload, DAY, 1).remaining, 9);
    assert_eq!(settle(payload, yesterday, 4, Outcome::Success, 99), None);
    assert_eq!(settle(payload, yesterday, 4, Outcome::Cancelled, 0), None);
}

#[test]
fn an_overdraft_is_what_refuses_the_next_call() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    let held = mark(reserve(&day, &mut payload, 0, 4).end_s);
    payload = settle(payload, held, 4, Outcome::Failure, u64::MAX).unwrap();
    let refused = reserve(&day, &mut payload, 1, 0);
    assert_eq!(refused, Reserved { answer: Answer::UsedUp, remaining: 0, end_s: DAY_S });
}

#[test]
fn an_abandoned_call_pays_its_reserve_where_nobody_knows_better() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    let held = mark(reserve(&day, &mut payload, 0, 4).end_s);
    let left = |used| Account::unpack(settle(payload, held, 4, Outcome::Abandoned, used).unwrap());
    assert_eq!((left(0).used, left(1).used, left(9).used), (4, 1, 9));
}

#[test]
fn a_state_stays_in_its_window_whatever_slower_clocks_say() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    reserve(&day, &mut payload, DAY, 10);
    let late = reserve(&day, &mut payload, DAY - 1, 1);
    assert_eq!((late.answer, late.end_s), (Answer::UsedUp, 2 * DAY_S));
}

#[test]
fn other_windows_begin_where_a_callers_present_one_ends() {
    let mut payload = 0;
    reserve(&quota(10, 3600, 0), &mut payload, 0, 10);
    let day = quota(10, DAY_S, 0);
    assert_eq!(reserve(&day, &mut payload, HOUR - 1, 1).answer, Answer::UsedUp, "no new quota");
    assert_eq!(reserve(&day, &mut payload, HOUR, 1).end_s, DAY_S);
}

#[test]
fn a_reserve_of_nothing_is_remembered_until_the_window_is_over() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    reserve(&day, &mut payload, 5, 0);
    assert_eq!(at_rest_from_unix_ns(payload), DAY);
    assert_eq!(at_rest_from_unix_ns(0), 0);
}

#[test]
fn a_refusal_leaves_the_state_as_it_was() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    reserve(&day, &mut payload, 0, 10);
    for (unix_ns, units, expected) in
        [(0, 1, Answer::UsedUp), (0, 11, Answer::Never), (DAY, 11, Answer::Never)]
    {
        let (next, said) = day.reserve(payload, unix_ns, units);
        assert_eq!((next, said.answer), (None, expected));
    }
}

#[test]
fn a_call_that_was_cancelled_used_nothing_whatever_it_says() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    let mark = mark(reserve(&day, &mut payload, 0, 4).end_s);
    let left = |outcome, used| {
        let mut settled = settle(payload, mark, 4, outcome, used).unwrap();
        reserve(&day, &mut settled, 0, 0).remaining
    };
    assert_eq!(left(Outcome::Cancelled, 3), 10);
    assert_eq!(left(Outcome::Abandoned, 3), 7);
    assert_eq!(left(Outcome::Abandoned, 0), 6);
    assert_eq!(left(Outcome::Failure, 0), 10);
}

#[test]
fn a_ledger_tells_once_in_a_window() {
    let day = quota(10, DAY_S, 0);
    let mut payload = 0;
    reserve(&day, &mut payload, 0, 1);
    payload = day.seed(payload, 0, 5).unwrap();
    assert_eq!(day.seed(payload, DAY - 1, 5), None);
    assert_eq!(reserve(&day, &mut payload, 0, 4).remaining, 0, "added to what was used since");
    assert!(day.seed(payload, DAY, 0).is_some());
}

proptest! {
    #[test]
    fn every_second_lies_in_one_window(
        period_s in 1..=PERIOD_S_MAX, anchor_unix_s: i64, unix_ns: u64, windows in 0..3u64,
    ) {
        let cycle = quota(1, period_s, anchor_unix_s).cycle.unwrap();
        let unix_s = unix_ns / SECOND_NS;
        let end_s = cycle.end_s(unix_s);
        prop_assert!(unix_s < end_s && end_s <= unix_s + period_s);
        let since = i128::from(end_s) - i128::from(anchor_unix_s);
        prop_assert_eq!(since.rem_euclid(i128::from(period_s)), 0);
        prop_assert!(end_s <= END_MASK);
        let later = end_s + windows;
        prop_assert!(cycle.end_s(later) > end_s);
    }

    #[test]
    fn any_bits_are_an_account(
        payload: u128, reserved: u64, mark: u64, used: u64, unix_ns: u64, limit in 1..=UNITS_MAX,
    ) {
        let payload = payload & ((1 << 102) - 1);
        let day = quota(limit, DAY_S, 0);
        let (next, said) = day.reserve(payload, unix_ns, reserved);
        prop_assert!(next.is_none_or(|next| next >> 102 == 0));
        prop_assert!(said.remaining <= limit);
        for outcome in [Outcome::Success, Outcome::Abandoned, Outcome::Cancelled] {
            let next = settle(payload, mark, reserved, outcome, used);
            prop_assert!(next.is_none_or(|next| next >> 102 == 0));
        }
        prop_assert!(day.seed(payload, unix_ns, used).is_none_or(|next| next >> 102 == 0));
        let _ = until_ns(said.end_s, unix_ns);
    }
}
