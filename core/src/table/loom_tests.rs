//! The table under loom: every interleaving of a few threads, and all that weakly ordered memory
//! allows, checked on the code itself. What no model can be exhaustive about is bounded by how often
//! a thread is interrupted; that is said at each test.
//!
//! Run by `verify/loom`, which also breaks the table in many ways and sees a test fail.
use std::boxed::Box;
use std::sync::atomic::{AtomicU64 as Count, Ordering::Relaxed};
use std::vec::Vec;

use loom::thread::{JoinHandle, spawn};

use super::atomics::modelled::{begin, stopped_after};
use super::vacancy::GRACE_NS;
use super::*;
use crate::concurrency::{Answer, Concurrency, ConcurrencyLimit, Place};
use crate::key::STORED_BITS;
use crate::limit::{Compiled, Limit};
use crate::memory::zeroed;
use crate::permit::Outcome;
use crate::rate::{self, Rate, RateLimit};
use crate::settings::LimitCell;
use crate::time::ticks;

mod glimpses;
mod places;
mod reclaim;
mod stops;
mod two_inserts;

/// A token comes back in this time: less than the grace time, so that nobody takes over the claim of a
/// thread whose clock is ahead by a token.
const TOKEN_NS: u64 = GRACE_NS / 2;
/// A slow token comes back in this time: of who was admitted, nothing is at rest when claims are stale.
const SLOW_NS: u64 = 4 * GRACE_NS;
const NOW: u64 = 100 * GRACE_NS;
/// Of an entry that is at rest at no time of these tests.
const FAR: u128 = ticks(2 * NOW);

/// By limits: a token, two tokens, a slow token, a place.
const ONE: u8 = 0;
const TWO: u8 = 1;
const SLOW: u8 = 2;
const PLACE: u8 = 3;
const LEASE_NS: u64 = GRACE_NS / 2;

/// Three groups of two slots.
const SLOTS: usize = 3 * GROUP_SLOTS;

/// A table that is begun anew in each execution.
fn table() -> Table<'static> {
    let slots: Vec<Slot> = (0..SLOTS).map(|_| zeroed()).collect();
    let rate = |period_ns, burst| Limit::Rate(RateLimit { count: 1, period_ns, burst });
    let place = Limit::Concurrency(ConcurrencyLimit {
        max_in_flight: 1,
        lease_ns: LEASE_NS,
        reject_trip: 0,
        failure_trip: 0,
        cooldown_ns: 0,
        half_open_probes: 0,
    });
    let cells: Vec<LimitCell> = (0..4).map(|_| zeroed()).collect();
    let settings = Settings::new(Box::leak(Box::default()), cells.leak());
    let limits = [rate(TOKEN_NS, 1), rate(TOKEN_NS, 2), rate(SLOW_NS, 1), place];
    settings.init(limits.iter().map(|limit| Compiled::new(limit).unwrap()));
    Table { slots: slots.leak(), horizons: Box::leak(Box::default()), settings }
}

/// How much of what could happen is looked at.
#[derive(Clone, Copy)]
struct Extent {
    threads: usize,
    /// A thread is interrupted where it need not wait, at most so often in an execution.
    interruptions: Option<usize>,
    /// A compare-and-swap that fails may have seen an older value.
    stale_failures: bool,
}

const fn extent(threads: usize, interruptions: usize) -> Extent {
    Extent { threads, interruptions: Some(interruptions), stale_failures: false }
}

const EVERYTHING: Extent = Extent { threads: 2, interruptions: None, stale_failures: true };

/// Runs `model`, from what `before` puts into the table, in every way in which its threads can meet.
fn check(
    extent: Extent,
    before: impl Fn(&Table<'static>) + Send + Sync + 'static,
    model: impl Fn(Table<'static>) + Send + Sync + 'static,
) {
    let table = table();
    let count: &Count = Box::leak(Box::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = extent.interruptions;
    builder.max_branches = 20_000;
    builder.check(move || {
        count.fetch_add(1, Relaxed);
        begin(extent.threads, extent.stale_failures);
        for slot in table.slots {
            slot.begin(Word(0), 0);
        }
        table.horizons.monotonic_ns.begin(0);
        table.horizons.unix_ns.begin(0);
        before(&table);
        model(table);
    });
    std::println!("{} executions", count.load(Relaxed));
}

impl Slot {
    fn begin(&self, word: Word, keyword: u128) {
        self.state.begin(word.0);
        self.keyword.begin(keyword);
    }
}

/// Key `n` of `limit`, in these groups, the first one preferred.
const fn key(limit: u8, n: u32, [first, second]: [usize; 2]) -> EntryKey {
    let tag = (limit as u128) << STORED_BITS | n as u128;
    EntryKey { tag, groups: [first * GROUP_SLOTS, second * GROUP_SLOTS], places: [0, 0] }
}

impl Table<'static> {
    fn put(&self, index: usize, phase: Phase, payload: u128, key: &EntryKey) {
        let word = Word::new(phase, 1, payload);
        self.slots[index].begin(word, word.keyword(key.tag));
    }

    /// Puts an entry that is never at rest into each of these slots.
    fn occupy(&self, slots: &[usize]) {
        for &index in slots {
            let word = Word::new(Phase::Live, 1, FAR);
            let tag = key(ONE, 1000 + index as u32, [0, 0]).tag;
            self.slots[index].state.begin_still(word.0);
            self.slots[index].keyword.begin_still(word.keyword(tag));
        }
    }

    /// The payloads of the key's live entries.
    fn live(&self, key: &EntryKey) -> Vec<u128> {
        (0..SLOTS)
            .filter_map(|index| self.entry_of(key, index))
            .filter(|word| word.phase() == Phase::Live)
            .map(Word::payload)
            .collect()
    }

    fn phases(&self, phase: Phase) -> usize {
        (0..SLOTS).filter(|&index| self.state(index).phase() == phase).count()
    }

    fn rate(&self, limit: u8) -> Rate {
        match self.settings.kept(limit) {
            Compiled::Rate(rate) => rate,
            other => panic!("{other:?}"),
        }
    }

    fn guard(&self) -> Concurrency {
        match self.settings.kept(PLACE) {
            Compiled::Concurrency(guard) => guard,
            other => panic!("{other:?}"),
        }
    }

    // What follows charges and amends without an attempt before, which would multiply what there is to
    // run; `draw_in_line` alone begins with one.

    /// Takes a token, as `Gate::draw` does.
    fn draw(&self, key: &EntryKey, now_ns: u64) -> Drawn {
        let rate = self.rate((key.tag >> STORED_BITS) as u8);
        let charge =
            self.charge_surely(key, Time::at(now_ns), |tat, at| take(&rate, tat, at.now_ns));
        match charge {
            Charge::Done(drawn) => drawn,
            Charge::Full { .. } => Drawn::Full,
        }
    }

    /// As [`draw`](Self::draw), but first in line, as `Gate::charge_in_line` and `Table::charge` do.
    fn draw_in_line(&self, key: &EntryKey, now_ns: u64) -> Drawn {
        let rate = self.rate((key.tag >> STORED_BITS) as u8);
        let attempt = self.attempt(key, |tat| take(&rate, tat, now_ns));
        attempt.unwrap_or_else(|| self.draw(key, now_ns))
    }

    /// Gives a token back that was taken at `stamp_ns`, as `Gate::refund` does. Whether there was an
    /// entry.
    fn refund(&self, key: &EntryKey, stamp_ns: u64, now_ns: u64) -> bool {
        let rate = self.rate((key.tag >> STORED_BITS) as u8);
        let refunded =
            self.amend_surely(key, |tat| Step::Write(rate.refund(tat, now_ns, 1, stamp_ns), ()));
        refunded.is_some()
    }

    /// Takes the place, as `Gate::enter` does.
    fn enter(&self, key: &EntryKey, now_ns: u64) -> Option<Place> {
        let guard = self.guard();
        let charge = self.charge_surely(key, Time::at(now_ns), |payload, at| {
            match guard.ask(payload, at.now_ns) {
                (Some(next), asked) => Step::Write(next, asked.answer),
                (None, asked) => Step::Keep(asked.answer),
            }
        });
        match charge {
            Charge::Done(Answer::Admitted(place)) => Some(place),
            _ => None,
        }
    }

    /// Gives the place back, as `Gate::leave` does. Whether it had not lapsed.
    fn leave(&self, key: &EntryKey, place: Place, now_ns: u64) -> bool {
        let guard = self.guard();
        let left = self.amend_surely(key, |payload| {
            match guard.settle(payload, place, Outcome::Success, now_ns) {
                Some(returned) => Step::Write(returned.payload, true),
                None => Step::Keep(false),
            }
        });
        left == Some(true)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    /// Charged at this time.
    At(u64),
    Refused,
    Full,
}

fn take(rate: &Rate, tat: u128, now_ns: u64) -> Step<Drawn> {
    match rate.charge(tat, now_ns, 1).0 {
        rate::Charge::Admitted(next) => Step::Write(next, Drawn::At(now_ns)),
        _ => Step::Keep(Drawn::Refused),
    }
}

fn admitted(all: &[Drawn]) -> usize {
    all.iter().filter(|drawn| matches!(drawn, Drawn::At(_))).count()
}

fn drawer(table: Table<'static>, key: EntryKey, now_ns: u64) -> JoinHandle<Drawn> {
    spawn(move || table.draw(&key, now_ns))
}
