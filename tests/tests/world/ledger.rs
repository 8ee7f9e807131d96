//! What every caller was given, reckoned as late as any clock has told: the least debt that a
//! caller can have who was given no token too many.
use std::collections::BTreeMap;

use callgate_core::{Gate, Outcome, Permit, Settled, Time};
use callgate_tests::reference::{Call, RateLimit};

pub struct Ledger {
    rate: RateLimit,
    /// The latest time that was ever told.
    pub latest_ns: u64,
    tats: BTreeMap<u32, i128>,
    permits: Vec<(Call, u64, Permit)>,
}

fn ticks(ns: u64) -> i128 {
    i128::from(ns) << 32
}

impl Ledger {
    pub fn new(rate: RateLimit) -> Self {
        Self { rate, latest_ns: 0, tats: BTreeMap::new(), permits: Vec::new() }
    }

    fn amount(&self, call: &Call) -> i128 {
        self.rate.interval() * i128::from(call.cost)
    }

    /// Books an admission, which must not take the bucket deeper than empty.
    pub fn admitted(&mut self, call: &Call, now_ns: u64, permit: Permit) {
        self.latest_ns = self.latest_ns.max(now_ns);
        let amount = self.amount(call);
        if call.cost > 0 {
            let tat = self.tats.entry(call.caller).or_default();
            *tat = (*tat).max(ticks(now_ns)) + amount;
            assert!(*tat <= ticks(self.latest_ns) + self.rate.tau(), "minted for {call:?}");
        }
        self.permits.push((*call, now_ns, permit));
    }

    /// Cancels one of the calls admitted so far, and books the most that it can give back.
    pub fn cancel(&mut self, gate: &Gate<'_>, pick: usize, now_ns: u64) {
        let Some(n) = pick.checked_rem(self.permits.len()) else { return };
        let (call, stamp_ns, permit) = &self.permits[n];
        let settled = gate.settle(permit, Outcome::Cancelled, 0, Time::at(now_ns));
        if settled == Ok(Settled::Now) {
            let amount = self.amount(call);
            let back = amount.min((ticks(*stamp_ns) + amount - ticks(now_ns)).max(0));
            *self.tats.entry(call.caller).or_default() -= back;
        }
    }
}
