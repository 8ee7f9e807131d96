//! Configurations, from C's form to the core's.
use callgate_core::{
    Config, ConfigError, Limit, MAX_LIMITS, MAX_POLICIES, MAX_RULES, RateLimit, Rule, Scope,
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
        if self.reserved_0 != 0 || self.reserved != [0; 8] {
            return Err(CALLGATE_RESERVED_NOT_ZERO);
        }
        let Self { count, period_ns, burst, .. } = *self;
        match self.kind {
            CALLGATE_KIND_OFF => Ok(Limit::Off),
            CALLGATE_KIND_RATE => Ok(Limit::Rate(RateLimit { count, period_ns, burst })),
            _ => Err(CALLGATE_CONFIG_KIND),
        }
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
            let scope = match raw.scope {
                CALLGATE_SCOPE_CALLER => Scope::Caller,
                CALLGATE_SCOPE_TOOL => Scope::Tool,
                CALLGATE_SCOPE_CALLER_TOOL => Scope::CallerTool,
                CALLGATE_SCOPE_SHARED => Scope::Shared,
                _ => return Err(CALLGATE_CONFIG_SCOPE),
            };
            *rule = Rule { limit, scope };
        }
        Ok(rules.get(..count).unwrap_or(&[]))
    }
}
