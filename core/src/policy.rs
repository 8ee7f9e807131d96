//! Policies: which limits a class of callers is held to, and whose state each of them keeps.
use portable_atomic::{AtomicU64, Ordering};

use crate::config::{ConfigError, Field, MAX_RULES};

/// Whose state a limit keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Scope {
    /// One state for each caller.
    Caller = 0,
    /// One state for each tool.
    Tool = 1,
    /// One state for each caller and tool.
    CallerTool = 2,
    /// One state for all calls.
    Shared = 3,
}

impl Scope {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Caller,
            1 => Self::Tool,
            2 => Self::CallerTool,
            _ => Self::Shared,
        }
    }

    pub(crate) const fn needs_caller(self) -> bool {
        matches!(self, Self::Caller | Self::CallerTool)
    }

    pub(crate) const fn needs_tool(self) -> bool {
        matches!(self, Self::Tool | Self::CallerTool)
    }
}

/// One step of a policy: a limit, and whose state it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The limit's index in the configuration.
    pub limit: u8,
    /// Whose state it keeps.
    pub scope: Scope,
}

impl Rule {
    const fn to_byte(self) -> u8 {
        self.limit << 2 | self.scope as u8
    }

    const fn from_byte(byte: u8) -> Self {
        Self { limit: byte >> 2, scope: Scope::from_bits(byte) }
    }
}

/// A policy in the gate's memory, written once when the gate is made.
#[repr(C, align(32))]
pub(crate) struct PolicyCell {
    /// A byte for each rule.
    rules: AtomicU64,
    /// How many rules there are, and what they need.
    head: AtomicU64,
    /// A bit for each limit that it names.
    limits: AtomicU64,
}

/// A policy taken out of its cell.
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    rules: u64,
    head: u64,
}

const COUNT_MASK: u64 = 15;
const NEEDS_CALLER: u64 = 1 << 8;
const NEEDS_TOOL: u64 = 1 << 9;

impl PolicyCell {
    pub(crate) fn store(&self, rules: &[Rule]) {
        let mut bytes = [0; MAX_RULES];
        let mut head = rules.len() as u64;
        let mut limits = 0;
        for (byte, rule) in bytes.iter_mut().zip(rules) {
            *byte = rule.to_byte();
            head |= if rule.scope.needs_caller() { NEEDS_CALLER } else { 0 };
            head |= if rule.scope.needs_tool() { NEEDS_TOOL } else { 0 };
            limits |= limit_bit(rule.limit);
        }
        // Relaxed: whoever hands the gate to other threads publishes these with it.
        self.rules.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
        self.head.store(head, Ordering::Relaxed);
        self.limits.store(limits, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> Policy {
        Policy {
            rules: self.rules.load(Ordering::Relaxed),
            head: self.head.load(Ordering::Relaxed),
        }
    }

    /// Whether it names one of the limits whose [bits](limit_bit) are set.
    #[cfg(feature = "clock")]
    pub(crate) fn names_any(&self, limits: u64) -> bool {
        self.limits.load(Ordering::Relaxed) & limits != 0
    }
}

impl Policy {
    pub(crate) fn needs_caller(self) -> bool {
        self.head & NEEDS_CALLER != 0
    }

    pub(crate) fn needs_tool(self) -> bool {
        self.head & NEEDS_TOOL != 0
    }

    /// The first rule, and whether there are more.
    pub(crate) fn first(self) -> (Rule, bool) {
        (Rule::from_byte(self.rules as u8), self.head & COUNT_MASK > 1)
    }

    pub(crate) fn rules(self) -> impl Iterator<Item = (u8, Rule)> + Clone + use<> {
        let count = (self.head & COUNT_MASK).min(MAX_RULES as u64) as u8;
        (0..count).map(move |n| (n, Rule::from_byte((self.rules >> (n * 8)) as u8)))
    }
}

/// The bit that stands for a limit.
pub(crate) const fn limit_bit(limit: u8) -> u64 {
    1 << (limit & 63)
}

/// Checks a policy of a gate with `limit_count` limits.
pub(crate) fn check(rules: &[Rule], limit_count: usize) -> Result<(), ConfigError> {
    if rules.is_empty() || rules.len() > MAX_RULES {
        return Err(ConfigError::of(Field::Rules));
    }
    for (n, rule) in rules.iter().enumerate() {
        if usize::from(rule.limit) >= limit_count {
            return Err(ConfigError::of(Field::RuleLimit));
        }
        if rules.iter().take(n).any(|earlier| earlier == rule) {
            return Err(ConfigError::of(Field::RuleTwice));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::array;

    const SCOPES: [Scope; 4] = [Scope::Caller, Scope::Tool, Scope::CallerTool, Scope::Shared];

    fn stored(rules: &[Rule]) -> Policy {
        let cell: PolicyCell = crate::memory::zeroed();
        cell.store(rules);
        cell.load()
    }

    #[test]
    fn a_cell_holds_each_rule_in_its_order() {
        let rules: [Rule; MAX_RULES] =
            array::from_fn(|n| Rule { limit: 63 - 9 * n as u8, scope: SCOPES[n % 4] });
        for count in 1..=MAX_RULES {
            let policy = stored(&rules[..count]);
            assert!(policy.rules().eq((0..count as u8).zip(rules)), "{count} rules");
            assert_eq!(policy.first(), (rules[0], count > 1));
        }
    }

    #[test]
    fn a_policy_needs_what_its_scopes_are_of() {
        let needs = |scopes: &[Scope]| {
            let mut rules = [Rule { limit: 0, scope: Scope::Shared }; 2];
            for (rule, scope) in rules.iter_mut().zip(scopes) {
                rule.scope = *scope;
            }
            let policy = stored(&rules[..scopes.len()]);
            (policy.needs_caller(), policy.needs_tool())
        };
        assert_eq!(
            SCOPES.map(|scope| needs(&[scope])),
            [(true, false), (false, true), (true, true), (false, false)]
        );
        assert_eq!(needs(&[Scope::Caller, Scope::Tool]), (true, true));
        assert_eq!(needs(&[Scope::Shared, Scope::Tool]), (false, true));
    }
}
