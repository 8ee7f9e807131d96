//! Limits of a gate that is in use: changing them, and telling quotas what only the host knows.
use callgate_core::{Field, Key, Rule, Seeded, Time};

use super::{now, since, status, time};
use crate::config::scope_of;
use crate::pointers::{gate_of, get};
use crate::status::{Result, callgate_status, callgate_status::*};
use crate::types::*;

/// Changes a limit for all callers at once. Every caller keeps its debt, but never more than the
/// new limit can express; nobody gets tokens by it, except those by which a burst is larger. More
/// calls in flight than a new limit allows end as they would have; an open breaker stays open until
/// it was to be; a caller's window stays what it is. A limit keeps its kind, and a concurrency limit
/// its lease. Not by two threads at once.
///
/// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_RESERVED_NOT_ZERO`, `CALLGATE_CLOCK_FAILED`, and the
/// `CALLGATE_CONFIG_*`; the limit is then as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_reconfigure(
    gate: *const callgate_gate,
    limit: u32,
    to: *const callgate_limit,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|handle| {
        let time = handle.system_time()?;
        // SAFETY: by the contract.
        unsafe { reconfigure(gate, limit, to, since(handle, time)) }
    }))
}

/// As `callgate_reconfigure`, at a time that the caller takes.
///
/// Errors: those of `callgate_reconfigure`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_reconfigure_at(
    gate: *const callgate_gate,
    limit: u32,
    to: *const callgate_limit,
    now_ns: u64,
    unix_ns: u64,
) -> callgate_status {
    // SAFETY: by the contract.
    status(time(now_ns, unix_ns).and_then(|time| unsafe { reconfigure(gate, limit, to, || time) }))
}

/// Tells a quota what its ledger knows to have been used, by the system's clock: once for each caller
/// and window, after a restart. The entry is the one that the limit keeps for `caller` and `tool`
/// under `scope`, one of the `CALLGATE_SCOPE_*`; a key that the scope does not need may be NULL.
///
/// Returns `CALLGATE_OK` where it was told, `CALLGATE_ALREADY_SEEDED` where it had been, and
/// `CALLGATE_TABLE_FULL` where there is no place for the caller's state.
///
/// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_NOT_A_QUOTA`, `CALLGATE_CONFIG_SCOPE`,
/// `CALLGATE_MISSING_CALLER`, `CALLGATE_MISSING_TOOL`, `CALLGATE_CLOCK_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_seed(
    gate: *const callgate_gate,
    limit: u32,
    scope: u32,
    caller: *const callgate_key,
    tool: *const callgate_key,
    used: u64,
) -> callgate_status {
    // SAFETY: by the contract.
    let result = unsafe { now(gate) }.and_then(|time| {
        // SAFETY: by the contract.
        unsafe { seed(gate, (limit, scope), caller, tool, used, time) }
    });
    result.unwrap_or_else(|status| status)
}

/// As `callgate_seed`, at a time that the caller takes.
///
/// Errors: those of `callgate_seed`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_seed_at(
    gate: *const callgate_gate,
    limit: u32,
    scope: u32,
    caller: *const callgate_key,
    tool: *const callgate_key,
    used: u64,
    now_ns: u64,
    unix_ns: u64,
) -> callgate_status {
    let result = time(now_ns, unix_ns).and_then(|time| {
        // SAFETY: by the contract.
        unsafe { seed(gate, (limit, scope), caller, tool, used, time) }
    });
    result.unwrap_or_else(|status| status)
}

/// Sets the window of a quota whose `period_s` is 0, in seconds since the Unix epoch: for hosts that
/// know time zones and daylight saving. From any thread at any time, before the window begins or
/// after; one that begins earlier than one that was set is ignored.
///
/// Where nobody has set the next one when a window ends, windows of the same length follow it; one
/// that is set ahead is preceded by such; days in UTC are taken until the first is set. A caller who
/// was admitted stays in the window of that time until it ends.
///
/// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_NOT_A_QUOTA` (also where the quota has a period of
/// its own), `CALLGATE_BAD_WINDOW`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_window_set(
    gate: *const callgate_gate,
    limit: u32,
    start_unix_s: u64,
    end_unix_s: u64,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|gate| {
        let limit = u8::try_from(limit).map_err(|_| CALLGATE_UNKNOWN_LIMIT)?;
        gate.set_window(limit, start_unix_s, end_unix_s).map_err(|error| match error.field {
            Field::RuleLimit => CALLGATE_UNKNOWN_LIMIT,
            Field::Window => CALLGATE_BAD_WINDOW,
            _ => CALLGATE_NOT_A_QUOTA,
        })
    }))
}

/// # Safety
/// As `callgate_reconfigure`.
unsafe fn reconfigure(
    gate: *const callgate_gate,
    limit: u32,
    to: *const callgate_limit,
    clock: impl Fn() -> Time,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let to = unsafe { get(to) }?.to_core()?;
    let limit = u8::try_from(limit).map_err(|_| CALLGATE_UNKNOWN_LIMIT)?;
    gate.reconfigure_by(limit, &to, clock).map_err(|error| match error.field {
        Field::RuleLimit => CALLGATE_UNKNOWN_LIMIT,
        _ => error.into(),
    })
}

/// # Safety
/// As `callgate_seed`.
unsafe fn seed(
    gate: *const callgate_gate,
    (limit, scope): (u32, u32),
    caller: *const callgate_key,
    tool: *const callgate_key,
    used: u64,
    time: Time,
) -> Result<callgate_status> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    let scope = scope_of(scope)?;
    let limit = u8::try_from(limit).map_err(|_| CALLGATE_UNKNOWN_LIMIT)?;
    // SAFETY: by the contract.
    let caller = unsafe { key(caller) }?;
    // SAFETY: by the contract.
    let tool = unsafe { key(tool) }?;
    Ok(match gate.seed(Rule { limit, scope }, caller, tool, used, time)? {
        Seeded::Now => CALLGATE_OK,
        Seeded::Already => CALLGATE_ALREADY_SEEDED,
        Seeded::TableFull { .. } => CALLGATE_TABLE_FULL,
    })
}

/// # Safety
/// A pointer that is neither NULL nor misaligned points to a key.
unsafe fn key(key: *const callgate_key) -> Result<Key> {
    if key.is_null() {
        return Ok(Key::ABSENT);
    }
    // SAFETY: by the contract.
    Ok(unsafe { get(key) }?.to_core())
}
