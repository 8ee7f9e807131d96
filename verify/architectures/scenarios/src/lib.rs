//! The decision vectors as compiled data, and what runs them: for machines without files.
#![no_std]

use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use callgate_core::{
    Call, ConcurrencyLimit, Config, Decision, Domain, Gate, Key, Limit, Outcome, Permit, Quota,
    RateLimit, Reason, Rule, Scope, Seeded, Settled, Slot, Time, Windows,
};

/// What `build.rs` writes.
mod data {
    use super::{
        ConcurrencyLimit, Domain, Expected, File, Known, Limit, Outcome, Quota, RateLimit, Reason,
        Rule, Scenario, Scope, Settled, Step, What, Windows,
    };
    include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));
}

struct File {
    name: &'static str,
    scenarios: &'static [Scenario],
}

struct Scenario {
    name: &'static str,
    limits: &'static [Limit],
    policies: &'static [&'static [Rule]],
    unix_base_ns: u64,
    config_error: Option<&'static str>,
    steps: &'static [Step],
}

struct Step {
    at: u64,
    caller: &'static str,
    /// Where its permit is kept.
    place: Option<u8>,
    what: What,
}

enum What {
    Admit {
        policy: u32,
        tool: &'static str,
        cost: u64,
        reserve: u64,
        repeat: u64,
        every_ns: u64,
        ats: &'static [u64],
        expected: Expected,
    },
    Settle {
        outcome: Outcome,
        used: u64,
        expected: Option<Settled>,
    },
    Seed {
        rule: Rule,
        used: u64,
        expected: Option<bool>,
    },
}

/// What is not said may be anything.
struct Expected {
    /// How many of the step's calls.
    admitted: Option<u64>,
    refused: Option<Option<Reason>>,
    by: Option<u8>,
    /// Wait, limit, remaining, reset.
    figures: [Option<u64>; 4],
}

/// A key as another machine makes it.
struct Known {
    domain: Domain,
    identity: &'static [u8],
    lo: u64,
    hi: u64,
}

/// Slots of memory that are enough for a gate of any scenario.
pub const SLOTS: usize = data::SLOTS;

/// Permits that are held at once in any scenario.
const PERMITS: usize = 24;

/// What came of the scenarios.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Scenarios that went as expected.
    pub passed: u32,
    /// Scenarios and keys that did not.
    pub failed: u32,
}

/// Runs everything in that memory, says what differs, and what was run.
///
/// # Errors
/// Where nothing can be written.
pub fn run(memory: &mut [MaybeUninit<Slot>], out: &mut impl Write) -> Result<Tally, fmt::Error> {
    let mut tally = Tally::default();
    for file in data::FILES {
        let before = tally.passed;
        for scenario in file.scenarios {
            match difference(memory, scenario) {
                None => tally.passed += 1,
                Some(difference) => {
                    tally.failed += 1;
                    writeln!(out, "{}: {}: {difference}", file.name, scenario.name)?;
                }
            }
        }
        writeln!(out, "{}: {} passed", file.name, tally.passed - before)?;
    }
    let strange = strange_keys(memory);
    tally.failed += strange;
    writeln!(
        out,
        "keys: {} of {} as elsewhere",
        data::KEYS.len() as u32 - strange,
        data::KEYS.len()
    )?;
    writeln!(out, "vectors: {} passed, {} failed", tally.passed, tally.failed)?;
    Ok(tally)
}

fn strange_keys(memory: &mut [MaybeUninit<Slot>]) -> u32 {
    let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
    let config =
        Config { capacity: 1, secret: data::SECRET, limits: &[Limit::Off], policies: &[policy] };
    let Ok(gate) = Gate::init(memory, &config) else { return u32::MAX };
    let is_strange = |known: &&Known| {
        gate.key(known.domain, known.identity) != Key { lo: known.lo, hi: known.hi }
    };
    data::KEYS.iter().filter(is_strange).count() as u32
}

/// Where it differs from what is expected.
struct Difference {
    step: usize,
    what: &'static str,
    decision: Option<Decision>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}: {:?}", self.step, self.what, self.decision)
    }
}

fn difference(memory: &mut [MaybeUninit<Slot>], scenario: &Scenario) -> Option<Difference> {
    let config = Config {
        capacity: data::CAPACITY,
        secret: data::SECRET,
        limits: scenario.limits,
        policies: scenario.policies,
    };
    let whole = |what| Some(Difference { step: 0, what, decision: None });
    let gate = match (Gate::init(memory, &config), scenario.config_error) {
        (Ok(gate), None) => gate,
        (Ok(_), Some(_)) => return whole("a gate was made"),
        (Err(error), Some(field)) if error.field.name() == field => return None,
        (Err(error), _) => return whole(error.field.name()),
    };
    let mut permits = [const { Permit::EMPTY }; PERMITS];
    for (n, step) in scenario.steps.iter().enumerate() {
        let time = |at: u64| Time { now_ns: at, unix_ns: scenario.unix_base_ns + at };
        if let Err((what, decision)) = do_step(gate, step, time, &mut permits) {
            return Some(Difference { step: n, what, decision });
        }
    }
    None
}

type Wrong = (&'static str, Option<Decision>);

fn do_step(
    gate: Gate<'_>,
    step: &Step,
    time: impl Fn(u64) -> Time,
    permits: &mut [Permit; PERMITS],
) -> Result<(), Wrong> {
    let caller = gate.key(Domain::Caller, step.caller.as_bytes());
    let mut place = step.place.and_then(|place| permits.get_mut(usize::from(place)));
    if step.place.is_some() && place.is_none() {
        return Err(("too many permits", None));
    }
    match &step.what {
        What::Admit { policy, tool, cost, reserve, repeat, every_ns, ats, expected } => {
            let tool = gate.key(Domain::Tool, tool.as_bytes());
            let call = Call { caller, tool, cost: *cost, reserve: *reserve, policy: *policy };
            let (mut admitted, mut last) = (0, None);
            for n in 0..*repeat {
                let at = match ats {
                    [] => step.at + n * every_ns,
                    ats => ats[n as usize % ats.len()],
                };
                let admission = gate.admit(&call, time(at)).map_err(|_| ("an error", None))?;
                admitted += u64::from(admission.decision.admitted());
                last = Some(admission.decision);
                if let Some(place) = &mut place {
                    **place = admission.permit.unwrap_or(Permit::EMPTY);
                }
            }
            let last = last.ok_or(("no call", None))?;
            match expected.differs(admitted, &last) {
                Some(what) => Err((what, Some(last))),
                None => Ok(()),
            }
        }
        What::Settle { outcome, used, expected } => {
            let permit = place.ok_or(("no permit", None))?;
            let settled = gate.settle(permit, *outcome, *used, time(step.at));
            let settled = settled.map_err(|_| ("an error", None))?;
            let is_right = expected.is_none_or(|expected| expected == settled);
            if is_right { Ok(()) } else { Err(("status", None)) }
        }
        What::Seed { rule, used, expected } => {
            let seeded = gate.seed(*rule, caller, Key::ABSENT, *used, time(step.at));
            let seeded = match seeded.map_err(|_| ("an error", None))? {
                Seeded::Now => true,
                Seeded::Already => false,
                Seeded::TableFull { .. } => return Err(("a full table", None)),
            };
            let is_right = expected.is_none_or(|expected| expected == seeded);
            if is_right { Ok(()) } else { Err(("seeded", None)) }
        }
    }
}

impl Expected {
    fn differs(&self, admitted: u64, last: &Decision) -> Option<&'static str> {
        let is = [last.retry_after_ns, last.limit, last.remaining, last.reset_after_ns];
        if self.admitted.is_some_and(|expected| expected != admitted) {
            return Some("admitted");
        }
        if self.refused.is_some_and(|expected| expected != last.refused) {
            return Some("verdict");
        }
        if self.by.is_some() && self.by != last.by {
            return Some("by");
        }
        let figures = self.figures.iter().zip(is).zip(["wait", "limit", "remaining", "reset"]);
        for ((expected, is), name) in figures {
            if expected.is_some_and(|expected| expected != is) {
                return Some(name);
            }
        }
        None
    }
}
