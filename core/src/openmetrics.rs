//! Metrics as OpenMetrics text, written piece by piece to wherever the host wants them: nothing is
//! allocated, and nothing is formatted that could fail. No label ever holds an identity.
use core::fmt::{Result, Write};

use crate::call::Reason;
use crate::config::MAX_RULES;
use crate::gate::Gate;
use crate::metrics::{Decisions, Guards, Stats};
use crate::time::Time;

/// What policies and limits are called in metrics, by their index. What has no name here is called
/// by its index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// Of the policies.
    pub policies: &'a [&'a str],
    /// Of the limits.
    pub limits: &'a [&'a str],
}

/// By `Reason as usize`; the first is none.
const REASONS: [&str; Reason::COUNT] =
    ["admitted", "rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never"];

/// A metric of a concurrency limit: its name, its kind, what it says.
type OfGuards = (&'static str, &'static str, &'static str, fn(&Guards) -> u64);

const GUARDS: [OfGuards; 5] = [
    ("callgate_in_flight", "gauge", "Calls that hold a place.", |g| g.in_flight),
    ("callgate_breaker_open", "gauge", "Breakers that are open.", |g| g.open),
    ("callgate_breaker_half_open", "gauge", "Breakers that are half-open.", |g| g.half_open),
    ("callgate_breaker_trips", "counter", "How often a breaker opened.", |g| g.trips),
    ("callgate_permits_lapsed", "counter", "Permits settled after their lease.", |g| g.lapsed),
];

impl Gate<'_> {
    /// Writes the gate's metrics as OpenMetrics text: decisions by policy, limit and reason; places
    /// in flight and breakers by concurrency limit; slots of the table by what they hold. Walks the
    /// table, once for each concurrency limit and once more.
    ///
    /// # Errors
    /// Where `out` fails.
    pub fn write_metrics(&self, names: &Names<'_>, time: Time, out: &mut impl Write) -> Result {
        head(out, "callgate_decisions", "counter", "Calls decided, by policy, limit and reason.")?;
        for policy in 0..self.policy_count() {
            self.write_decisions(names, policy, out)?;
        }
        for (metric, kind, help, of) in GUARDS {
            head(out, metric, kind, help)?;
            let suffix = if kind == "counter" { "_total" } else { "" };
            for limit in 0..self.limit_count() {
                if let Some(guards) = self.guards(limit, time) {
                    out.write_str(metric)?;
                    out.write_str(suffix)?;
                    out.write_str("{limit=\"")?;
                    name(out, names.limits, limit.into())?;
                    sample(out, "\"} ", of(&guards))?;
                }
            }
        }
        head(out, "callgate_table_slots", "gauge", "Slots of the table, by what they hold.")?;
        let Stats { live, at_rest, claimed, empty, .. } = self.stats(time);
        sample(out, "callgate_table_slots{state=\"live\"} ", live)?;
        sample(out, "callgate_table_slots{state=\"at_rest\"} ", at_rest)?;
        sample(out, "callgate_table_slots{state=\"claimed\"} ", claimed)?;
        sample(out, "callgate_table_slots{state=\"empty\"} ", empty)?;
        out.write_str("# EOF\n")
    }

    fn write_decisions(&self, names: &Names<'_>, policy: u32, out: &mut impl Write) -> Result {
        let Some(decisions) = self.decisions(policy) else { return Ok(()) };
        let mut line = |limit: Option<u8>, reason: &str, count: u64| {
            out.write_str("callgate_decisions_total{policy=\"")?;
            name(out, names.policies, policy)?;
            out.write_str("\",limit=\"")?;
            if let Some(limit) = limit {
                name(out, names.limits, limit.into())?;
            }
            out.write_str("\",reason=\"")?;
            out.write_str(reason)?;
            sample(out, "\"} ", count)
        };
        line(None, "admitted", decisions.admitted)?;
        let limits = self.limits_of(policy);
        for (n, limit) in limits.iter().enumerate() {
            // A limit that a policy has in several scopes is told once.
            if limits.iter().take(n).any(|earlier| earlier == limit) {
                continue;
            }
            for (reason, name) in REASONS.iter().enumerate().skip(1) {
                let count = refused(&decisions, &limits, *limit, reason);
                if count > 0 {
                    line(Some(*limit), name, count)?;
                }
            }
        }
        Ok(())
    }
}

fn refused(
    decisions: &Decisions,
    limits: &heapless::Vec<u8, MAX_RULES>,
    limit: u8,
    reason: usize,
) -> u64 {
    let of_rules = decisions.refused.iter().zip(limits).filter(|(_, of)| **of == limit);
    let counts = of_rules.filter_map(|(refused, _)| refused.get(reason));
    counts.fold(0, |sum, count| sum.wrapping_add(*count))
}

fn head(out: &mut impl Write, metric: &str, kind: &str, help: &str) -> Result {
    for part in ["# HELP ", metric, " ", help, "\n# TYPE ", metric, " ", kind, "\n"] {
        out.write_str(part)?;
    }
    Ok(())
}

fn sample(out: &mut impl Write, before: &str, value: u64) -> Result {
    out.write_str(before)?;
    number(out, value)?;
    out.write_str("\n")
}

/// The name, escaped for a label; the index where it has none.
fn name(out: &mut impl Write, names: &[&str], index: u32) -> Result {
    let Some(name) = names.get(index as usize) else { return number(out, index.into()) };
    for piece in name.split_inclusive(['\\', '"', '\n']) {
        let (plain, escaped) = if let Some(plain) = piece.strip_suffix('\\') {
            (plain, "\\\\")
        } else if let Some(plain) = piece.strip_suffix('"') {
            (plain, "\\\"")
        } else if let Some(plain) = piece.strip_suffix('\n') {
            (plain, "\\n")
        } else {
            (piece, "")
        };
        out.write_str(plain)?;
        out.write_str(escaped)?;
    }
    Ok(())
}

fn number(out: &mut impl Write, value: u64) -> Result {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let mut digits = [0usize; 20];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        *digit = (rest % 10) as usize;
        rest /= 10;
    }
    let (mut is_leading, last) = (true, digits.len() - 1);
    for (n, digit) in digits.iter().enumerate() {
        is_leading &= *digit == 0 && n < last;
        if !is_leading {
            out.write_str(DIGITS.get(*digit).unwrap_or(&""))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
