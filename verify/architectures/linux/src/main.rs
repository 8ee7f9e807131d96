//! Runs the scenarios and prints what came of them. Without the standard library, which is not there
//! for every machine; of C's, it asks to write and to end.
#![no_std]
#![no_main]

use core::ffi::{c_char, c_int, c_void};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;

use callgate_core::{Slot, is_lock_free};
use callgate_scenarios::SLOTS;

#[link(name = "c")]
unsafe extern "C" {
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
    fn abort() -> !;
}

struct Output;

impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: the bytes are there.
        let written = unsafe { write(1, text.as_ptr().cast(), text.len()) };
        if usize::try_from(written) == Ok(text.len()) { Ok(()) } else { Err(fmt::Error) }
    }
}

/// # Safety
/// Called by C's start-up code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    let mut memory = [const { MaybeUninit::<Slot>::uninit() }; SLOTS];
    let _ = writeln!(Output, "lock-free: {}", is_lock_free());
    match callgate_scenarios::run(&mut memory, &mut Output) {
        Ok(tally) if tally.failed == 0 => 0,
        _ => 1,
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let _ = writeln!(Output, "{info}");
    // SAFETY: it may be called at any time.
    unsafe { abort() }
}
