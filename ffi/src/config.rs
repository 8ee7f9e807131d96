//! Configurations, from C's form to the core's.
use callgate_core::{
    ConcurrencyLimit, Config, ConfigError, Limit, MAX_LIMITS, MAX_POLICIES, MAX_RULES, Quota,
    RateLimit, Rule, Scope, Windows,
};

use crate::pointers::{get, get_many};
use crate::status::{Result, callgate_status, callgate_status::*};
use crate::types::*;

/// A status, and the limit or policy that it blames.
pub(crate) struct Fault {
    pub(crate) status: callgate_status,
    pub(crate) limit: Option<u8>,
    pub(crate) policy: Option<u8>,
}

impl From<callgate_status> for Fault {
    fn from(status: callgate_status) -> Self {
        Self { status, limit: None, policy: None }
    }
}

impl From<ConfigError> for Fault {
    fn from(error: ConfigError) -> Self {
        Self { status: error.into(), limit: error.limit, policy: error.policy }
    }
}

/// Calls `then` with the core's form of a configuration, which it checks first.
///
/// # Safety
/// Pointers that are neither NULL nor misaligned point to what their types and counts say.
pub(crate) unsafe fn with_config<T>(
    config: *const callgate_config,
    then: impl FnOnce(&Config<'_>) -> core::result::Result<T, ConfigError>,
) -> core::result::Result<T, Fault> {
    // SAFETY: by the contract.
    let config = unsafe { get(config) }?;
    if config.struct_size as usize != size_of::<callgate_config>() {
        return Err(CALLGATE_BAD_STRUCT_SIZE.into());
    }
    if config.reserved != [0; 4] {
        return Err(CALLGATE_RESERVED_NOT_ZERO.into());
    }
    let limit_count = config.limit_count as usize;
    if limit_count == 0 || limit_count > MAX_LIMITS {
        return Err(CALLGATE_CONFIG_LIMITS.into());
    }
    let policy_count = config.policy_count as usize;
    if policy_count == 0 || policy_count > MAX_POLICIES {
        return Err(CALLGATE_CONFIG_POLICIES.into());
    }
    // SAFETY: by the contract.
    let raw_limits = unsafe { get_many(config.limits, limit_count) }?;
    // SAFETY: by the contract.
    let raw_policies = unsafe { get_many(config.policies, policy_count) }?;

    let mut limits = [Limit::Off; MAX_LIMITS];
    for (n, (limit, raw)) in limits.iter_mut().zip(raw_limits).enumerate() {
        *limit = raw.to_core().map_err(|status| Fault { limit: Some(n as u8), ..status.into() })?;
    }
    let mut rules = [[Rule { limit: 0, scope: Scope::Shared }; MAX_RULES]; MAX_POLICIES];
    let mut policies: [&[Rule]; MAX_POLICIES] = [&[]; MAX_POLICIES];
    for (n, ((rules, raw), policy)) in
        rules.iter_mut().zip(raw_policies).zip(&mut policies).enumerate()
    {
        *policy = raw
            .to_core(rules)
            .map_err(|status| Fault { policy: Some(n as u8), ..status.into() })?;
    }
    let config = Config {
        capacity: config.capacity,
        secret: config.secret,
        limits: limits.get(..limit_count).unwrap_or(&[]),
        policies: policies.get(..policy_count).unwrap_or(&[]),
    };
    Ok(then(&config)?)
}

impl callgate_limit {
    pub(crate) fn to_core(&self) -> Result<Limit> {
        if self.reserved_0 != 0 || self.reserved != 0 {
            return Err(CALLGATE_RESERVED_NOT_ZERO);
        }
        match self.kind {
            CALLGATE_KIND_OFF => Ok(Limit::Off),
            CALLGATE_KIND_RATE if self.is_guard() || self.is_quota() => {
                Err(CALLGATE_RESERVED_NOT_ZERO)
            }
            CALLGATE_KIND_CONCURRENCY if self.is_rate() || self.is_quota() => {
                Err(CALLGATE_RESERVED_NOT_ZERO)
            }
            CALLGATE_KIND_QUOTA if self.is_rate() || self.is_guard() => {
                Err(CALLGATE_RESERVED_NOT_ZERO)
            }
            CALLGATE_KIND_RATE => {
                let Self { count, period_ns, burst, .. } = *self;
                Ok(Limit::Rate(RateLimit { count, period_ns, burst }))
            }
            CALLGATE_KIND_CONCURRENCY => Ok(Limit::Concurrency(ConcurrencyLimit {
                max_in_flight: self.max_in_flight,
                lease_ns: self.lease_ns,
                reject_trip: self.reject_trip,
                failure_trip: self.failure_trip,
                cooldown_ns: self.cooldown_ns,
                half_open_probes: self.half_open_probes,
            })),
            CALLGATE_KIND_QUOTA => self.to_quota(),
            _ => Err(CALLGATE_CONFIG_KIND),
        }
    }

    fn to_quota(&self) -> Result<Limit> {
        let Self { limit, period_s, anchor_unix_s, must_seed, .. } = *self;
        if must_seed > 1 {
            return Err(CALLGATE_CONFIG_MUST_SEED);
        }
        let windows = match period_s {
            0 if anchor_unix_s != 0 => return Err(CALLGATE_CONFIG_PERIOD_S),
            0 => Windows::ByHost,
            _ => Windows::Every { period_s, anchor_unix_s },
        };
        Ok(Limit::Quota(Quota { limit, windows, must_seed: must_seed == 1 }))
    }

    /// Whether a field of a rate limit is filled in; and so on.
    fn is_rate(&self) -> bool {
        self.count | self.period_ns | self.burst != 0
    }

    fn is_guard(&self) -> bool {
        let trips = self.reject_trip | self.failure_trip | self.half_open_probes;
        trips | self.max_in_flight != 0 || self.lease_ns | self.cooldown_ns != 0
    }

    fn is_quota(&self) -> bool {
        self.limit | self.period_s != 0 || self.anchor_unix_s != 0 || self.must_seed != 0
    }
}

pub(crate) fn scope_of(scope: u32) -> Result<Scope> {
    match scope {
        CALLGATE_SCOPE_CALLER => Ok(Scope::Caller),
        CALLGATE_SCOPE_TOOL => Ok(Scope::Tool),
        CALLGATE_SCOPE_CALLER_TOOL => Ok(Scope::CallerTool),
        CALLGATE_SCOPE_SHARED => Ok(Scope::Shared),
        _ => Err(CALLGATE_CONFIG_SCOPE),
    }
}

impl callgate_policy {
    fn to_core<'a>(&self, rules: &'a mut [Rule; MAX_RULES]) -> Result<&'a [Rule]> {
        if self.reserved != 0 {
            return Err(CALLGATE_RESERVED_NOT_ZERO);
        }
        let count = self.rule_count as usize;
        if count == 0 || count > MAX_RULES {
            return Err(CALLGATE_CONFIG_RULES);
        }
        for (rule, raw) in rules.iter_mut().zip(&self.rules).take(count) {
            let limit = u8::try_from(raw.limit).map_err(|_| CALLGATE_CONFIG_RULE_LIMIT)?;
            let scope = scope_of(raw.scope)?;
            *rule = Rule { limit, scope };
        }
        Ok(rules.get(..count).unwrap_or(&[]))
    }
}
