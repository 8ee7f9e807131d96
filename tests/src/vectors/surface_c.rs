//! The vectors through the C ABI: each scenario is told, line by line, to a C program
//! (`tests/c/vectors.c`, which says what the lines mean), and its answers are read back.
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::scenario::Op;
use super::surface_core::CAPACITY;
use super::{Decided, LimitSpec, Observed, Ran, Scenario, Step, Surface};
use crate::c::{self, Language, Linked};
use crate::gates::SECRET;

/// The C library, driven by a C program.
pub struct SurfaceC {
    program: PathBuf,
}

impl SurfaceC {
    /// Builds the library and the program.
    ///
    /// # Panics
    /// Where they can't be built.
    pub fn new() -> Self {
        Self { program: c::compile(&["vectors.c"], Language::C, Linked::Shared) }
    }

    fn tell(&self, lines: String) -> Result<String, String> {
        let mut command = Command::new(&self.program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        let mut input = child.stdin.take().ok_or("the program has no input")?;
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        // It may have stopped at an error before it read all.
        let _ = writer.join();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the C program ended with {}: {said}", output.status));
        }
        String::from_utf8(output.stdout).map_err(|e| e.to_string())
    }
}

impl Default for SurfaceC {
    fn default() -> Self {
        Self::new()
    }
}

impl Surface for SurfaceC {
    fn name(&self) -> &'static str {
        "c"
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["rate", "concurrency", "quota"]
    }

    fn run(&mut self, scenario: &Scenario) -> Result<Ran, String> {
        let answers = self.tell(flatten(scenario)?)?;
        let mut lines = answers.lines();
        match lines.next().unwrap_or_default().split_once(' ') {
            Some(("config_error", field)) => Ok(Ran::ConfigError(field.into())),
            Some(("gate", _)) => Ok(Ran::Steps(lines.map(observed).collect())),
            _ => Err(format!("the C program answered {answers:?}")),
        }
    }
}

/// The scenario as lines.
fn flatten(scenario: &Scenario) -> Result<String, String> {
    let mut lines = String::new();
    let policies = scenario.policies()?;
    let permits = scenario.permit_names();
    let counts = (scenario.limits.len(), policies.len(), permits.len());
    line(&mut lines, &format!("gate {CAPACITY} {} {} {}", counts.0, counts.1, counts.2));
    line(&mut lines, &format!("secret {}", hex(&SECRET)));
    for limit in &scenario.limits {
        line(&mut lines, &format!("limit {}", words(limit)));
    }
    for rules in policies {
        let rules: Vec<_> = rules.iter().map(|(limit, scope)| format!("{limit} {scope}")).collect();
        line(&mut lines, &format!("policy {} {}", rules.len(), rules.join(" ")));
    }
    line(&mut lines, "open");
    for step in &scenario.steps {
        flatten_step(&mut lines, scenario, step, &permits)?;
    }
    Ok(lines)
}

/// A limit as a line has it.
fn words(limit: &LimitSpec) -> String {
    let LimitSpec { kind, count, period_ns, burst, .. } = limit;
    let LimitSpec { max_in_flight, lease_ns, reject_trip, failure_trip, .. } = limit;
    let LimitSpec { cooldown_ns, half_open_probes, limit: units, period_s, .. } = limit;
    let (anchor_unix_s, must_seed) = (limit.anchor_unix_s, u32::from(limit.must_seed));
    match kind.as_str() {
        "rate" => format!("rate {count} {period_ns} {burst}"),
        "concurrency" => format!(
            "concurrency {max_in_flight} {lease_ns} {reject_trip} {failure_trip} {cooldown_ns} \
             {half_open_probes}"
        ),
        kind => format!("{kind} {units} {period_s} {anchor_unix_s} {must_seed}"),
    }
}

fn flatten_step(
    lines: &mut String,
    scenario: &Scenario,
    step: &Step,
    permits: &[&str],
) -> Result<(), String> {
    let slot = permits.iter().position(|name| step.permit.as_deref() == Some(name));
    let slot = slot.map_or("-".to_owned(), |slot| slot.to_string());
    let base = scenario.unix_base_ns;
    match step.op {
        Op::Admit => {
            let single = [step.at];
            let ats = step.ats.as_deref().unwrap_or(&single);
            let ats: Vec<_> = ats.iter().map(u64::to_string).collect();
            let call = format!(
                "{} {} {} {} {}",
                scenario.policy_of(step)?,
                hex(step.caller.as_bytes()),
                hex(step.tool.as_bytes()),
                step.cost,
                step.reserve
            );
            let times =
                format!("{} {} {} {}", step.repeat, step.every_ns, ats.len(), ats.join(" "));
            line(lines, &format!("admit {call} {slot} {base} {times}"));
        }
        Op::Settle => {
            let outcome = step.outcome.as_deref().unwrap_or_default();
            line(lines, &format!("settle {slot} {outcome} {} {base} {}", step.actual, step.at));
        }
        Op::Seed => {
            let limit = step.limit.ok_or("no limit")?;
            let policies = scenario.policies()?;
            let kept = policies.iter().flatten().find(|(of, _)| u64::from(*of) == limit);
            let (_, scope) = kept.ok_or("no policy has the limit")?;
            let caller = hex(step.caller.as_bytes());
            let used = step.used.ok_or("used what?")?;
            line(lines, &format!("seed {limit} {scope} {caller} {used} {base} {}", step.at));
        }
    }
    Ok(())
}

fn line(lines: &mut String, text: &str) {
    lines.push_str(text);
    lines.push('\n');
}

/// Bytes as hex, after an `x` so that nothing at all can be told as well.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::from("x"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What the program says a step came to.
fn observed(line: &str) -> Observed {
    let mut words = line.split(' ');
    match words.next() {
        Some("decided") => {
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            let admitted = number();
            let (by, retry, limit, remaining, reset) =
                (number(), number(), number(), number(), number());
            let all = [admitted, by, retry, limit, remaining, reset];
            let [Some(admitted), Some(by), Some(retry), Some(limit), Some(remaining), Some(reset)] =
                all
            else {
                return Observed::Error(line.into());
            };
            let last = Decided {
                reason: words.next().filter(|reason| *reason != "NONE").map(str::to_owned),
                by: (by != u64::from(u32::MAX)).then_some(by),
                retry_after_ns: retry,
                limit,
                remaining,
                reset_after_ns: reset,
            };
            Observed::Decisions { admitted, last }
        }
        Some("seeded") => match words.next() {
            Some("1") => Observed::Seeded(true),
            Some("0") => Observed::Seeded(false),
            _ => Observed::Error(line.into()),
        },
        Some("settled") => Observed::Settled(words.collect::<Vec<_>>().join(" ")),
        _ => Observed::Error(line.into()),
    }
}
