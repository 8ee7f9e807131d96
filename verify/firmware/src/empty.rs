//! Nothing but what every program here has.
#![no_std]
#![no_main]

mod machine;

#[cortex_m_rt::entry]
fn main() -> ! {
    machine::end(core::hint::black_box(true))
}
