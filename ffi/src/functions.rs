//! The functions of the header, in the order in which a program meets them.
use core::ffi::c_void;
use core::mem::{MaybeUninit, size_of};
use core::slice;

use callgate_core::{
    Call, Decision, Domain, Field, Gate, Key, Outcome, Permit, Settled, Slot, Stats, Time,
    is_lock_free, system_time,
};

use crate::config::{Fault, with_config};
use crate::pointers::{Out, gate_of, get, get_many};
use crate::status::{Result, callgate_status, callgate_status::*};
use crate::types::*;

/// What a function returns: its status where it failed, else OK.
fn status(result: Result<()>) -> callgate_status {
    result.err().unwrap_or(CALLGATE_OK)
}

/// The version of this library. Compare it with `CALLGATE_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn callgate_version() -> u32 {
    CALLGATE_VERSION
}

/// 1 where this machine changes 128 bits at once by an instruction, else 0: the library then uses
/// a lock in its place. It is right within one process all the same, but a thread may wait for
/// another, and a gate's memory must not be shared between processes.
#[unsafe(no_mangle)]
pub extern "C" fn callgate_is_lock_free() -> u32 {
    u32::from(is_lock_free())
}

/// Writes how many bytes of memory a gate of this configuration needs.
///
/// Errors: those of `callgate_init` that concern the configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_size(
    config: *const callgate_config,
    size: *mut usize,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { Out::new(size) }.and_then(|size| {
        // SAFETY: by the contract.
        let slots = unsafe { with_config(config, Gate::slots_needed) }.map_err(|f| f.status)?;
        size.put(slots.saturating_mul(size_of::<Slot>()));
        Ok(())
    }))
}

/// Finds the first fault of a configuration, and the limit or policy that is to blame. Returns OK
/// whenever it could look, also where `fault->status` is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_check(
    config: *const callgate_config,
    fault: *mut callgate_fault,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { Out::new(fault) }.map(|out| {
        #[allow(clippy::redundant_closure_for_method_calls, reason = "the method has one lifetime")]
        // SAFETY: by the contract.
        let found = unsafe { with_config(config, |config| config.check()) };
        let fault = found.err().unwrap_or(Fault::from(CALLGATE_OK));
        let index = |index: Option<u8>| index.map_or(CALLGATE_NO_LIMIT, u32::from);
        out.put(callgate_fault {
            status: fault.status as i32,
            limit: index(fault.limit),
            policy: index(fault.policy),
        });
    }))
}

/// Makes a gate in `memory`, of which `size` bytes are the caller's, aligned to
/// `CALLGATE_ALIGNMENT`, and may hold anything before. The memory must stay where it is until the
/// last handle is out of use; there is nothing to free.
///
/// Errors: the `CALLGATE_CONFIG_*`, `CALLGATE_BAD_STRUCT_SIZE`, `CALLGATE_RESERVED_NOT_ZERO`;
/// nothing is written then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_init(
    memory: *mut c_void,
    size: usize,
    config: *const callgate_config,
    gate: *mut callgate_gate,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { Out::new(gate.cast::<Handle>()) }.and_then(|out| {
        let slots = memory.cast::<MaybeUninit<Slot>>();
        if slots.is_null() {
            return Err(CALLGATE_NULL_POINTER);
        }
        if !slots.is_aligned() {
            return Err(CALLGATE_MISALIGNED);
        }
        let count = size.min(isize::MAX as usize) / size_of::<Slot>();
        // SAFETY: by the contract, so many fit in the memory, and it stays for as long as the
        // handle that is made of it.
        let slots = unsafe { slice::from_raw_parts_mut(slots, count) };
        // SAFETY: by the contract.
        let gate = unsafe { with_config(config, |config| Gate::init(slots, config)) };
        out.put(Handle { mark: MARK, gate: gate.map_err(|f| f.status)? });
        Ok(())
    }))
}

/// Makes the key of an identity of `size` bytes. Make it once where a caller comes again: hashing
/// costs as much as deciding.
///
/// Errors: `CALLGATE_EMPTY_IDENTITY`, `CALLGATE_UNKNOWN_DOMAIN`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_key_make(
    gate: *const callgate_gate,
    domain: u32,
    identity: *const c_void,
    size: usize,
    key: *mut callgate_key,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|gate| {
        // SAFETY: by the contract.
        let out = unsafe { Out::new(key) }?;
        let domain = match domain {
            CALLGATE_DOMAIN_CALLER => Domain::Caller,
            CALLGATE_DOMAIN_TOOL => Domain::Tool,
            _ => return Err(CALLGATE_UNKNOWN_DOMAIN),
        };
        // SAFETY: by the contract.
        let identity = unsafe { get_many(identity.cast::<u8>(), size) }?;
        if identity.is_empty() {
            return Err(CALLGATE_EMPTY_IDENTITY);
        }
        let Key { lo, hi } = gate.key(domain, identity);
        out.put(callgate_key { lo, hi });
        Ok(())
    }))
}

/// Decides a call by the system's clock (`CLOCK_BOOTTIME` on Linux, where time spent suspended
/// counts; the monotonic clock elsewhere). All limits of its policy are charged, or none is.
///
/// `permit` may be NULL where the call will not be settled: its charges then stay. Where the call
/// is refused, an empty permit is written.
///
/// Errors: `CALLGATE_UNKNOWN_POLICY`, `CALLGATE_MISSING_CALLER`, `CALLGATE_MISSING_TOOL`,
/// `CALLGATE_BAD_STRUCT_SIZE`, `CALLGATE_RESERVED_NOT_ZERO`, `CALLGATE_CLOCK_FAILED`; nothing is
/// charged then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_admit(
    gate: *const callgate_gate,
    call: *const callgate_call,
    permit: *mut callgate_permit,
    decision: *mut callgate_decision,
) -> callgate_status {
    status(now().and_then(|time| {
        // SAFETY: by the contract.
        unsafe { admit(gate, call, time, since(time), permit, decision, 1) }
    }))
}

/// As `callgate_admit`, at a time that the caller takes: `now_ns` of a monotonic clock, below 2^61,
/// and `unix_ns` since the Unix epoch, which only limits in calendar windows look at.
///
/// Errors: those of `callgate_admit`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_admit_at(
    gate: *const callgate_gate,
    call: *const callgate_call,
    now_ns: u64,
    unix_ns: u64,
    permit: *mut callgate_permit,
    decision: *mut callgate_decision,
) -> callgate_status {
    let time = Time { now_ns, unix_ns };
    // SAFETY: by the contract.
    status(unsafe { admit(gate, call, time, || time, permit, decision, 1) })
}

/// Decides `count` calls, one after the other at one time, in one crossing. `permits` may be NULL;
/// else it has room for `count`, as `decisions` has. Where one of the calls can't be decided, none
/// is.
///
/// Errors: those of `callgate_admit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_admit_many(
    gate: *const callgate_gate,
    calls: *const callgate_call,
    count: usize,
    permits: *mut callgate_permit,
    decisions: *mut callgate_decision,
) -> callgate_status {
    status(now().and_then(|time| {
        // SAFETY: by the contract.
        unsafe { admit(gate, calls, time, since(time), permits, decisions, count) }
    }))
}

/// As `callgate_admit_many`, at a time that the caller takes.
///
/// Errors: those of `callgate_admit_at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_admit_many_at(
    gate: *const callgate_gate,
    calls: *const callgate_call,
    count: usize,
    now_ns: u64,
    unix_ns: u64,
    permits: *mut callgate_permit,
    decisions: *mut callgate_decision,
) -> callgate_status {
    let time = Time { now_ns, unix_ns };
    // SAFETY: by the contract.
    status(unsafe { admit(gate, calls, time, || time, permits, decisions, count) })
}

/// What `callgate_admit` would say to the call, limit by limit in the policy's order. Changes
/// nothing. `decisions` has room for `CALLGATE_MAX_RULES`; their number goes to `count`.
///
/// Errors: those of `callgate_admit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_peek(
    gate: *const callgate_gate,
    call: *const callgate_call,
    decisions: *mut callgate_decision,
    count: *mut usize,
) -> callgate_status {
    // SAFETY: by the contract.
    status(now().and_then(|time| unsafe { peek(gate, call, time, decisions, count) }))
}

/// As `callgate_peek`, at a time that the caller takes.
///
/// Errors: those of `callgate_admit_at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_peek_at(
    gate: *const callgate_gate,
    call: *const callgate_call,
    now_ns: u64,
    unix_ns: u64,
    decisions: *mut callgate_decision,
    count: *mut usize,
) -> callgate_status {
    // SAFETY: by the contract.
    status(unsafe { peek(gate, call, Time { now_ns, unix_ns }, decisions, count) })
}

/// Ends an admitted call. Of a call that was cancelled, every charge is given back as far as time
/// has not done so already; a limit that was reconfigured since takes nothing back. `used` are the
/// units to charge to quotas. Any thread may settle; the second to do so is told
/// `CALLGATE_ALREADY_SETTLED`.
///
/// Errors: `CALLGATE_UNKNOWN_PERMIT`, `CALLGATE_UNKNOWN_OUTCOME`, `CALLGATE_CLOCK_FAILED`; the
/// permit is then as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_settle(
    gate: *const callgate_gate,
    permit: *mut callgate_permit,
    outcome: u32,
    used: u64,
) -> callgate_status {
    // Read once to know that it can be, and then when it matters.
    let result = now().and_then(|time| {
        // SAFETY: by the contract.
        unsafe { settle(gate, permit, outcome, used, since(time)) }
    });
    result.unwrap_or_else(|status| status)
}

/// As `callgate_settle`, at a time that the caller takes.
///
/// Errors: those of `callgate_settle`, and `CALLGATE_TIME_OUT_OF_RANGE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_settle_at(
    gate: *const callgate_gate,
    permit: *mut callgate_permit,
    outcome: u32,
    used: u64,
    now_ns: u64,
    unix_ns: u64,
) -> callgate_status {
    let result = time(now_ns, unix_ns).and_then(|time| {
        // SAFETY: by the contract.
        unsafe { settle(gate, permit, outcome, used, || time) }
    });
    result.unwrap_or_else(|status| status)
}

/// Changes a limit for all callers at once. Every caller keeps its debt, but never more than the
/// new limit can express; nobody gets a new burst. Not by two threads at once.
///
/// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_RESERVED_NOT_ZERO`, `CALLGATE_CLOCK_FAILED`, and the
/// `CALLGATE_CONFIG_*`; the limit is then as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_reconfigure(
    gate: *const callgate_gate,
    limit: u32,
    to: *const callgate_limit,
) -> callgate_status {
    status(now().and_then(|time| {
        // SAFETY: by the contract.
        unsafe { reconfigure(gate, limit, to, since(time)) }
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

/// What the slots of the gate's table hold now. Walks all of them: for metrics, not for every call.
///
/// Errors: `CALLGATE_CLOCK_FAILED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_stats_get(
    gate: *const callgate_gate,
    stats: *mut callgate_stats,
) -> callgate_status {
    // SAFETY: by the contract.
    status(now().and_then(|time| unsafe { stats_at(gate, time, stats) }))
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

fn now() -> Result<Time> {
    Ok(system_time()?)
}

/// The system's clock, once it has been read: should that ever fail, the first reading stands.
fn since(first: Time) -> impl Fn() -> Time {
    move || system_time().unwrap_or(first)
}

fn time(now_ns: u64, unix_ns: u64) -> Result<Time> {
    let time = Time { now_ns, unix_ns };
    if time.is_in_range() { Ok(time) } else { Err(CALLGATE_TIME_OUT_OF_RANGE) }
}

/// # Safety
/// As `callgate_admit_many`.
#[inline]
unsafe fn admit(
    gate: *const callgate_gate,
    calls: *const callgate_call,
    time: Time,
    clock: impl Fn() -> Time,
    permits: *mut callgate_permit,
    decisions: *mut callgate_decision,
    count: usize,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let calls = unsafe { get_many(calls, count) }?;
    // SAFETY: by the contract.
    let decisions = unsafe { Out::new(decisions) }?;
    // SAFETY: by the contract.
    let permits = if permits.is_null() { None } else { Some(unsafe { Out::new(permits) }?) };
    if count > 1 {
        for call in calls {
            gate.check(&call.to_core()?, time)?;
        }
    }
    for (n, call) in calls.iter().enumerate() {
        let admission = gate.admit_by(&call.to_core()?, time, &clock)?;
        decisions.put_at(n, admission.decision.into());
        if let Some(permits) = &permits {
            permits.put_front_at(n, admission.permit.unwrap_or(Permit::EMPTY));
        }
    }
    Ok(())
}

/// # Safety
/// As `callgate_peek`.
unsafe fn peek(
    gate: *const callgate_gate,
    call: *const callgate_call,
    time: Time,
    decisions: *mut callgate_decision,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract.
    let call = unsafe { get(call) }?.to_core()?;
    // SAFETY: by the contract.
    let decisions = unsafe { Out::new(decisions) }?;
    // SAFETY: by the contract.
    let count = unsafe { Out::new(count) }?;
    let found = gate.peek(&call, time)?;
    count.put(found.len());
    for (n, decision) in found.into_iter().enumerate() {
        decisions.put_at(n, decision.into());
    }
    Ok(())
}

/// # Safety
/// As `callgate_settle`.
unsafe fn settle(
    gate: *const callgate_gate,
    permit: *mut callgate_permit,
    outcome: u32,
    used: u64,
    clock: impl Fn() -> Time,
) -> Result<callgate_status> {
    // SAFETY: by the contract.
    let gate = unsafe { gate_of(gate) }?;
    // SAFETY: by the contract. Any bytes are a `Permit`, and one is no longer than that struct.
    let permit = unsafe { get(permit.cast_const().cast::<Permit>()) }?;
    let outcome = match outcome {
        CALLGATE_OUTCOME_SUCCESS => Outcome::Success,
        CALLGATE_OUTCOME_FAILURE => Outcome::Failure,
        CALLGATE_OUTCOME_ABANDONED => Outcome::Abandoned,
        CALLGATE_OUTCOME_CANCELLED => Outcome::Cancelled,
        _ => return Err(CALLGATE_UNKNOWN_OUTCOME),
    };
    Ok(match gate.settle_by(permit, outcome, used, clock)? {
        Settled::Now => CALLGATE_OK,
        Settled::Already => CALLGATE_ALREADY_SETTLED,
    })
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

impl callgate_call {
    fn to_core(&self) -> Result<Call> {
        if self.struct_size as usize != size_of::<Self>() {
            return Err(CALLGATE_BAD_STRUCT_SIZE);
        }
        if self.reserved != [0; 2] {
            return Err(CALLGATE_RESERVED_NOT_ZERO);
        }
        Ok(Call {
            caller: self.caller.to_core(),
            tool: self.tool.to_core(),
            cost: self.cost,
            reserve: self.reserve,
            policy: self.policy,
        })
    }
}

impl callgate_key {
    fn to_core(self) -> Key {
        Key { lo: self.lo, hi: self.hi }
    }
}

impl From<Decision> for callgate_decision {
    fn from(decision: Decision) -> Self {
        Self {
            admitted: u32::from(decision.admitted()),
            reason: decision.refused.map_or(CALLGATE_REASON_NONE, |reason| reason as u32),
            by: decision.by.map_or(CALLGATE_NO_LIMIT, u32::from),
            reserved: 0,
            retry_after_ns: decision.retry_after_ns,
            limit: decision.limit,
            remaining: decision.remaining,
            reset_after_ns: decision.reset_after_ns,
        }
    }
}
