//! The gate: decides calls by their policies, all or nothing.
use core::fmt;
use core::mem::MaybeUninit;

use heapless::Vec;

use crate::config::{Config, ConfigError, Field, MAX_RULES};
use crate::key::{Domain, EntryKey, GROUP_SLOTS, Key, Secret, pair};
use crate::limit::{Compiled, Limit};
use crate::memory::{self, Parts};
use crate::metrics::{Decisions, Stats, Tallies};
use crate::permit::{Outcome, Permit, Settled};
use crate::policy::{Policy, PolicyCell, Rule, Scope};
use crate::rate::{Charge, Level, Rate};
use crate::settings::{Setting, Settings, is_later};
use crate::table::{self, Slot, Step, Table};
use crate::time::{TIME_LIMIT_NS, Time};

/// A handle to a gate in memory that lives for `'m`. Copies are handles to the same gate.
#[derive(Clone, Copy)]
pub struct Gate<'m> {
    table: Table<'m>,
    policies: &'m [PolicyCell],
    tallies: Tallies<'m>,
    secret: Secret,
    shared_key: Key,
    fingerprint: u32,
    group_count: u32,
}

/// A call to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Who calls; needed where a limit of the policy is kept by caller.
    pub caller: Key,
    /// What is called; needed where a limit of the policy is kept by tool.
    pub tool: Key,
    /// Tokens to take from each rate limit of the policy: 1 for a call, n for a batch of n. 0 asks
    /// whether there is any debt to wait for, and takes nothing.
    pub cost: u64,
    /// Units to set aside in each quota of the policy.
    pub reserve: u64,
    /// The policy's index in the configuration.
    pub policy: u32,
}

impl Default for Call {
    /// One call under the first policy, by nobody, of nothing.
    fn default() -> Self {
        Self { policy: 0, caller: Key::ABSENT, tool: Key::ABSENT, cost: 1, reserve: 0 }
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A rate limit has too few tokens left.
    Rate = 1,
    /// Too many calls are in flight.
    Concurrency = 2,
    /// A breaker is open.
    BreakerOpen = 3,
    /// A quota is used up.
    Quota = 4,
    /// A quota waits to be told what was used before.
    Unseeded = 5,
    /// There is no place for the state of a new caller.
    TableFull = 6,
    /// The cost is above what the limit can ever hold.
    Never = 7,
}

impl Reason {
    pub(crate) const COUNT: usize = 8;
}

/// What was decided about a call.
///
/// Of an admitted call, the figures are those of the limit that has the fewest tokens left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why the call is refused; `None` where it is admitted.
    pub refused: Option<Reason>,
    /// The index of the limit that refused, or that the figures are of; `None` where every limit
    /// is off (`limit` and `remaining` are `u64::MAX` then).
    pub by: Option<u8>,
    /// After this many nanoseconds the call would be admitted, nobody else having charged. 0 where
    /// it is admitted, and where no time is known ([`Reason::Never`], [`Reason::Concurrency`]).
    pub retry_after_ns: u64,
    /// What the limit holds when nobody has charged it.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// After this many nanoseconds all of it is back.
    pub reset_after_ns: u64,
}

impl Decision {
    const UNLIMITED: Self = Self {
        refused: None,
        by: None,
        retry_after_ns: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after_ns: 0,
    };

    /// No place for the state of `limit`: its figures mean nothing.
    const fn table_full(limit: u8, retry_after_ns: u64) -> Self {
        Self {
            refused: Some(Reason::TableFull),
            by: Some(limit),
            retry_after_ns,
            limit: 0,
            remaining: 0,
            reset_after_ns: 0,
        }
    }

    /// Whether the call may run.
    pub const fn admitted(&self) -> bool {
        self.refused.is_none()
    }
}

/// A decision, with the permit where it admits.
#[derive(Debug)]
pub struct Admission {
    /// What was decided.
    pub decision: Decision,
    /// What the call holds until it is [settled](Gate::settle).
    pub permit: Option<Permit>,
}

/// What is wrong with a call. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallError {
    /// The gate has no policy of this index.
    UnknownPolicy,
    /// The gate has no limit of this index.
    UnknownLimit,
    /// A limit of the policy is kept by caller, and the call has none.
    MissingCaller,
    /// A limit of the policy is kept by tool, and the call has none.
    MissingTool,
    /// The time is not below [`TIME_LIMIT_NS`].
    TimeOutOfRange,
    /// The permit is none of this gate's.
    UnknownPermit,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownPolicy => "policy: not the index of one of the gate's policies",
            Self::UnknownLimit => "limit: not the index of one of the gate's limits",
            Self::MissingCaller => "caller: absent, but the policy keeps a limit by caller",
            Self::MissingTool => "tool: absent, but the policy keeps a limit by tool",
            Self::TimeOutOfRange => "now_ns: must be below 2^61",
            Self::UnknownPermit => "permit: not one that this gate gave",
        })
    }
}

impl core::error::Error for CallError {}

impl<'m> Gate<'m> {
    /// How much memory a gate needs, in slots of 32 bytes.
    ///
    /// # Errors
    /// Where no gate can be made from `config`.
    pub fn slots_needed(config: &Config<'_>) -> Result<usize, ConfigError> {
        memory::slots_needed(config)
    }

    /// Makes a gate in `memory`, which may hold anything before.
    ///
    /// # Errors
    /// Names the field of `config` that is out of its range, or [`Field::Memory`] where the memory
    /// is too short. The memory is left as it was.
    pub fn init(
        memory: &'m mut [MaybeUninit<Slot>],
        config: &Config<'_>,
    ) -> Result<Self, ConfigError> {
        let Parts { head, tallies, limits, policies, slots } = memory::carve(memory, config)?;
        let settings = Settings::new(&head.revision.0, limits);
        settings.init(config.limits.iter().filter_map(|limit| Compiled::new(limit).ok()));
        for (cell, rules) in policies.iter().zip(config.policies) {
            cell.store(rules);
        }
        let secret = Secret::new(config.secret);
        Ok(Self {
            table: Table { slots, horizon: &head.horizon.0, settings },
            policies,
            tallies: Tallies::new(tallies),
            shared_key: secret.shared_key(),
            fingerprint: secret.fingerprint(),
            secret,
            group_count: (slots.len() / GROUP_SLOTS) as u32,
        })
    }

    /// The key of an identity. The empty identity has none: [`Key::ABSENT`].
    pub fn key(&self, domain: Domain, identity: &[u8]) -> Key {
        if identity.is_empty() { Key::ABSENT } else { self.secret.key(domain, identity) }
    }

    /// Decides a call. All limits of its policy are charged, or none is.
    ///
    /// # Errors
    /// Where the call or the time is not one that can be decided. Nothing is charged then.
    #[inline]
    pub fn admit(&self, call: &Call, time: Time) -> Result<Admission, CallError> {
        self.admit_by(call, time, || time)
    }

    /// As [`admit`](Self::admit), with a clock that is read where a limit refuses what others have
    /// admitted: of what a thread that was held up takes back, time may have given back a part
    /// already. Its times must be below [`TIME_LIMIT_NS`].
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    #[inline]
    pub fn admit_by(
        &self,
        call: &Call,
        time: Time,
        clock: impl Fn() -> Time,
    ) -> Result<Admission, CallError> {
        let policy = self.policy(call, time)?;
        let revision = self.table.settings.revision();
        let mut tightest = Decision::UNLIMITED;
        for (n, rule) in policy.rules() {
            let decision = self.charge(call, rule, time.now_ns);
            if let Some(reason) = decision.refused {
                self.tallies.refused(call.policy, n, reason);
                let charged = Charged { call, policy, count: n, revision, now_ns: time.now_ns };
                let decision =
                    if n == 0 { decision } else { self.refuse_after(&charged, decision, clock) };
                return Ok(Admission { decision, permit: None });
            }
            if tightest.by.is_none() || decision.remaining < tightest.remaining {
                tightest = decision;
            }
        }
        self.tallies.admitted(call.policy);
        let permit = Permit::new(self.fingerprint, revision, call, time.now_ns);
        Ok(Admission { decision: tightest, permit: Some(permit) })
    }

    /// Whether the call is one that [`admit`](Self::admit) can decide at that time.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub fn check(&self, call: &Call, time: Time) -> Result<(), CallError> {
        self.policy(call, time).map(drop)
    }

    /// What [`admit`](Self::admit) would say to the call, limit by limit, in the policy's order.
    /// Changes nothing.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub fn peek(&self, call: &Call, time: Time) -> Result<Vec<Decision, MAX_RULES>, CallError> {
        let policy = self.policy(call, time)?;
        let mut decisions = Vec::new();
        for (_, rule) in policy.rules() {
            // A policy has no more rules than there is room for.
            let _ = decisions.push(self.look(call, rule, time.now_ns));
        }
        Ok(decisions)
    }

    /// Ends a call. Of a call that was [cancelled](Outcome::Cancelled), every charge is given back
    /// as far as time has not done so already; a limit that was reconfigured since the call was
    /// admitted takes nothing back. `used` are the units to charge to quotas.
    ///
    /// # Errors
    /// Where the permit is none of this gate's, or the time can't be. The permit is then as before.
    pub fn settle(
        &self,
        permit: &Permit,
        outcome: Outcome,
        used: u64,
        time: Time,
    ) -> Result<Settled, CallError> {
        if !time.is_in_range() {
            return Err(CallError::TimeOutOfRange);
        }
        self.settle_by(permit, outcome, used, || time)
    }

    /// As [`settle`](Self::settle), by a clock that is read as late as possible: a refund for
    /// which time is already giving back would otherwise give back too much. Its times must be
    /// below [`TIME_LIMIT_NS`].
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn settle_by(
        &self,
        permit: &Permit,
        outcome: Outcome,
        used: u64,
        clock: impl Fn() -> Time,
    ) -> Result<Settled, CallError> {
        let _ = used; // No kind of limit counts units yet.
        let policy = self.policies.get(permit.call.policy as usize);
        let (Some(policy), true) = (policy, permit.is_of(self.fingerprint)) else {
            return Err(CallError::UnknownPermit);
        };
        if !permit.take() {
            return Ok(Settled::Already);
        }
        if outcome == Outcome::Cancelled {
            for (_, rule) in policy.load().rules() {
                self.refund(&permit.call, rule, permit.revision, permit.stamp_ns, || {
                    latest(&clock)
                });
            }
        }
        Ok(Settled::Now)
    }

    /// Changes a limit, for all callers at once. Every caller keeps its debt, but never more than
    /// the new limit can express; nobody gets a new burst. Not by two threads at once.
    ///
    /// # Errors
    /// Names the field that is out of its range; [`Field::Kind`] where the limit would become one
    /// of another kind. The limit is then as before.
    pub fn reconfigure(&self, limit: u8, to: &Limit, time: Time) -> Result<(), ConfigError> {
        if !time.is_in_range() {
            return Err(ConfigError::of(Field::Now));
        }
        self.reconfigure_by(limit, to, || time)
    }

    /// As [`reconfigure`](Self::reconfigure), by a clock that is read at each entry: a time from
    /// before the walk would lower what was charged during it. Its times must be below
    /// [`TIME_LIMIT_NS`].
    ///
    /// # Errors
    /// As [`reconfigure`](Self::reconfigure).
    pub fn reconfigure_by(
        &self,
        limit: u8,
        to: &Limit,
        clock: impl Fn() -> Time,
    ) -> Result<(), ConfigError> {
        let compiled = Compiled::new(to).map_err(|e| ConfigError { limit: Some(limit), ..e })?;
        self.table.settings.write(limit, &compiled)?;
        if let Compiled::Rate(rate) = compiled {
            self.table.amend_all(limit, |tat| match rate.clamp(tat, latest(&clock)) {
                clamped if clamped == tat => Step::Keep(()),
                clamped => Step::Write(clamped, ()),
            });
        }
        Ok(())
    }

    /// What the table's slots hold. Walks all of them: for metrics, not for every call.
    pub fn stats(&self, time: Time) -> Stats {
        self.table.census(time.now_ns)
    }

    /// What was decided under the policy of this index since the gate was made, if there is one.
    pub fn decisions(&self, policy: u32) -> Option<Decisions> {
        self.policies.get(policy as usize).map(|_| self.tallies.sum(policy))
    }

    /// The call's policy, if it can be decided under it.
    fn policy(&self, call: &Call, time: Time) -> Result<Policy, CallError> {
        if !time.is_in_range() {
            return Err(CallError::TimeOutOfRange);
        }
        let policy =
            self.policies.get(call.policy as usize).ok_or(CallError::UnknownPolicy)?.load();
        if call.caller.is_absent() && policy.needs_caller() {
            return Err(CallError::MissingCaller);
        }
        if call.tool.is_absent() && policy.needs_tool() {
            return Err(CallError::MissingTool);
        }
        Ok(policy)
    }

    /// Where the state is that `rule` keeps for `call`.
    #[inline]
    fn entry_key(&self, call: &Call, rule: Rule) -> EntryKey {
        let key = match rule.scope {
            Scope::Caller => call.caller,
            Scope::Tool => call.tool,
            Scope::CallerTool => pair(call.caller, call.tool),
            Scope::Shared => self.shared_key,
        };
        EntryKey::new(rule.limit, rule.scope, key, self.group_count)
    }

    /// Charges one limit, or says why not.
    #[inline]
    fn charge(&self, call: &Call, rule: Rule, now_ns: u64) -> Decision {
        let key = self.entry_key(call, rule);
        self.table.prefetch(&key);
        let Some(Setting { limit, .. }) = self.table.settings.read(rule.limit) else {
            return Decision::table_full(rule.limit, 1);
        };
        let Compiled::Rate(rate) = limit else { return Decision::UNLIMITED };
        let step = |tat, at_ns| take(&rate, tat, at_ns, call.cost);
        match self.table.charge(&key, now_ns, step) {
            table::Charge::Done(taken) => taken.decision(rule.limit, &rate, now_ns),
            table::Charge::Full { retry_after_ns } => {
                Decision::table_full(rule.limit, retry_after_ns)
            }
        }
    }

    /// What [`charge`](Self::charge) would say.
    fn look(&self, call: &Call, rule: Rule, now_ns: u64) -> Decision {
        let Some(Setting { limit, .. }) = self.table.settings.read(rule.limit) else {
            return Decision::table_full(rule.limit, 1);
        };
        let Compiled::Rate(rate) = limit else { return Decision::UNLIMITED };
        let (tat, room) = self.table.look(&self.entry_key(call, rule), now_ns);
        match (take(&rate, tat, now_ns, call.cost), room) {
            (Step::Write(..), Err(retry_after_ns)) => {
                Decision::table_full(rule.limit, retry_after_ns)
            }
            (Step::Keep(taken) | Step::Write(_, taken), _) => {
                taken.decision(rule.limit, &rate, now_ns)
            }
        }
    }

    /// Refuses a call that its first limits have admitted: takes back what it charged there.
    #[cold]
    fn refuse_after(
        &self,
        charged: &Charged<'_>,
        mut decision: Decision,
        clock: impl Fn() -> Time,
    ) -> Decision {
        let Charged { call, policy, count, revision, now_ns } = *charged;
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
            decision.retry_after_ns = self.table.wait_beside(&key, &held, now_ns);
        }
        for rule in rules {
            self.refund(call, rule, revision, now_ns, || latest(&clock));
        }
        decision
    }

    fn is_on(&self, limit: u8) -> bool {
        let setting = self.table.settings.read(limit);
        setting.is_some_and(|setting| setting.limit != Compiled::Off)
    }

    /// Gives back what a call charged to one limit at `stamp_ns`, when the gate was at `revision`.
    fn refund(
        &self,
        call: &Call,
        rule: Rule,
        revision: u32,
        stamp_ns: u64,
        now_ns: impl Fn() -> u64,
    ) {
        self.table.amend(&self.entry_key(call, rule), |tat| {
            match self.table.settings.read(rule.limit) {
                Some(Setting { limit: Compiled::Rate(rate), changed_at })
                    if !is_later(changed_at, revision) =>
                {
                    Step::Write(rate.refund(tat, now_ns(), call.cost, stamp_ns), ())
                }
                _ => Step::Keep(()),
            }
        });
    }
}

/// The clock's monotonic time, kept in range.
fn latest(clock: &impl Fn() -> Time) -> u64 {
    clock().now_ns.min(TIME_LIMIT_NS - 1)
}

/// A call that the first `count` limits of its policy have admitted.
struct Charged<'a> {
    call: &'a Call,
    policy: Policy,
    count: u8,
    revision: u32,
    now_ns: u64,
}

/// What a rate limit answered, and the bucket's `tat` after that.
struct Taken {
    charge: Charge,
    tat: u128,
}

#[inline]
fn take(rate: &Rate, tat: u128, at_ns: u64, cost: u64) -> Step<Taken> {
    match rate.charge(tat, at_ns, cost) {
        charge @ Charge::Admitted(next) if cost > 0 => {
            Step::Write(next, Taken { charge, tat: next })
        }
        charge => Step::Keep(Taken { charge, tat }),
    }
}

impl Taken {
    #[inline]
    fn decision(&self, limit: u8, rate: &Rate, now_ns: u64) -> Decision {
        let (refused, retry_after_ns) = match self.charge {
            Charge::Admitted(_) => (None, 0),
            Charge::Refused { retry_after_ns } => (Some(Reason::Rate), retry_after_ns),
            Charge::Never => (Some(Reason::Never), 0),
        };
        let Level { remaining, reset_after_ns } = rate.level(self.tat, now_ns);
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

#[cfg(test)]
mod tests;
