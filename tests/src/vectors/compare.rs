//! Holds what a surface did against what a scenario expects.
use super::{Decided, Expectation, Observed, Ran, Scenario};

/// The first difference, if there is one.
pub fn difference(scenario: &Scenario, ran: &Ran) -> Option<String> {
    let steps = match (&scenario.config_error, ran) {
        (Some(expected), Ran::ConfigError(field)) if field == expected => return None,
        (Some(expected), ran) => return Some(format!("no error names {expected}: {ran:?}")),
        (None, Ran::ConfigError(field)) => return Some(format!("no gate was made: {field}")),
        (None, Ran::Steps(steps)) => steps,
    };
    if steps.len() != scenario.steps.len() {
        return Some(format!("{} steps of {} were done", steps.len(), scenario.steps.len()));
    }
    for (n, (step, observed)) in scenario.steps.iter().zip(steps).enumerate() {
        let nothing = Expectation::default();
        let expected = step.expect.as_ref().unwrap_or(&nothing);
        if let Some(difference) = of_step(expected, observed) {
            return Some(format!("step {n}: {difference}"));
        }
    }
    None
}

fn of_step(expected: &Expectation, observed: &Observed) -> Option<String> {
    match observed {
        Observed::Error(error) => Some(error.clone()),
        Observed::Settled(status) => differs("status", expected.status.as_ref(), Some(status))
            .or_else(|| differs("seeded", expected.seeded.as_ref(), None))
            .or_else(|| is_no_decision(expected, "a settlement")),
        Observed::Seeded(seeded) => differs("seeded", expected.seeded.as_ref(), Some(seeded))
            .or_else(|| differs("status", expected.status.as_ref(), None))
            .or_else(|| is_no_decision(expected, "a seed")),
        Observed::Decisions { admitted, last } => {
            differs("admitted", expected.admitted.as_ref(), Some(admitted))
                .or_else(|| {
                    expected.last.as_deref().and_then(|expected| of_decision(expected, last))
                })
                .or_else(|| of_decision(expected, last))
        }
    }
}

/// What is not one has no verdict.
fn is_no_decision(expected: &Expectation, what: &str) -> Option<String> {
    let other =
        expected.verdict.is_some() || expected.admitted.is_some() || expected.last.is_some();
    other.then(|| format!("{what} is no decision"))
}

fn of_decision(expected: &Expectation, decided: &Decided) -> Option<String> {
    let verdict = if decided.reason.is_none() { "ADMITTED" } else { "REFUSED" }.to_owned();
    differs("verdict", expected.verdict.as_ref(), Some(&verdict))
        .or_else(|| differs("reason", expected.reason.as_ref(), decided.reason.as_ref()))
        .or_else(|| differs("by", expected.by.as_ref(), decided.by.as_ref()))
        .or_else(|| of_figures(expected, decided))
        .or_else(|| differs("status", expected.status.as_ref(), None))
        .or_else(|| differs("seeded", expected.seeded.as_ref(), None))
}

fn of_figures(expected: &Expectation, decided: &Decided) -> Option<String> {
    [
        ("retry_after_ns", expected.retry_after_ns, decided.retry_after_ns),
        ("limit", expected.limit, decided.limit),
        ("remaining", expected.remaining, decided.remaining),
        ("reset_after_ns", expected.reset_after_ns, decided.reset_after_ns),
    ]
    .iter()
    .find_map(|(name, expected, is)| differs(name, expected.as_ref(), Some(is)))
}

fn differs<T: PartialEq + std::fmt::Debug>(
    name: &str,
    expected: Option<&T>,
    is: Option<&T>,
) -> Option<String> {
    let expected = expected?;
    match is {
        Some(is) if is == expected => None,
        Some(is) => Some(format!("{name} is {is:?}, expected {expected:?}")),
        None => Some(format!("no {name}, expected {expected:?}")),
    }
}
