//! Runs the decision vectors and says what came of them through the debugger.
#![no_std]
#![no_main]

mod machine;

use core::mem::MaybeUninit;

use callgate_core::Slot;
use callgate_scenarios::SLOTS;
use machine::{Debugger, end};

#[cortex_m_rt::entry]
fn main() -> ! {
    let mut memory = [const { MaybeUninit::<Slot>::uninit() }; SLOTS];
    match callgate_scenarios::run(&mut memory, &mut Debugger) {
        Ok(tally) => end(tally.failed == 0),
        Err(_) => end(false),
    }
}
