//! What comes from C as pointers, checked as far as pointers can be.
use core::slice;

use crate::status::{Result, callgate_status::*};
use crate::types::{Handle, MARK, callgate_gate};
use callgate_core::Gate;

/// Whether a pointer can point to a `T`.
fn check<T>(pointer: *const T) -> Result<()> {
    if pointer.is_null() {
        Err(CALLGATE_NULL_POINTER)
    } else if !pointer.is_aligned() {
        Err(CALLGATE_MISALIGNED)
    } else {
        Ok(())
    }
}

/// # Safety
/// A pointer that is neither NULL nor misaligned points to a `T`, which stays for `'a`.
pub(crate) unsafe fn get<'a, T>(pointer: *const T) -> Result<&'a T> {
    check(pointer)?;
    // SAFETY: by the contract.
    Ok(unsafe { &*pointer })
}

/// # Safety
/// A pointer that is neither NULL nor misaligned points to `count` of `T`, which stay for `'a`.
pub(crate) unsafe fn get_many<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    check(pointer)?;
    // SAFETY: by the contract.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// A place for an output. What is there before is not looked at.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// A pointer that is neither NULL nor misaligned can be written to until this is dropped.
    pub(crate) unsafe fn new(pointer: *mut T) -> Result<Self> {
        check(pointer).map(|()| Self(pointer))
    }

    pub(crate) fn put(&self, value: T) {
        self.put_at(0, value);
    }

    /// Of an output that is an array, whose length callers keep to.
    pub(crate) fn put_at(&self, n: usize, value: T) {
        // SAFETY: by the contract of `new`, for each element of an array.
        unsafe { self.0.wrapping_add(n).write(value) };
    }

    /// Writes something no longer to where a `T` begins.
    pub(crate) fn put_front_at<U>(&self, n: usize, value: U) {
        const { assert!(size_of::<U>() <= size_of::<T>() && align_of::<U>() <= align_of::<T>()) };
        // SAFETY: as in `put_at`; it fits.
        unsafe { self.0.wrapping_add(n).cast::<U>().write(value) };
    }
}

/// # Safety
/// As `get`; and where the handle bears the mark, the gate's memory is still there.
pub(crate) unsafe fn gate_of<'a>(pointer: *const callgate_gate) -> Result<&'a Gate<'static>> {
    check(pointer)?;
    // SAFETY: a handle begins with its mark, and any eight bytes are one.
    if unsafe { *pointer.cast::<u64>() } != MARK {
        return Err(CALLGATE_NOT_A_GATE);
    }
    // SAFETY: by the mark, it is a handle that `callgate_init` wrote.
    let handle = unsafe { &*pointer.cast::<Handle>() };
    Ok(&handle.gate)
}
