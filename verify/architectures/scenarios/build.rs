//! Writes the scenarios of `tests/vectors`, and keys as this machine makes them, as Rust.
//!
//! `CALLGATE_SEEDED=decision` or `=key` falsifies what is expected once, to show that it is looked at.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use callgate_core::{Config, Domain, Gate, Limit, OwnedGate, Rule, Scope};
use callgate_tests::gates::SECRET;
use callgate_tests::vectors::{self, Expectation, LimitSpec, Scenario, Step};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let folder = root.join("tests/vectors");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-env-changed=CALLGATE_SEEDED");
    let seeded = env::var("CALLGATE_SEEDED").unwrap_or_default();
    let mut text = String::new();
    writeln!(text, "pub const SECRET: [u8; 16] = {SECRET:?};").unwrap();
    writeln!(text, "pub static KEYS: &[Known] = &[{}];", keys(seeded == "key")).unwrap();
    writeln!(text, "pub static FILES: &[File] = &[").unwrap();
    let mut slots = 0;
    for file in vectors::files(&folder).unwrap() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let mut scenarios = vectors::read(&file).unwrap();
        if seeded == "decision" {
            falsify(&mut scenarios);
        }
        slots = scenarios.iter().map(slots_needed).fold(slots, usize::max);
        let all: String = scenarios.iter().map(scenario).collect();
        writeln!(text, "File {{ name: {name:?}, scenarios: &[{all}] }},").unwrap();
    }
    writeln!(text, "];").unwrap();
    writeln!(text, "pub const CAPACITY: u32 = {CAPACITY};\npub const SLOTS: usize = {slots};")
        .unwrap();
    fs::write(Path::new(&env::var("OUT_DIR").unwrap()).join("scenarios.rs"), text).unwrap();
}

/// Room for all callers of a scenario.
const CAPACITY: u32 = 8;

/// What a gate of so many and such limits and policies takes, whatever is in them.
fn slots_needed(scenario: &Scenario) -> usize {
    let limits = vec![Limit::Off; scenario.limits.len()];
    let rule = |(limit, scope): &(u32, String)| Rule {
        limit: u8::try_from(*limit).unwrap(),
        scope: match scope.as_str() {
            "SHARED" => Scope::Shared,
            "TOOL" => Scope::Tool,
            "CALLER_TOOL" => Scope::CallerTool,
            _ => Scope::Caller,
        },
    };
    let rules: Vec<Vec<Rule>> =
        scenario.policies().unwrap().iter().map(|p| p.iter().map(rule).collect()).collect();
    let policies: Vec<&[Rule]> = rules.iter().map(Vec::as_slice).collect();
    let config =
        Config { capacity: CAPACITY, secret: SECRET, limits: &limits, policies: &policies };
    // One that is wrong on purpose takes none.
    Gate::slots_needed(&config).unwrap_or(0)
}

fn keys(is_falsified: bool) -> String {
    let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
    let config = Config { capacity: 1, secret: SECRET, limits: &[Limit::Off], policies: &[policy] };
    let owned = OwnedGate::new(&config).unwrap();
    let mut text = String::new();
    for length in 1..=64u8 {
        let identity: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37) ^ length).collect();
        for domain in [Domain::Caller, Domain::Tool] {
            let key = owned.gate().key(domain, &identity);
            let lo = key.lo ^ u64::from(is_falsified && length == 64);
            let hi = key.hi;
            write!(
                text,
                "Known {{ domain: Domain::{domain:?}, identity: &{identity:?}, lo: {lo}, hi: {hi} }},"
            )
            .unwrap();
        }
    }
    text
}

/// The last wait that is expected is a nanosecond longer.
fn falsify(scenarios: &mut [Scenario]) {
    let steps = scenarios.iter_mut().flat_map(|scenario| &mut scenario.steps);
    let expectations = steps.filter_map(|step| step.expect.as_mut());
    if let Some(wait) = expectations.filter_map(|e| e.retry_after_ns.as_mut()).last() {
        *wait += 1;
    }
}

fn scenario(scenario: &Scenario) -> String {
    let Scenario { name, unix_base_ns, config_error, .. } = scenario;
    let limits: String = scenario.limits.iter().map(limit).collect();
    let rule = |(limit, scope): &(u32, String)| {
        format!("Rule {{ limit: {limit}, scope: Scope::{} }},", variant(scope))
    };
    let policies: String = scenario
        .policies()
        .unwrap()
        .iter()
        .map(|rules| format!("&[{}],", rules.iter().map(rule).collect::<String>()))
        .collect();
    let places = places(scenario);
    let steps: String =
        scenario.steps.iter().enumerate().map(|(n, of)| step(scenario, of, places[n])).collect();
    format!(
        "Scenario {{ name: {name:?}, limits: &[{limits}], policies: &[{policies}], \
         unix_base_ns: {unix_base_ns}, config_error: {config_error:?}, steps: &[{steps}] }},\n"
    )
}

fn limit(spec: &LimitSpec) -> String {
    let LimitSpec { count, period_ns, burst, limit, period_s, anchor_unix_s, must_seed, .. } = spec;
    let LimitSpec { max_in_flight, lease_ns, reject_trip, failure_trip, .. } = spec;
    let LimitSpec { cooldown_ns, half_open_probes, .. } = spec;
    match spec.kind.as_str() {
        "rate" => format!(
            "Limit::Rate(RateLimit {{ count: {count}, period_ns: {period_ns}, burst: {burst} }}),"
        ),
        "concurrency" => format!(
            "Limit::Concurrency(ConcurrencyLimit {{ max_in_flight: {max_in_flight}, \
             lease_ns: {lease_ns}, reject_trip: {reject_trip}, failure_trip: {failure_trip}, \
             cooldown_ns: {cooldown_ns}, half_open_probes: {half_open_probes} }}),"
        ),
        "quota" => format!(
            "Limit::Quota(Quota {{ limit: {limit}, must_seed: {must_seed}, windows: \
             Windows::Every {{ period_s: {period_s}, anchor_unix_s: {anchor_unix_s} }} }}),"
        ),
        other => panic!("{}: a limit of the kind {other:?}", spec.kind),
    }
}

/// For each step the place of its permit: small machines have few, so one serves several permits, one
/// after the other.
fn places(scenario: &Scenario) -> Vec<Option<usize>> {
    let mut last = BTreeMap::new();
    for (n, step) in scenario.steps.iter().enumerate() {
        last.extend(step.permit.as_deref().map(|name| (name, n)));
    }
    let mut taken: Vec<Option<&str>> = Vec::new();
    let mut place = |(n, step): (usize, &'_ Step)| {
        let name = step.permit.as_deref()?;
        let name = *last.get_key_value(name)?.0;
        let found = taken.iter().position(|of| *of == Some(name));
        let place = found.or_else(|| taken.iter().position(Option::is_none)).unwrap_or_else(|| {
            taken.push(None);
            taken.len() - 1
        });
        taken[place] = (last[name] > n).then_some(name);
        Some(place)
    };
    scenario.steps.iter().enumerate().map(|(n, step)| place((n, step))).collect()
}

fn step(scenario: &Scenario, step: &Step, place: Option<usize>) -> String {
    let Step { at, caller, tool, cost, reserve, repeat, every_ns, actual, .. } = step;
    let nothing = Expectation::default();
    let expected = step.expect.as_ref().unwrap_or(&nothing);
    let place = place.map(|place| u8::try_from(place).unwrap());
    let what = match format!("{:?}", step.op).as_str() {
        "Admit" => format!(
            "What::Admit {{ policy: {}, tool: {tool:?}, cost: {cost}, reserve: {reserve}, \
             repeat: {repeat}, every_ns: {every_ns}, ats: &{:?}, expected: {} }}",
            scenario.policy_of(step).unwrap(),
            step.ats.as_deref().unwrap_or_default(),
            decision(expected)
        ),
        "Settle" => format!(
            "What::Settle {{ outcome: Outcome::{}, used: {actual}, expected: {} }}",
            variant(step.outcome.as_deref().unwrap()),
            match expected.status.as_deref() {
                None => "None",
                Some("OK") => "Some(Settled::Now)",
                Some("ALREADY_SETTLED") => "Some(Settled::Already)",
                Some("LAPSED") => "Some(Settled::Lapsed)",
                Some(other) => panic!("{}: a status {other:?}", scenario.name),
            }
        ),
        "Seed" => {
            let limit = step.limit.unwrap();
            let policies = scenario.policies().unwrap();
            let of = |rule: &&(u32, String)| u64::from(rule.0) == limit;
            let (_, scope) = policies.iter().flatten().find(of).unwrap();
            format!(
                "What::Seed {{ rule: Rule {{ limit: {limit}, scope: Scope::{} }}, used: {}, \
                 expected: {:?} }}",
                variant(scope),
                step.used.unwrap(),
                expected.seeded
            )
        }
        other => panic!("{}: a step {other:?}", scenario.name),
    };
    format!("Step {{ at: {at}, caller: {caller:?}, place: {place:?}, what: {what} }},")
}

fn decision(expected: &Expectation) -> String {
    let admitted = &expected.admitted;
    // With `repeat`, what is expected of the last stands apart.
    let last = expected.last.as_deref().unwrap_or(expected);
    let refused = match last.verdict.as_deref() {
        None => "None".to_owned(),
        Some("ADMITTED") => "Some(None)".to_owned(),
        Some("REFUSED") => {
            format!("Some(Some(Reason::{}))", variant(last.reason.as_ref().unwrap()))
        }
        Some(other) => panic!("a verdict {other:?}"),
    };
    let Expectation { by, retry_after_ns, limit, remaining, reset_after_ns, .. } = last;
    format!(
        "Expected {{ admitted: {admitted:?}, refused: {refused}, by: {by:?}, \
         figures: [{retry_after_ns:?}, {limit:?}, {remaining:?}, {reset_after_ns:?}] }}"
    )
}

/// `CALLER_TOOL` as `CallerTool`.
fn variant(word: &str) -> String {
    let capital = |part: &str| part[..1].to_owned() + &part[1..].to_lowercase();
    word.split('_').map(capital).collect()
}
