//! What a gate has counted and holds.
use callgate_core::{Guards, Stats, Time};

use super::{now, status, time};
use crate::pointers::{Out, gate_of};
use crate::status::{Result, callgate_status, callgate_status::*};
use crate::types::*;

/// What the slots of the gate's table hold now. Walks all of them: for metrics, not for every call.
///
/// Errors: `CALLGATE_CLOCK_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_stats_get(
    gate: *const callgate_gate,
    stats: *mut callgate_stats,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { now(gate) }.and_then(|time| unsafe { stats_at(gate, time, stats) }))
}

/// As `callgate_stats_get`, at a time that the caller takes.
///
/// Errors: `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_stats_get_at(
    gate: *const callgate_gate,
    now_ns: u64,
    unix_ns: u64,
    stats: *mut callgate_stats,
) -> callgate_status {
    // SAFETY: by the contract.
    status(time(now_ns, unix_ns).and_then(|time| unsafe { stats_at(gate, time, stats) }))
}

/// What was decided under a policy since the gate was made.
///
/// Errors: `CALLGATE_UNKNOWN_POLICY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_decisions_get(
    gate: *const callgate_gate,
    policy: u32,
    decisions: *mut callgate_decisions,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|gate| {
        // SAFETY: by the contract.
        let out = unsafe { Out::new(decisions) }?;
        let sums = gate.decisions(policy).ok_or(CALLGATE_UNKNOWN_POLICY)?;
        out.put(callgate_decisions { admitted: sums.admitted, refused: sums.refused });
        Ok(())
    }))
}

/// Who is in flight now under a concurrency limit, over all its states, and what its breakers have
/// done. Walks the whole table: for metrics, not for every call.
///
/// Errors: `CALLGATE_UNKNOWN_LIMIT`, also where it is no concurrency limit; `CALLGATE_CLOCK_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_guards_get(
    gate: *const callgate_gate,
    limit: u32,
    guards: *mut callgate_guards,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { now(gate) }.and_then(|time| unsafe { guards_at(gate, limit, time, guards) }))
}

/// As `callgate_guards_get`, at a time that the caller takes.
///
/// Errors: those of `callgate_guards_get`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_guards_get_at(
    gate: *const callgate_gate,
    limit: u32,
    now_ns: u64,
    unix_ns: u64,
    guards: *mut callgate_guards,
) -> callgate_status {
    let time = time(now_ns, unix_ns);
    // SAFETY: by the contract.
    status(time.and_then(|time| unsafe { guards_at(gate, limit, time, guards) }))
}

/// # Safety
/// As `callgate_stats_get_at`.
unsafe fn stats_at(
    gate: *const callgate_gate,
    time: Time,
    stats: *mut callgate_stats,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let out = unsafe { Out::new(stats) }?;
    let Stats { slots, live, at_rest, claimed, empty } = gate.stats(time);
    out.put(callgate_stats { slots, live, at_rest, claimed, empty });
    Ok(())
}

/// # Safety
/// As `callgate_guards_get_at`.
unsafe fn guards_at(
    gate: *const callgate_gate,
    limit: u32,
    time: Time,
    guards: *mut callgate_guards,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let out = unsafe { Out::new(guards) }?;
    let limit = u8::try_from(limit).map_err(|_| CALLGATE_UNKNOWN_LIMIT)?;
    let Guards { in_flight, open, half_open, trips, lapsed } =
        gate.guards(limit, time).ok_or(CALLGATE_UNKNOWN_LIMIT)?;
    out.put(callgate_guards { in_flight, open, half_open, trips, lapsed });
    Ok(())
}
