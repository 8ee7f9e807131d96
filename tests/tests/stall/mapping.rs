//! Memory for one gate after the other.
use std::mem::MaybeUninit;
use std::ptr;

use callgate_core::{Gate, Slot};

use super::with_config;

/// Memory that forked processes share.
pub struct Mapping {
    memory: *mut MaybeUninit<Slot>,
    slots: usize,
}

impl Mapping {
    pub fn new() -> Self {
        let slots = with_config(Gate::slots_needed).expect("a gate");
        let (bytes, access) = (slots * size_of::<Slot>(), libc::PROT_READ | libc::PROT_WRITE);
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, nobody else's.
        let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(memory, libc::MAP_FAILED);
        Self { memory: memory.cast(), slots }
    }

    /// A new gate. Of the one before nothing is left.
    pub fn gate(&mut self) -> Gate<'_> {
        // SAFETY: so long it is, and mapped until `self` goes; borrowed for as long as the gate.
        let memory = unsafe { std::slice::from_raw_parts_mut(self.memory, self.slots) };
        with_config(|config| Gate::init(memory, config)).expect("a gate")
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, at this length.
        unsafe { libc::munmap(self.memory.cast(), self.slots * size_of::<Slot>()) };
    }
}
