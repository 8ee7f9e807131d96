//! The vectors through `callgate-core`.
use callgate_core::{
    Call, ConcurrencyLimit, Config, Decision, Domain, Gate, Key, Limit, Outcome, OwnedGate, Permit,
    Quota, RateLimit, Reason, Rule, Scope, Seeded, Settled, Time, Windows,
};

use super::scenario::Op;
use super::{Decided, LimitSpec, Observed, Ran, Scenario, Step, Surface};
use crate::gates::SECRET;

/// The engine itself.
pub struct SurfaceCore;

/// Room for all callers.
pub(super) const CAPACITY: u32 = 1000;

impl Surface for SurfaceCore {
    fn name(&self) -> &'static str {
        "core"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["rate", "concurrency", "quota"]
    }

    fn run(&mut self, scenario: &Scenario) -> Result<Ran, String> {
        let limits: Vec<Limit> = scenario.limits.iter().map(limit).collect::<Result<_, _>>()?;
        let rules: Vec<Vec<Rule>> = rules(scenario)?;
        let policies: Vec<&[Rule]> = rules.iter().map(Vec::as_slice).collect();
        let config =
            Config { capacity: CAPACITY, secret: SECRET, limits: &limits, policies: &policies };
        let owned = match OwnedGate::new(&config) {
            Ok(owned) => owned,
            Err(error) => return Ok(Ran::ConfigError(error.field.name().into())),
        };
        let mut session = Session { gate: owned.gate(), scenario, permits: Vec::new() };
        Ok(Ran::Steps(scenario.steps.iter().map(|step| session.step(step)).collect()))
    }
}

fn limit(spec: &LimitSpec) -> Result<Limit, String> {
    let LimitSpec { count, period_ns, burst, .. } = *spec;
    match spec.kind.as_str() {
        "rate" => Ok(Limit::Rate(RateLimit { count, period_ns, burst })),
        "concurrency" => Ok(Limit::Concurrency(ConcurrencyLimit {
            max_in_flight: small(spec.max_in_flight),
            lease_ns: spec.lease_ns,
            reject_trip: small(spec.reject_trip),
            failure_trip: small(spec.failure_trip),
            cooldown_ns: spec.cooldown_ns,
            half_open_probes: small(spec.half_open_probes),
        })),
        "quota" => Ok(Limit::Quota(Quota {
            limit: spec.limit,
            windows: Windows::Every { period_s: spec.period_s, anchor_unix_s: spec.anchor_unix_s },
            must_seed: spec.must_seed,
        })),
        other => Err(format!("kind {other:?}")),
    }
}

/// What is out of every range stays so.
fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn rules(scenario: &Scenario) -> Result<Vec<Vec<Rule>>, String> {
    let rule = |(limit, scope): (u32, String)| {
        let limit = u8::try_from(limit).map_err(|e| format!("limit {limit}: {e}"))?;
        scope_of(&scope).map(|scope| Rule { limit, scope })
    };
    scenario.policies()?.into_iter().map(|p| p.into_iter().map(rule).collect()).collect()
}

fn scope_of(name: &str) -> Result<Scope, String> {
    match name {
        "CALLER" => Ok(Scope::Caller),
        "TOOL" => Ok(Scope::Tool),
        "CALLER_TOOL" => Ok(Scope::CallerTool),
        "SHARED" => Ok(Scope::Shared),
        other => Err(format!("scope {other:?}")),
    }
}

fn outcome_of(name: &str) -> Result<Outcome, String> {
    match name {
        "SUCCESS" => Ok(Outcome::Success),
        "FAILURE" => Ok(Outcome::Failure),
        "ABANDONED" => Ok(Outcome::Abandoned),
        "CANCELLED" => Ok(Outcome::Cancelled),
        other => Err(format!("outcome {other:?}")),
    }
}

struct Session<'s> {
    gate: Gate<'s>,
    scenario: &'s Scenario,
    permits: Vec<(&'s str, Permit)>,
}

impl<'s> Session<'s> {
    fn step(&mut self, step: &'s Step) -> Observed {
        match step.op {
            Op::Admit => self.admit(step),
            Op::Settle => self.settle(step),
            Op::Seed => self.seed(step),
        }
        .unwrap_or_else(Observed::Error)
    }

    fn time(&self, at: u64) -> Time {
        Time { now_ns: at, unix_ns: self.scenario.unix_base_ns.saturating_add(at) }
    }

    fn admit(&mut self, step: &'s Step) -> Result<Observed, String> {
        let call = Call {
            caller: self.gate.key(Domain::Caller, step.caller.as_bytes()),
            tool: self.gate.key(Domain::Tool, step.tool.as_bytes()),
            cost: step.cost,
            reserve: step.reserve,
            policy: self.scenario.policy_of(step)?,
        };
        let (mut admitted, mut last) = (0, Decided::default());
        for at in step.times() {
            let admission =
                self.gate.admit(&call, self.time(at)).map_err(|e| format!("error: {e}"))?;
            admitted += u64::from(admission.decision.admitted());
            last = decided(&admission.decision);
            if let Some(name) = &step.permit {
                self.permits.retain(|(other, _)| other != name);
                self.permits.push((name, admission.permit.unwrap_or(Permit::EMPTY)));
            }
        }
        Ok(Observed::Decisions { admitted, last })
    }

    fn settle(&self, step: &Step) -> Result<Observed, String> {
        let name = step.permit.as_deref().unwrap_or_default();
        let found = self.permits.iter().find(|(other, _)| *other == name);
        let (_, permit) = found.ok_or_else(|| format!("no permit {name:?} was given"))?;
        let outcome = outcome_of(step.outcome.as_deref().unwrap_or_default())?;
        let settled = self.gate.settle(permit, outcome, step.actual, self.time(step.at));
        Ok(Observed::Settled(match settled {
            Ok(Settled::Now) => "OK".into(),
            Ok(Settled::Already) => "ALREADY_SETTLED".into(),
            Ok(Settled::Lapsed) => "LAPSED".into(),
            Err(error) => error.to_string(),
        }))
    }

    /// In the scope in which a policy keeps the limit.
    fn seed(&self, step: &Step) -> Result<Observed, String> {
        let limit = step.limit.and_then(|limit| u8::try_from(limit).ok()).ok_or("no limit")?;
        let rules = rules(self.scenario)?;
        let kept = rules.iter().flatten().find(|rule| rule.limit == limit);
        let rule = *kept.ok_or("no policy has the limit")?;
        let caller = self.gate.key(Domain::Caller, step.caller.as_bytes());
        let used = step.used.ok_or("used what?")?;
        let seeded = self.gate.seed(rule, caller, Key::ABSENT, used, self.time(step.at));
        match seeded.map_err(|e| e.to_string())? {
            Seeded::Now => Ok(Observed::Seeded(true)),
            Seeded::Already => Ok(Observed::Seeded(false)),
            Seeded::TableFull { .. } => Err("the table is full".into()),
        }
    }
}

fn decided(decision: &Decision) -> Decided {
    let reason = decision.refused.map(|reason| match reason {
        Reason::Rate => "RATE",
        Reason::Concurrency => "CONCURRENCY",
        Reason::BreakerOpen => "BREAKER_OPEN",
        Reason::Quota => "QUOTA",
        Reason::Unseeded => "UNSEEDED",
        Reason::TableFull => "TABLE_FULL",
        Reason::Never => "NEVER",
    });
    Decided {
        reason: reason.map(str::to_owned),
        by: decision.by.map(u64::from),
        retry_after_ns: decision.retry_after_ns,
        limit: decision.limit,
        remaining: decision.remaining,
        reset_after_ns: decision.reset_after_ns,
    }
}
