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

    /// As [`new`](Self::new), of a pointer that may be NULL.
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn optional(pointer: *mut T) -> Result<Option<Self>> {
        // SAFETY: by the contract.
        if pointer.is_null() { Ok(None) } else { unsafe { Self::new(pointer) }.map(Some) }
    }

    /// The place of an element, of an output that is an array, whose length callers keep to.
    pub(crate) fn at(&self, n: usize) -> Self {
        Self(self.0.wrapping_add(n))
    }

    pub(crate) fn put(&self, value: T) {
        // SAFETY: by the contract of `new`, for each element of an array.
        unsafe { self.0.write(value) };
    }

    /// Writes something no longer to where the `T` begins.
    pub(crate) fn put_front<U>(&self, value: U) {
        const { assert!(size_of::<U>() <= size_of::<T>() && align_of::<U>() <= align_of::<T>()) };
        // SAFETY: as in `put`; it fits.
        unsafe { self.0.cast::<U>().write(value) };
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
