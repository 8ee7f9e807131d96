//! What one rule of a policy does to its limit's state: charging, looking, giving back.
use heapless::Vec;

use super::{Gate, latest};
use crate::call::{Call, Decision, Reason};
use crate::concurrency::{self, Asked, Concurrency, Place};
use crate::config::MAX_RULES;
use crate::key::EntryKey;
use crate::limit::{Compiled, Kind};
use crate::metrics::Account;
use crate::permit::{Marks, Outcome, Permit, Settled};
use crate::policy::{Policy, Rule};
use crate::quota::{self, Allowance, Reserved};
use crate::rate::{self, Balance, Level, Rate};
use crate::settings::is_later;
use crate::table::{self, Step};
use crate::time::Time;

/// What a rule has taken of a limit that is not a rate limit, for a call that a later rule may
/// refuse.
#[derive(Clone, Copy)]
struct Hold {
    /// Which rule of the policy.
    n: u8,
    rule: Rule,
    /// What the permit keeps of it.
    mark: u64,
    before: u128,
    after: u128,
}

/// The holds of one call.
pub(super) struct Holds(Vec<Hold, MAX_RULES>);

impl Holds {
    #[inline]
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    fn push(&mut self, hold: Hold) {
        // A policy has no more rules than there is room for.
        let _ = self.0.push(hold);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By rule, what a permit keeps.
    #[inline(never)]
    pub(super) fn mark(&self, marks: &mut Marks) {
        for hold in &self.0 {
            marks.set(hold.n, hold.mark);
        }
    }
}

/// A call that the first `count` limits of its policy have admitted.
pub(super) struct Charged<'a> {
    pub(super) call: &'a Call,
    pub(super) policy: Policy,
    pub(super) count: u8,
    pub(super) revision: u32,
    pub(super) time: Time,
    pub(super) holds: &'a Holds,
}

/// Whether an admitted call's figures had better be these than those of an earlier rule: places
/// only where nothing else is to be told, since they are not used up.
#[inline]
pub(super) fn is_tighter(
    decision: &Decision,
    kind: Kind,
    tightest: &Decision,
    of_places: bool,
) -> bool {
    if decision.by.is_none() || tightest.by.is_none() {
        return tightest.by.is_none();
    }
    let are_places = kind == Kind::Concurrency;
    if are_places == of_places { decision.remaining < tightest.remaining } else { of_places }
}

impl Gate<'_> {
    /// Charges the only limit of a policy, or says why not; a refusal is counted.
    // Not one function with what `charge_all` does for each: that takes a seventh longer.
    #[inline(always)]
    pub(super) fn charge_one(
        &self,
        call: &Call,
        rule: Rule,
        key: &EntryKey,
        time: Time,
        holds: &mut Holds,
    ) -> Decision {
        let decision = self.charge_in_line(call, rule, key, time).unwrap_or_else(|| {
            let mut decision = Decision::UNLIMITED;
            self.charge_anyhow(key, call, (0, rule), time, holds, &mut decision);
            decision
        });
        if let Some(reason) = decision.refused {
            self.tallies.refused(call.policy, 0, reason);
        }
        decision
    }

    /// Charges all limits of a policy, or none; a refusal is counted.
    #[inline(never)]
    pub(super) fn charge_all(
        &self,
        call: &Call,
        policy: Policy,
        (time, revision): (Time, u32),
        holds: &mut Holds,
        clock: impl Fn(Time) -> Time,
    ) -> Decision {
        // The two change places instead of being copied: what was just written in small parts is
        // slow to be read as a whole.
        let (mut first, mut second) = (Decision::UNLIMITED, Decision::UNLIMITED);
        let (mut tightest, mut decision) = (&mut first, &mut second);
        let mut of_places = false;
        for (n, rule) in policy.rules() {
            let key = self.entry_key(call, rule);
            let kind = match self.charge_in_line(call, rule, &key, time) {
                Some(decided) => {
                    *decision = decided;
                    Kind::Rate
                }
                None => self.charge_anyhow(&key, call, (n, rule), time, holds, decision),
            };
            if let Some(reason) = decision.refused {
                self.tallies.refused(call.policy, n, reason);
                if n == 0 {
                    return *decision;
                }
                let charged = Charged { call, policy, count: n, revision, time, holds };
                return self.refuse_after(&charged, *decision, || clock(time));
            }
            if n == 0 || is_tighter(decision, kind, tightest, of_places) {
                of_places = kind == Kind::Concurrency;
                core::mem::swap(&mut tightest, &mut decision);
            }
        }
        *tightest
    }

    /// Charges a limit in the way that nearly every call takes, in line and in registers: a rate
    /// limit, of which the entry is live and changes at the first attempt. `None`: it is not so.
    // `Table::attempt`, written out: through it a decision takes 3 ns more.
    #[inline(always)]
    fn charge_in_line(
        &self,
        call: &Call,
        rule: Rule,
        key: &EntryKey,
        time: Time,
    ) -> Option<Decision> {
        let rate = self.table.settings.read_rate(rule.limit)?;
        let seen = self.table.glimpse(key)?;
        let (taken, is_so) = match take(&rate, seen.payload(), time.now_ns, call.cost) {
            Step::Write(next, taken) => (taken, self.table.replace(&seen, next)),
            Step::Keep(taken) => (taken, self.table.is_still(&seen)),
        };
        // The level only now: it is reckoned while the processor waits for the table.
        is_so.then(|| taken.decision(rule.limit, &rate))
    }

    /// Charges a limit of whatever kind, wherever its entry is or must go. Returns the kind.
    #[inline(never)]
    fn charge_anyhow(
        &self,
        key: &EntryKey,
        call: &Call,
        (n, rule): (u8, Rule),
        time: Time,
        holds: &mut Holds,
        decision: &mut Decision,
    ) -> Kind {
        let Some(setting) = self.table.settings.read(rule.limit) else {
            *decision = self.unread(rule.limit);
            return Kind::None;
        };
        let limit = setting.limit();
        *decision = match &limit {
            Compiled::Off => Decision::UNLIMITED,
            Compiled::Rate(rate) => self.draw(key, call, rule, rate, time),
            Compiled::Concurrency(guard) => self.enter(key, n, rule, guard, time, holds),
            Compiled::Quota(allowance) => {
                self.reserve(key, (n, rule), allowance, call.reserve, time, holds)
            }
        };
        limit.kind()
    }

    /// What is said where a limit can't be read: it is being changed over and over, or the memory was
    /// overwritten and the policy names one that isn't there.
    pub(super) fn unread(&self, limit: u8) -> Decision {
        let by = Some(limit).filter(|limit| *limit < self.limit_count());
        Decision { by, ..Decision::table_full(limit, 1) }
    }

    /// Takes tokens.
    fn draw(&self, key: &EntryKey, call: &Call, rule: Rule, rate: &Rate, time: Time) -> Decision {
        let step = |tat, at: Time| take(rate, tat, at.now_ns, call.cost);
        match self.table.charge_surely(key, time, step) {
            table::Charge::Done(taken) => taken.decision(rule.limit, rate),
            table::Charge::Full { retry_after_ns } => {
                Decision::table_full(rule.limit, retry_after_ns)
            }
        }
    }

    /// Asks for a place.
    fn enter(
        &self,
        key: &EntryKey,
        n: u8,
        rule: Rule,
        guard: &Concurrency,
        time: Time,
        holds: &mut Holds,
    ) -> Decision {
        let charged =
            self.table.charge(key, time, |payload, at: Time| match guard.ask(payload, at.now_ns) {
                (Some(next), asked) => Step::Write(next, (asked, payload, next)),
                (None, asked) => Step::Keep((asked, payload, payload)),
            });
        let (asked, before, after) = match charged {
            table::Charge::Done(done) => done,
            table::Charge::Full { retry_after_ns } => {
                return Decision::table_full(rule.limit, retry_after_ns);
            }
        };
        if let concurrency::Answer::Admitted(place) = asked.answer {
            holds.push(Hold { n, rule, mark: place.to_word(), before, after });
        } else if asked.tripped {
            self.count_trip(rule.limit);
        }
        of_places(&asked, rule.limit, guard)
    }

    /// Sets units aside.
    fn reserve(
        &self,
        key: &EntryKey,
        (n, rule): (u8, Rule),
        allowance: &Allowance,
        units: u64,
        time: Time,
        holds: &mut Holds,
    ) -> Decision {
        let allowance = self.in_window(rule.limit, *allowance);
        let charged = self.table.charge(key, time, |payload, at: Time| {
            match allowance.reserve(payload, at.unix_ns, units) {
                (Some(next), reserved) => Step::Write(next, (reserved, payload, next)),
                (None, reserved) => Step::Keep((reserved, payload, payload)),
            }
        });
        let (reserved, before, after) = match charged {
            table::Charge::Done(done) => done,
            table::Charge::Full { retry_after_ns } => {
                return Decision::table_full(rule.limit, retry_after_ns);
            }
        };
        if reserved.answer == quota::Answer::Admitted {
            holds.push(Hold { n, rule, mark: quota::mark(reserved.end_s), before, after });
        }
        of_units(&reserved, rule.limit, &allowance, time)
    }

    /// The quota with the window that its host has set, where it has none of its own.
    pub(super) fn in_window(&self, limit: u8, allowance: Allowance) -> Allowance {
        let account = self.accounts.get(usize::from(limit));
        let cycle = allowance.cycle.or_else(|| account.map(Account::cycle));
        Allowance { cycle, ..allowance }
    }

    /// What [`charge`](Self::charge) would say.
    pub(super) fn look(&self, call: &Call, rule: Rule, time: Time) -> Decision {
        let Some(setting) = self.table.settings.read(rule.limit) else {
            return self.unread(rule.limit);
        };
        let limit = setting.limit();
        if limit == Compiled::Off {
            return Decision::UNLIMITED;
        }
        let (payload, room) = self.table.look(&self.entry_key(call, rule), time);
        let (decision, writes) = match limit {
            Compiled::Off => return Decision::UNLIMITED,
            Compiled::Rate(rate) => {
                let (taken, writes) = match take(&rate, payload, time.now_ns, call.cost) {
                    Step::Keep(taken) => (taken, false),
                    Step::Write(_, taken) => (taken, true),
                };
                (taken.decision(rule.limit, &rate), writes)
            }
            Compiled::Concurrency(guard) => {
                let (next, asked) = guard.ask(payload, time.now_ns);
                (of_places(&asked, rule.limit, &guard), next.is_some())
            }
            Compiled::Quota(allowance) => {
                let allowance = self.in_window(rule.limit, allowance);
                let (next, reserved) = allowance.reserve(payload, time.unix_ns, call.reserve);
                (of_units(&reserved, rule.limit, &allowance, time), next.is_some())
            }
        };
        match room {
            Err(retry_after_ns) if writes => Decision::table_full(rule.limit, retry_after_ns),
            _ => decision,
        }
    }

    /// Refuses a call that its first limits have admitted: takes back what it charged there.
    #[cold]
    pub(super) fn refuse_after(
        &self,
        charged: &Charged<'_>,
        mut decision: Decision,
        clock: impl Fn() -> Time,
    ) -> Decision {
        let Charged { call, policy, count, revision, time, holds } = *charged;
        let rules = policy.rules().take(usize::from(count)).map(|(_, rule)| rule);
        if let (Some(Reason::TableFull), Some((_, rule))) =
            (decision.refused, policy.rules().nth(usize::from(count)))
        {
            // What the call holds already, it will hold again: no such place is one to wait for.
            let mut held: Vec<EntryKey, MAX_RULES> = Vec::new();
            for rule in rules.clone().filter(|rule| self.is_on(rule.limit)) {
                let _ = held.push(self.entry_key(call, rule));
            }
            let key = self.entry_key(call, rule);
            decision.retry_after_ns = self.table.wait_beside(&key, &held, time);
        }
        for rule in rules {
            self.refund(call, rule, revision, time.now_ns, || latest(&clock));
        }
        for hold in &holds.0 {
            self.let_go(call, hold, time.now_ns);
        }
        decision
    }

    fn is_on(&self, limit: u8) -> bool {
        let setting = self.table.settings.read(limit);
        setting.is_some_and(|setting| setting.limit() != Compiled::Off)
    }

    /// Undoes a hold as if it had never been: where nobody has touched the state since, that is
    /// what it was before.
    fn let_go(&self, call: &Call, hold: &Hold, now_ns: u64) {
        let limit = self.table.settings.kept(hold.rule.limit);
        self.table.amend(&self.entry_key(call, hold.rule), |payload| {
            let undone = if payload == hold.after {
                Some(hold.before)
            } else {
                match (&limit, Place::from_word(hold.mark)) {
                    (Compiled::Concurrency(guard), Some(place)) => {
                        guard.take_back(payload, place, now_ns)
                    }
                    (Compiled::Quota(_), _) => {
                        quota::settle(payload, hold.mark, call.reserve, Outcome::Cancelled, 0)
                    }
                    _ => None,
                }
            };
            match undone {
                Some(undone) => Step::Write(undone, ()),
                None => Step::Keep(()),
            }
        });
    }

    /// Ends a call for each of its policy's limits.
    pub(super) fn end(
        &self,
        permit: &Permit,
        policy: Policy,
        outcome: Outcome,
        used: u64,
        now_ns: impl Fn() -> u64,
    ) -> Settled {
        let mut settled = Settled::Now;
        for (n, rule) in policy.rules() {
            let mark = permit.mark(n);
            if mark == 0 {
                if outcome == Outcome::Cancelled {
                    self.refund(&permit.call(), rule, permit.revision, permit.stamp_ns, &now_ns);
                }
                continue;
            }
            match self.table.settings.kept(rule.limit) {
                Compiled::Concurrency(guard) => {
                    if self.leave(permit, n, rule, &guard, outcome, &now_ns).is_none() {
                        settled = Settled::Lapsed;
                    }
                }
                Compiled::Quota(_) => self.account_for(permit, mark, rule, outcome, used),
                Compiled::Off | Compiled::Rate(_) => {}
            }
        }
        settled
    }

    /// Gives a place back. `None`: it had lapsed.
    fn leave(
        &self,
        permit: &Permit,
        n: u8,
        rule: Rule,
        guard: &Concurrency,
        outcome: Outcome,
        now_ns: impl Fn() -> u64,
    ) -> Option<()> {
        let place = Place::from_word(permit.mark(n));
        let returned = place.and_then(|place| {
            let key = self.entry_key(&permit.call(), rule);
            let returned = self.table.amend(&key, |payload| {
                match guard.settle(payload, place, outcome, now_ns()) {
                    Some(returned) => Step::Write(returned.payload, Some(returned.tripped)),
                    None => Step::Keep(None),
                }
            });
            returned.flatten()
        });
        match returned {
            Some(true) => self.count_trip(rule.limit),
            Some(false) => {}
            None => {
                if let Some(account) = self.accounts.get(usize::from(rule.limit)) {
                    account.count_lapsed();
                }
            }
        }
        returned.map(drop)
    }

    /// Replaces a reserve by what was used.
    fn account_for(&self, permit: &Permit, mark: u64, rule: Rule, outcome: Outcome, used: u64) {
        let call = &permit.call();
        self.table.amend(&self.entry_key(call, rule), |payload| {
            match quota::settle(payload, mark, call.reserve, outcome, used) {
                Some(next) if next != payload => Step::Write(next, ()),
                _ => Step::Keep(()),
            }
        });
    }

    fn count_trip(&self, limit: u8) {
        if let Some(account) = self.accounts.get(usize::from(limit)) {
            account.count_trip();
        }
    }

    /// Gives back what a call charged to one rate limit at `stamp_ns`, when the gate was at
    /// `revision`.
    fn refund(
        &self,
        call: &Call,
        rule: Rule,
        revision: u32,
        stamp_ns: u64,
        now_ns: impl Fn() -> u64,
    ) {
        self.table.amend(&self.entry_key(call, rule), |tat| {
            let setting = self.table.settings.read(rule.limit);
            match setting.and_then(|setting| Some((setting.rate()?, setting.changed_at()))) {
                Some((rate, changed_at)) if !is_later(changed_at, revision) => {
                    Step::Write(rate.refund(tat, now_ns(), call.cost, stamp_ns), ())
                }
                _ => Step::Keep(()),
            }
        });
    }
}

/// What a rate limit answered, and what its bucket has after that.
struct Taken {
    charge: rate::Charge,
    balance: Balance,
}

#[inline(always)]
fn take(rate: &Rate, tat: u128, at_ns: u64, cost: u64) -> Step<Taken> {
    let (charge, balance) = rate.charge(tat, at_ns, cost);
    match charge {
        rate::Charge::Admitted(next) if cost > 0 => Step::Write(next, Taken { charge, balance }),
        _ => Step::Keep(Taken { charge, balance }),
    }
}

impl Taken {
    #[inline(always)]
    fn decision(&self, limit: u8, rate: &Rate) -> Decision {
        let (refused, retry_after_ns) = match self.charge {
            rate::Charge::Admitted(_) => (None, 0),
            rate::Charge::Refused { retry_after_ns } => (Some(Reason::Rate), retry_after_ns),
            rate::Charge::Never => (Some(Reason::Never), 0),
        };
        let Level { remaining, reset_after_ns } = rate.level(self.balance);
        Decision {
            refused,
            by: Some(limit),
            retry_after_ns,
            limit: rate.burst,
            remaining,
            reset_after_ns,
        }
    }
}

fn of_places(asked: &Asked, limit: u8, guard: &Concurrency) -> Decision {
    let (refused, retry_after_ns) = match asked.answer {
        concurrency::Answer::Admitted(_) => (None, 0),
        concurrency::Answer::Full => (Some(Reason::Concurrency), 0),
        concurrency::Answer::BreakerOpen { retry_after_ns } => {
            (Some(Reason::BreakerOpen), retry_after_ns)
        }
    };
    let max_in_flight = guard.limit.max_in_flight;
    Decision {
        refused,
        by: Some(limit),
        retry_after_ns,
        limit: max_in_flight.into(),
        remaining: max_in_flight.saturating_sub(asked.in_flight).into(),
        reset_after_ns: 0,
    }
}

fn of_units(reserved: &Reserved, limit: u8, allowance: &Allowance, time: Time) -> Decision {
    let reset_after_ns = quota::until_ns(reserved.end_s, time.unix_ns);
    let (refused, retry_after_ns) = match reserved.answer {
        quota::Answer::Admitted => (None, 0),
        quota::Answer::UsedUp => (Some(Reason::Quota), reset_after_ns),
        quota::Answer::Unseeded => (Some(Reason::Unseeded), 0),
        quota::Answer::Never => (Some(Reason::Never), 0),
    };
    Decision {
        refused,
        by: Some(limit),
        retry_after_ns,
        limit: allowance.limit,
        remaining: reserved.remaining,
        reset_after_ns,
    }
}
