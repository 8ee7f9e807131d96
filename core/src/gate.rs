//! The gate: decides calls by their policies, all or nothing.
use core::mem::MaybeUninit;

use heapless::Vec;
use portable_atomic::{AtomicU64, Ordering};

use crate::call::{Admission, Call, CallError, Decision, Seeded};
use crate::config::{Config, ConfigError, Field, MAX_RULES};
use crate::key::{Domain, EntryKey, GROUP_SLOTS, Key, Secret, pair};
use crate::limit::{Compiled, Kind, Limit};
use crate::memory::{self, Parts};
use crate::metrics::{Account, Decisions, Guards, Stats, Tallies};
use crate::permit::{Marks, Outcome, Permit, Settled};
use crate::policy::{Policy, PolicyCell, Rule, Scope, limit_bit};
use crate::settings::Settings;
use crate::table::{Charge, Slot, Step, Table};
use crate::time::{TIME_LIMIT_NS, Time};

mod rules;

use rules::Holds;

/// A handle to a gate in memory that lives for `'m`. Copies are handles to the same gate.
#[derive(Clone, Copy)]
pub struct Gate<'m> {
    table: Table<'m>,
    policies: &'m [PolicyCell],
    tallies: Tallies<'m>,
    accounts: &'m [Account],
    /// A [bit](limit_bit) for each limit that is a quota, so that the wall clock matters; only ever set.
    quotas: &'m AtomicU64,
    secret: Secret,
    shared_key: Key,
    fingerprint: u32,
    group_count: u32,
}

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
        let Parts { head, tallies, limits, accounts, policies, slots } =
            memory::carve(memory, config)?;
        let memory::Shared { revision, quotas } = &head.shared.0;
        let settings = Settings::new(revision, limits);
        for (limit, n) in config.limits.iter().zip(0..) {
            if matches!(limit, Limit::Quota(_)) {
                // Relaxed: whoever hands the gate to other threads publishes this with it.
                quotas.fetch_or(limit_bit(n), Ordering::Relaxed);
            }
        }
        settings.init(config.limits.iter().filter_map(|limit| Compiled::new(limit).ok()));
        for (cell, rules) in policies.iter().zip(config.policies) {
            cell.store(rules);
        }
        let secret = Secret::new(config.secret);
        Ok(Self {
            table: Table { slots, horizons: &head.horizons.0, settings },
            policies,
            tallies: Tallies::new(tallies),
            accounts,
            quotas,
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
        let mut permit = None;
        let decision =
            self.admit_to(call, || Ok(time), |_| clock(), |given| permit = Some(given))?;
        Ok(Admission { decision, permit })
    }

    /// As [`admit_by`](Self::admit_by), for a host that has a clock which can fail, and a place for
    /// the permit. The call's `time` is asked for while the memory is on its way to the processor;
    /// `clock` gets that time, to fall back on. The permit of a call that is admitted goes to `keep`:
    /// it is large, and best made where it is to stay.
    ///
    /// # Errors
    /// As [`admit`](Self::admit), and those of `time`. Nothing is charged then.
    #[inline]
    pub fn admit_to<E: From<CallError>>(
        &self,
        call: &Call,
        time: impl FnOnce() -> Result<Time, E>,
        clock: impl Fn(Time) -> Time,
        keep: impl FnOnce(Permit),
    ) -> Result<Decision, E> {
        let policy = self.policy(call)?;
        let (rule, has_more) = policy.first();
        let key = self.entry_key(call, rule);
        self.table.prefetch(&key);
        let time = in_range(time()?)?;
        let revision = self.table.settings.revision();
        let mut holds = Holds::new();
        let decision = if has_more {
            self.charge_all(call, policy, (time, revision), &mut holds, clock)
        } else {
            self.charge_one(call, rule, &key, time, &mut holds)
        };
        if !decision.admitted() {
            return Ok(decision);
        }
        let permit = |marks| Permit::new(self.fingerprint, revision, call, time.now_ns, marks);
        // Apart, so that a permit without marks, as most are, is written but once. Marks come before
        // the count: by the time its locked instruction is over, they are quick to be copied.
        if holds.is_empty() {
            self.tallies.admitted(call.policy);
            keep(permit(Marks::NONE));
        } else {
            let mut marks = Marks::NONE;
            holds.mark(&mut marks);
            self.tallies.admitted(call.policy);
            keep(permit(marks));
        }
        Ok(decision)
    }

    /// Whether the call is one that [`admit`](Self::admit) can decide at that time.
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit).
    pub fn check(&self, call: &Call, time: Time) -> Result<(), CallError> {
        self.policy(call)?;
        in_range(time).map(drop)
    }

    /// What [`admit`](Self::admit) would say to the call, limit by limit, in the policy's order.
    /// Changes nothing.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub fn peek(&self, call: &Call, time: Time) -> Result<Vec<Decision, MAX_RULES>, CallError> {
        let policy = self.policy(call)?;
        let time = in_range(time)?;
        let mut decisions = Vec::new();
        for (_, rule) in policy.rules() {
            // A policy has no more rules than there is room for.
            let _ = decisions.push(self.look(call, rule, time));
        }
        Ok(decisions)
    }

    /// Ends a call: gives back its place, tells breakers how it went, and replaces its reserve in
    /// quotas by the units that it `used`; of one that was [abandoned](Outcome::Abandoned) with 0,
    /// the reserve stays.
    ///
    /// Of a call that was [cancelled](Outcome::Cancelled), every charge is given back as far as
    /// time has not done so already, but not to a rate limit that was reconfigured since.
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
        let time = in_range(time)?;
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
        let policy = self.policies.get(permit.call().policy as usize);
        let (Some(policy), true) = (policy, permit.is_of(self.fingerprint)) else {
            return if permit.is_empty() {
                Ok(Settled::Already)
            } else {
                Err(CallError::UnknownPermit)
            };
        };
        if !permit.take() {
            return Ok(Settled::Already);
        }
        if outcome == Outcome::Cancelled || permit.has_marks() {
            return Ok(self.end(permit, policy.load(), outcome, used, || latest(&clock)));
        }
        Ok(Settled::Now)
    }

    /// Tells a quota what its ledger knows to have been used, once for each caller and window: for
    /// after a restart. The entry is the one that `rule` keeps for the caller and the tool; of the
    /// keys, only those that its scope needs are looked at.
    ///
    /// # Errors
    /// Where there is no such limit, it is no quota, or a key is missing.
    pub fn seed(
        &self,
        rule: Rule,
        caller: Key,
        tool: Key,
        used: u64,
        time: Time,
    ) -> Result<Seeded, CallError> {
        let time = in_range(time)?;
        if usize::from(rule.limit) >= self.accounts.len() {
            return Err(CallError::UnknownLimit);
        }
        if caller.is_absent() && rule.scope.needs_caller() {
            return Err(CallError::MissingCaller);
        }
        if tool.is_absent() && rule.scope.needs_tool() {
            return Err(CallError::MissingTool);
        }
        let Compiled::Quota(allowance) = self.table.settings.kept(rule.limit) else {
            return Err(CallError::NotAQuota);
        };
        let allowance = self.in_window(rule.limit, allowance);
        let call = Call { caller, tool, ..Call::default() };
        let told = self.table.charge(&self.entry_key(&call, rule), time, |payload, at| {
            match allowance.seed(payload, at.unix_ns, used) {
                Some(next) => Step::Write(next, Seeded::Now),
                None => Step::Keep(Seeded::Already),
            }
        });
        Ok(match told {
            Charge::Done(seeded) => seeded,
            Charge::Full { retry_after_ns } => Seeded::TableFull { retry_after_ns },
        })
    }

    /// Sets the window of a quota whose windows are [the host's](crate::Windows::ByHost), in
    /// seconds since the Unix epoch. From any thread, at any time, before the window begins or
    /// after; a window that begins earlier than one that was set is ignored.
    ///
    /// Where nobody has set the next one when a window ends, windows of the same length follow it;
    /// one that is set ahead is preceded by such. A caller who was admitted stays in the window of
    /// that time until it ends.
    ///
    /// # Errors
    /// [`Field::Window`] where it doesn't end after its beginning, is longer than 2^29-1 s, or begins
    /// at 2^35 s or later; [`Field::RuleLimit`] where there is no such limit, [`Field::Kind`]
    /// where it is no quota or has windows of its own.
    pub fn set_window(
        &self,
        limit: u8,
        start_unix_s: u64,
        end_unix_s: u64,
    ) -> Result<(), ConfigError> {
        let blame = |field| ConfigError { limit: Some(limit), ..ConfigError::of(field) };
        let account =
            self.accounts.get(usize::from(limit)).ok_or_else(|| blame(Field::RuleLimit))?;
        match self.table.settings.kept(limit) {
            Compiled::Quota(allowance) if allowance.cycle.is_none() => {}
            _ => return Err(blame(Field::Kind)),
        }
        account.set_window(start_unix_s, end_unix_s).ok_or_else(|| blame(Field::Window))
    }

    /// Changes a limit, for all callers at once. Every caller keeps its debt, but never more than
    /// the new limit can express; nobody gets tokens by it, except those by which a burst is larger.
    /// More calls in flight than a new limit allows end as they would have; an open breaker stays
    /// open until it was to be; a caller's window stays what it is. Not by two threads at once.
    ///
    /// # Errors
    /// Names the field that is out of its range; [`Field::Kind`] where the limit would become one
    /// of another kind, [`Field::LeaseNs`] where it would have another lease. The limit is then as
    /// before.
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
        self.table.settings.check(limit, &compiled)?;
        if compiled.kind() == Kind::Quota {
            // Release: with the one that puts the limit in force, so that whoever decides by it
            // looks at the wall clock.
            self.quotas.fetch_or(limit_bit(limit), Ordering::Release);
        }
        if let Compiled::Concurrency(old) = self.table.settings.kept(limit) {
            // What is over by the old limit is over: else a breaker that is closed, and may have
            // lost its slot, could be half-open again by the new one.
            self.table.amend_all(limit, |payload| match old.age(payload, latest(&clock)) {
                aged if aged == payload => Step::Keep(()),
                aged => Step::Write(aged, ()),
            });
        }
        let before = self.table.settings.kept(limit);
        self.table.settings.write(limit, &compiled);
        if let Compiled::Rate(rate) = compiled {
            let old = if let Compiled::Rate(old) = before { old } else { rate };
            // Who is charged during the walk, in new tokens, may have them counted as old ones: as more,
            // never as fewer.
            self.table.amend_all(limit, |tat| match rate.follow(&old, tat, latest(&clock)) {
                followed if followed == tat => Step::Keep(()),
                followed => Step::Write(followed, ()),
            });
        }
        Ok(())
    }

    /// What the table's slots hold. Walks all of them: for metrics, not for every call.
    pub fn stats(&self, time: Time) -> Stats {
        self.table.census(time)
    }

    /// Who is in flight under a concurrency limit, over all its states, and what its breakers have
    /// done. `None` where there is no such limit or it is none of that kind. Walks the whole table:
    /// for metrics, not for every call.
    pub fn guards(&self, limit: u8, time: Time) -> Option<Guards> {
        let account = self.accounts.get(usize::from(limit))?;
        let Compiled::Concurrency(guard) = self.table.settings.kept(limit) else { return None };
        let mut guards = account.guards();
        self.table.amend_all(limit, |payload| {
            guards.add(guard.glance(payload, time.now_ns));
            Step::Keep(())
        });
        Some(guards)
    }

    /// How many policies there are.
    pub fn policy_count(&self) -> u32 {
        self.policies.len() as u32
    }

    /// How many limits there are.
    pub fn limit_count(&self) -> u8 {
        self.accounts.len() as u8
    }

    /// The limits of a policy, in its order.
    pub(crate) fn limits_of(&self, policy: u32) -> Vec<u8, MAX_RULES> {
        let cell = self.policies.get(policy as usize);
        cell.into_iter().flat_map(|cell| cell.load().rules()).map(|(_, rule)| rule.limit).collect()
    }

    /// The system's time, as this gate needs it: the wall clock is read only where there is a
    /// quota.
    ///
    /// # Errors
    /// Where the system has no such clock.
    #[cfg(feature = "clock")]
    #[inline]
    pub fn system_time(&self) -> Result<Time, crate::ClockError> {
        Self::read(self.quotas() != 0)
    }

    /// The system's time, as calls under the policy of this index need it: the wall clock is read only
    /// where one of its limits is a quota.
    ///
    /// # Errors
    /// Where the system has no such clock.
    #[cfg(feature = "clock")]
    #[inline]
    pub fn system_time_under(&self, policy: u32) -> Result<Time, crate::ClockError> {
        let cell = self.policies.get(policy as usize);
        Self::read(cell.is_some_and(|cell| cell.names_any(self.quotas())))
    }

    #[cfg(feature = "clock")]
    #[inline]
    fn read(wall: bool) -> Result<Time, crate::ClockError> {
        if wall { crate::clock::system_time() } else { crate::clock::monotonic_time() }
    }

    #[cfg(feature = "clock")]
    #[inline]
    fn quotas(&self) -> u64 {
        // Acquire: pairs with the Release in `reconfigure_by`.
        self.quotas.load(Ordering::Acquire)
    }

    /// As [`settle_by`](Self::settle_by), by the system's clock, which is read only where a state
    /// changes. Where it can't be read, the time at which the call was charged stands for the present.
    ///
    /// # Errors
    /// Where the permit is none of this gate's.
    #[cfg(feature = "clock")]
    #[inline]
    pub fn settle_now(
        &self,
        permit: &Permit,
        outcome: Outcome,
        used: u64,
    ) -> Result<Settled, CallError> {
        let clock = || crate::clock::monotonic_time().unwrap_or_else(|_| Time::at(permit.stamp_ns));
        self.settle_by(permit, outcome, used, clock)
    }

    /// What was decided under the policy of this index since the gate was made, if there is one.
    pub fn decisions(&self, policy: u32) -> Option<Decisions> {
        self.policies.get(policy as usize).map(|_| self.tallies.sum(policy))
    }

    /// The call's policy, if it can be decided under it.
    #[inline]
    fn policy(&self, call: &Call) -> Result<Policy, CallError> {
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
}

#[inline]
fn in_range(time: Time) -> Result<Time, CallError> {
    if time.is_in_range() { Ok(time) } else { Err(CallError::TimeOutOfRange) }
}

/// The clock's monotonic time, kept in range.
fn latest(clock: &impl Fn() -> Time) -> u64 {
    clock().now_ns.min(TIME_LIMIT_NS - 1)
}

#[cfg(test)]
mod tests;
