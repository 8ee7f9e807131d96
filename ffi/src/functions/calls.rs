//! Calls: deciding, looking, settling.
use core::mem::size_of;

use callgate_core::{Call, CallError, Decision, Gate, Key, Outcome, Permit, Settled, Time};

use super::{now, since, status, time};
use crate::pointers::{Out, gate_of, get, get_many};
use crate::status::{Result, callgate_status, callgate_status::*};
use crate::types::*;

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
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|handle| {
        let time = |policy| handle.system_time_under(policy).map_err(Into::into);
        let clock = |time| since(handle, time)();
        // SAFETY: by the contract.
        unsafe { admit(handle, call, time, clock, permit, decision) }
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
    status(unsafe { gate_of(gate) }.and_then(|gate| {
        // SAFETY: by the contract.
        unsafe { admit(gate, call, |_| Ok(time), |_| time, permit, decision) }
    }))
}

/// Decides `count` calls, one after the other at one time, in one crossing. `permits` may be NULL;
/// else it has room for `count`, as `decisions` has. Where one of the calls can't be decided, none
/// is. With a count of 0, only the gate is looked at.
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
    // SAFETY: by the contract.
    status(unsafe { gate_of(gate) }.and_then(|handle| {
        let time = handle.system_time()?;
        // SAFETY: by the contract.
        unsafe { admit_many(handle, calls, time, since(handle, time), permits, decisions, count) }
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
    status(unsafe { gate_of(gate) }.and_then(|gate| {
        // SAFETY: by the contract.
        unsafe { admit_many(gate, calls, time, || time, permits, decisions, count) }
    }))
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
    status(
        unsafe { now(gate) }.and_then(|time| unsafe { peek(gate, call, time, decisions, count) }),
    )
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

/// Ends an admitted call: gives back its place, tells breakers how it went, and replaces its reserve
/// in quotas by the units that it `used`; of an abandoned call with `used` 0 the reserve stays. Of a
/// call that was cancelled, every charge is given back as far as time has not done so already, but
/// not to a rate limit that was reconfigured since.
///
/// Any thread may settle; the second to do so is told `CALLGATE_ALREADY_SETTLED`, as is one who
/// settles the empty permit of a refused call. `CALLGATE_LAPSED` says that the call's place had been
/// taken for lost: see `lease_ns`.
///
/// Where the system's clock can't be read, the time at which the call was charged stands for the
/// present.
///
/// Errors: `CALLGATE_UNKNOWN_PERMIT`, `CALLGATE_UNKNOWN_OUTCOME`; the permit is then as before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn callgate_settle(
    gate: *const callgate_gate,
    permit: *mut callgate_permit,
    outcome: u32,
    used: u64,
) -> callgate_status {
    // SAFETY: by the contract.
    let result = unsafe {
        settle(gate, permit, outcome, |gate, permit, outcome| {
            gate.settle_now(permit, outcome, used)
        })
    };
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
        unsafe {
            settle(gate, permit, outcome, |gate, permit, outcome| {
                gate.settle(permit, outcome, used, time)
            })
        }
    });
    result.unwrap_or_else(|status| status)
}

/// # Safety
/// As `callgate_admit`.
#[inline]
unsafe fn admit(
    gate: &Gate<'_>,
    call: *const callgate_call,
    time: impl FnOnce(u32) -> Result<Time>,
    clock: impl Fn(Time) -> Time,
    permit: *mut callgate_permit,
    decision: *mut callgate_decision,
) -> Result<()> {
    // SAFETY: by the contract.
    let call = unsafe { get(call) }?;
    // SAFETY: by the contract.
    let decision = unsafe { Out::new(decision) }?;
    // SAFETY: by the contract.
    let permit = unsafe { Out::optional(permit) }?;
    decide(gate, call, time, clock, permit.as_ref(), &decision)
}

/// # Safety
/// As `callgate_admit_many`.
unsafe fn admit_many(
    gate: &Gate<'_>,
    calls: *const callgate_call,
    time: Time,
    clock: impl Fn() -> Time,
    permits: *mut callgate_permit,
    decisions: *mut callgate_decision,
    count: usize,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    // SAFETY: by the contract.
    let calls = unsafe { get_many(calls, count) }?;
    // SAFETY: by the contract.
    let decisions = unsafe { Out::new(decisions) }?;
    // SAFETY: by the contract.
    let permits = unsafe { Out::optional(permits) }?;
    for call in calls {
        gate.check(&call.to_core()?, time)?;
    }
    for (n, call) in calls.iter().enumerate() {
        let permit = permits.as_ref().map(|permits| permits.at(n));
        decide(gate, call, |_| Ok(time), |_| clock(), permit.as_ref(), &decisions.at(n))?;
    }
    Ok(())
}

/// Decides one call, and writes what there is to say about it.
#[inline]
fn decide(
    gate: &Gate<'_>,
    call: &callgate_call,
    time: impl FnOnce(u32) -> Result<Time>,
    clock: impl Fn(Time) -> Time,
    permit: Option<&Out<callgate_permit>>,
    decision: &Out<callgate_decision>,
) -> Result<()> {
    let keep = |given: Permit| {
        if let Some(permit) = permit {
            permit.put_front(given);
        }
    };
    let call = call.to_core()?;
    let decided = gate.admit_to(&call, || time(call.policy), clock, keep)?;
    if let (Some(permit), false) = (permit, decided.admitted()) {
        permit.put_front(Permit::EMPTY);
    }
    decision.put(decided.into());
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
        decisions.at(n).put(decision.into());
    }
    Ok(())
}

/// # Safety
/// As `callgate_settle`.
unsafe fn settle(
    gate: *const callgate_gate,
    permit: *mut callgate_permit,
    outcome: u32,
    by: impl FnOnce(&Gate<'_>, &Permit, Outcome) -> core::result::Result<Settled, CallError>,
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
    Ok(match by(gate, permit, outcome)? {
        Settled::Now => CALLGATE_OK,
        Settled::Already => CALLGATE_ALREADY_SETTLED,
        Settled::Lapsed => CALLGATE_LAPSED,
    })
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
    pub(super) fn to_core(self) -> Key {
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
