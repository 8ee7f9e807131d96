//! What a gate has counted and holds.
use core::ffi::{CStr, c_char};
use core::fmt;

use callgate_core::{Guards, MAX_LIMITS, MAX_POLICIES, Names, Stats, Time};

use super::{now, status, time};
use crate::pointers::{Out, gate_of, get_many};
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

/// Writes the gate's metrics as OpenMetrics text, ended by a NUL: decisions by policy, limit and
/// reason; places in flight and breakers by concurrency limit; slots of the table by what they
/// hold. Walks the table: for scrapes, not for every call.
///
/// `policies` and `limits` are their names, UTF-8 and ended by a NUL, by index: as many as the gate
/// has. Where either is NULL, or one of its names is not UTF-8, indices stand for them.
///
/// `needed` is told how many bytes the text takes, the NUL included, also where the buffer is too
/// small: then `CALLGATE_BUFFER_TOO_SMALL` is returned, and what is in the buffer means nothing.
/// `buffer` may be NULL where `size` is 0. Numbers grow: leave some room.
///
/// Errors: `CALLGATE_BUFFER_TOO_SMALL`, `CALLGATE_CLOCK_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_metrics(
    gate: *const callgate_gate,
    policies: *const *const c_char,
    limits: *const *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { now(gate) }.and_then(|time| unsafe {
        metrics(gate, (policies, limits), time, (buffer, size), needed)
    }))
}

/// As `callgate_metrics`, at a time that the caller takes.
///
/// Errors: those of `callgate_metrics`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_metrics_at(
    gate: *const callgate_gate,
    policies: *const *const c_char,
    limits: *const *const c_char,
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
    now_ns: u64,
    unix_ns: u64,
) -> callgate_status {
    // SAFETY: by the contract.
    status(time(now_ns, unix_ns).and_then(|time| unsafe {
        metrics(gate, (policies, limits), time, (buffer, size), needed)
    }))
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

/// Text in memory of the caller's, as far as it goes; and how long it is.
struct Text {
    buffer: *mut u8,
    size: usize,
    length: usize,
}

impl Text {
    fn put(&mut self, byte: u8) {
        if self.length < self.size {
            // SAFETY: so many bytes are the buffer's, by the contract of `metrics`.
            unsafe { self.buffer.wrapping_add(self.length).write(byte) };
        }
        self.length = self.length.saturating_add(1);
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(|byte| self.put(byte));
        Ok(())
    }
}

/// # Safety
/// As `callgate_metrics`.
unsafe fn metrics(
    gate: *const callgate_gate,
    (policies, limits): (*const *const c_char, *const *const c_char),
    time: Time,
    (buffer, size): (*mut c_char, usize),
    needed: *mut usize,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let needed = unsafe { Out::new(needed) }?;
    if buffer.is_null() && size > 0 {
        return Err(CALLGATE_NULL_POINTER);
    }
    let (mut policy_names, mut limit_names) = ([""; MAX_POLICIES], [""; MAX_LIMITS]);
    // SAFETY: by the contract, there are as many as the gate has.
    let policies = unsafe { names(policies, gate.policy_count() as usize, &mut policy_names) }?;
    // SAFETY: as above.
    let limits = unsafe { names(limits, gate.limit_count().into(), &mut limit_names) }?;
    let mut text = Text { buffer: buffer.cast(), size, length: 0 };
    // Such text never fails to be written.
    let _ = gate.write_metrics(&Names { policies, limits }, time, &mut text);
    text.put(0);
    needed.put(text.length);
    if text.length > size { Err(CALLGATE_BUFFER_TOO_SMALL) } else { Ok(()) }
}

/// # Safety
/// A pointer that is not NULL points to `count` pointers, each NULL or to text that ends with a NUL.
unsafe fn names<'a, 'n>(
    pointers: *const *const c_char,
    count: usize,
    into: &'n mut [&'a str],
) -> Result<&'n [&'a str]> {
    if pointers.is_null() {
        return Ok(&[]);
    }
    // SAFETY: by the contract.
    let pointers = unsafe { get_many(pointers, count) }?;
    for (name, pointer) in into.iter_mut().zip(pointers) {
        if pointer.is_null() {
            return Err(CALLGATE_NULL_POINTER);
        }
        // SAFETY: by the contract.
        match unsafe { CStr::from_ptr(*pointer) }.to_str() {
            Ok(text) => *name = text,
            Err(_) => return Ok(&[]),
        }
    }
    Ok(into.get(..count).unwrap_or(&[]))
}
