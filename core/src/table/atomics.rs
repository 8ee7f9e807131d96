//! The atomics that threads share a table by.
//!
//! Tests with `--cfg loom` run the table on others, by which loom tries every interleaving and all
//! that weakly ordered memory allows. Only tests: a crate that is itself checked by loom, and
//! depends on this one, gets the engine as it is.
#[cfg(all(loom, test))]
pub(super) mod modelled;
#[cfg(all(loom, test))]
pub(super) use modelled::{AtomicU64, AtomicU128, Ordering, fence, glimpse};

#[cfg(not(all(loom, test)))]
pub(super) use portable_atomic::{AtomicU64, AtomicU128, Ordering, fence};

/// What is in `at`, but its halves may be of two moments, the upper one's the earlier. For those who
/// see, before anything comes of it, whether that is what is there.
#[cfg(not(all(loom, test)))]
#[inline]
pub(super) fn glimpse(at: &AtomicU128) -> u128 {
    // Here, to load both halves at once takes a vector register, and longer. (A sanitizer sees no
    // assembly.)
    #[cfg(all(
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(portable_atomic_sanitize_thread)
    ))]
    {
        let (upper, lower): (u64, u64);
        // SAFETY: reads what `at` refers to. Either half is what an atomic load of the whole would
        // have found there; loads acquire on this processor, and are made in order.
        unsafe {
            core::arch::asm!(
                "mov {upper}, [{at} + 8]",
                "mov {lower}, [{at}]",
                at = in(reg) at,
                upper = out(reg) upper,
                lower = lateout(reg) lower,
                options(nostack, preserves_flags, readonly),
            );
        }
        u128::from(upper) << 64 | u128::from(lower)
    }
    #[cfg(not(all(
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(portable_atomic_sanitize_thread)
    )))]
    at.load(Ordering::Acquire)
}
