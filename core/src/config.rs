//! What a gate is made from, and what can be wrong with it.
use core::fmt;

use crate::limit::{Compiled, Limit};
use crate::policy::{self, Rule};

/// The most limits in a gate.
pub const MAX_LIMITS: usize = 64;
/// The most policies in a gate.
pub const MAX_POLICIES: usize = 64;
/// The most limits in a policy.
pub const MAX_RULES: usize = 8;
/// The most callers that a gate can be made for.
pub const MAX_CAPACITY: u32 = 1 << 26;

/// What a gate is made from.
#[derive(Clone, Copy, Debug)]
pub struct Config<'a> {
    /// How many distinct callers are sure to find a place, 1 to [`MAX_CAPACITY`]: a guarantee, not
    /// a cap. Each tool of a limit kept by tool, and each pair of one kept by both, takes the place
    /// of a caller; so does a caller once more under each further policy whose limits are others.
    pub capacity: u32,
    /// Sixteen random bytes under which identities are hashed; not all zero. Keep them secret:
    /// who knows them can aim at other callers' places in the table. No two gates have the same:
    /// they would take each other's permits for their own.
    pub secret: [u8; 16],
    /// 1 to [`MAX_LIMITS`] limits, named by their index.
    pub limits: &'a [Limit],
    /// 1 to [`MAX_POLICIES`] policies, named by their index, of 1 to [`MAX_RULES`] rules each.
    pub policies: &'a [&'a [Rule]],
}

/// A field of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Field {
    /// [`Config::capacity`]
    Capacity = 1,
    /// [`Config::secret`]
    Secret,
    /// [`Config::limits`]: how many there are
    Limits,
    /// [`Config::policies`]: how many there are
    Policies,
    /// How many rules a policy has
    Rules,
    /// [`Rule::limit`]
    RuleLimit,
    /// The same limit and scope twice in one policy
    RuleTwice,
    /// [`RateLimit::count`](crate::RateLimit::count)
    Count,
    /// [`RateLimit::period_ns`](crate::RateLimit::period_ns)
    PeriodNs,
    /// [`RateLimit::burst`](crate::RateLimit::burst)
    Burst,
    /// The memory for the gate is too short
    Memory,
    /// A limit would become one of another kind
    Kind,
    /// The time of a change
    Now,
    /// [`ConcurrencyLimit::max_in_flight`](crate::ConcurrencyLimit::max_in_flight)
    MaxInFlight,
    /// [`ConcurrencyLimit::lease_ns`](crate::ConcurrencyLimit::lease_ns)
    LeaseNs,
    /// [`ConcurrencyLimit::reject_trip`](crate::ConcurrencyLimit::reject_trip)
    RejectTrip,
    /// [`ConcurrencyLimit::failure_trip`](crate::ConcurrencyLimit::failure_trip)
    FailureTrip,
    /// [`ConcurrencyLimit::cooldown_ns`](crate::ConcurrencyLimit::cooldown_ns)
    CooldownNs,
    /// [`ConcurrencyLimit::half_open_probes`](crate::ConcurrencyLimit::half_open_probes)
    HalfOpenProbes,
    /// [`Quota::limit`](crate::Quota::limit)
    Limit,
    /// [`Windows::Every`](crate::Windows::Every): the period
    PeriodS,
    /// When a window that the host sets begins and ends
    Window,
}

impl Field {
    /// The field's name, as in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Secret => "secret",
            Self::Limits => "limits",
            Self::Policies => "policies",
            Self::Rules | Self::RuleTwice => "rules",
            Self::RuleLimit | Self::Limit => "limit",
            Self::Count => "count",
            Self::PeriodNs => "period_ns",
            Self::Burst => "burst",
            Self::Memory => "memory",
            Self::Kind => "kind",
            Self::Now => "now_ns",
            Self::MaxInFlight => "max_in_flight",
            Self::LeaseNs => "lease_ns",
            Self::RejectTrip => "reject_trip",
            Self::FailureTrip => "failure_trip",
            Self::CooldownNs => "cooldown_ns",
            Self::HalfOpenProbes => "half_open_probes",
            Self::PeriodS => "period_s",
            Self::Window => "end_unix_s",
        }
    }

    /// What is allowed there.
    pub const fn allowed(self) -> &'static str {
        match self {
            Self::Capacity => "1 to 67108864 callers",
            Self::Secret => "16 random bytes, not all zero",
            Self::Limits => "1 to 64 limits in a gate",
            Self::Policies => "1 to 64 policies in a gate",
            Self::Rules => "1 to 8 limits in a policy",
            Self::RuleTwice => "each limit once with each scope in a policy",
            Self::RuleLimit => "the index of one of the gate's limits",
            Self::Count => "1 to 2^64-1 tokens",
            Self::PeriodNs => "1 to 2^64-1 ns",
            Self::Burst => "1 or more tokens, and burst * period_ns / count at most 2^61 ns",
            Self::Memory => "as many slots as the configuration needs",
            Self::Kind => "the kind that the limit had when the gate was made, or off",
            Self::Now => "below 2^61 ns",
            Self::MaxInFlight => "1 to 4095 calls",
            Self::LeaseNs => "1 ms to 2^61 ns, and what it was when the gate was made",
            Self::RejectTrip => "0 to 63 refusals in a row, 0 for never",
            Self::FailureTrip => "0 to 63 failures in a row, 0 for never",
            Self::CooldownNs => {
                "at most 2^61 ns and 50,000 leases, and at least 1 ms where there is a trip"
            }
            Self::HalfOpenProbes => "0 to 15 probes at a time",
            Self::Limit => "1 to 2^47 units",
            Self::PeriodS => "1 to 2^33 s",
            Self::Window => "a window that begins below 2^35 s and ends 1 to 2^29-1 s later",
        }
    }
}

/// Why a gate can't be made, or a limit can't be changed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field that is out of its range.
    pub field: Field,
    /// The index of the limit that it belongs to, if any.
    pub limit: Option<u8>,
    /// The index of the policy that it belongs to, if any.
    pub policy: Option<u8>,
}

impl ConfigError {
    pub(crate) const fn of(field: Field) -> Self {
        Self { field, limit: None, policy: None }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(limit) = self.limit {
            write!(f, "limit {limit}: ")?;
        }
        if let Some(policy) = self.policy {
            write!(f, "policy {policy}: ")?;
        }
        write!(f, "{} is out of range (allowed: {})", self.field.name(), self.field.allowed())
    }
}

impl core::error::Error for ConfigError {}

impl Config<'_> {
    /// Whether a gate can be made from this.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(ConfigError::of(Field::Capacity));
        }
        if self.secret == [0; 16] {
            return Err(ConfigError::of(Field::Secret));
        }
        if self.limits.is_empty() || self.limits.len() > MAX_LIMITS {
            return Err(ConfigError::of(Field::Limits));
        }
        if self.policies.is_empty() || self.policies.len() > MAX_POLICIES {
            return Err(ConfigError::of(Field::Policies));
        }
        for (n, limit) in self.limits.iter().enumerate() {
            Compiled::new(limit).map_err(|e| ConfigError { limit: Some(n as u8), ..e })?;
        }
        for (n, rules) in self.policies.iter().enumerate() {
            policy::check(rules, self.limits.len())
                .map_err(|e| ConfigError { policy: Some(n as u8), ..e })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
