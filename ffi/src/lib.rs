//! The C ABI of callgate. What is documented here becomes `include/callgate.h`.
//!
//! Nothing in this crate decides anything: it checks what comes from C, calls `callgate-core`, and
//! writes what it says. Every function returns a status, and writes its outputs only on success.
//!
//! The contract of every `unsafe` function: a pointer that is neither NULL nor misaligned points to
//! what its type and the counts beside it say, and what it points to stays for the call; the
//! memory of a gate is nobody else's, and stays for as long as its handles are in use.
#![no_std]
#![allow(non_camel_case_types, reason = "the types are named as C sees them")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the contract of all pointers is stated once, at the head of the header"
)]
#![allow(
    clippy::enum_glob_use,
    clippy::wildcard_imports,
    reason = "the names of the ABI bear its prefix already"
)]

mod config;
mod functions;
mod pointers;
mod status;
mod types;

pub use functions::*;
pub use status::{callgate_error_field, callgate_status, callgate_strerror};
pub use types::*;

/// The library brings no unwinder and no allocator, and nothing in it panics: the tests look for
/// this handler in the finished library, from which the linker drops what nothing reaches.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
