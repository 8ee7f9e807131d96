//! What every program here needs of the machine.
use core::fmt::{self, Write};

use cortex_m_semihosting::debug::{self, EXIT_FAILURE, EXIT_SUCCESS};
use cortex_m_semihosting::hio;

/// The debugger's console.
pub struct Debugger;

impl Write for Debugger {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        hio::hstdout()
            .and_then(|mut console| console.write_all(text.as_bytes()))
            .map_err(|()| fmt::Error)
    }
}

/// Ends QEMU.
pub fn end(has_succeeded: bool) -> ! {
    debug::exit(if has_succeeded { EXIT_SUCCESS } else { EXIT_FAILURE });
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    let _ = Debugger.write_str("panicked\n");
    end(false)
}
