//! The functions of the header, in the order in which a program meets them.
use core::ffi::c_void;
use core::mem::{MaybeUninit, size_of};
use core::slice;

use callgate_core::{Domain, Gate, Key, Slot, Time, is_lock_free};

use crate::config::{Fault, with_config};
use crate::pointers::{Out, gate_of, get_many};
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

/// The system's time, as the gate needs it.
///
/// # Safety
/// As `gate_of`.
unsafe fn now(gate: *const callgate_gate) -> Result<Time> {
    // SAFETY: by the contract.
    Ok(unsafe { gate_of(gate) }?.system_time()?)
}

/// The gate's clock, once it has been read: should that ever fail, the first reading stands.
fn since(gate: &Gate<'_>, first: Time) -> impl Fn() -> Time {
    move || gate.system_time().unwrap_or(first)
}

fn time(now_ns: u64, unix_ns: u64) -> Result<Time> {
    let time = Time { now_ns, unix_ns };
    if time.is_in_range() { Ok(time) } else { Err(CALLGATE_TIME_OUT_OF_RANGE) }
}

mod calls;
mod limits;
mod reports;
