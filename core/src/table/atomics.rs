//! The atomics that threads share a table by.
//!
//! Tests with `--cfg loom` run the table on others, by which loom tries every interleaving and all
//! that weakly ordered memory allows. Only tests: a crate that is itself checked by loom, and
//! depends on this one, gets the engine as it is.
#[cfg(all(loom, test))]
pub(super) mod modelled;
#[cfg(all(loom, test))]
pub(super) use modelled::{AtomicU64, AtomicU128, Ordering, fence, glimpse, hint};

#[cfg(not(all(loom, test)))]
pub(super) use portable_atomic::{AtomicU64, AtomicU128, Ordering, fence};

/// What is in `at`, but its halves may be of two moments, the upper one's the earlier. For those who
/// see, before anything comes of it, whether that is what is there.
#[cfg(not(all(loom, test)))]
#[inline]
pub(super) fn glimpse(at: &AtomicU128) -> u128 {
    match (half::<8>(at), half::<0>(at)) {
        (Some(upper), Some(lower)) => u128::from(upper) << 64 | u128::from(lower),
        _ => at.load(Ordering::Acquire),
    }
}

/// The lower half of what is in `at`, for those who choose where to look. `None`: it takes no less than
/// the whole.
#[cfg(not(all(loom, test)))]
#[inline]
pub(super) fn hint(at: &AtomicU128) -> Option<u64> {
    half::<0>(at)
}

/// The half of `at` that begins at that byte, where both halves at once take a vector register, and
/// longer. Halves are loaded in the order of the calls.
#[cfg(not(all(loom, test)))]
#[inline(always)]
#[allow(clippy::unnecessary_wraps, reason = "elsewhere there is none")]
fn half<const BYTE: usize>(at: &AtomicU128) -> Option<u64> {
    // A sanitizer sees no assembly.
    #[cfg(all(
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(portable_atomic_sanitize_thread)
    ))]
    {
        const { assert!(BYTE + size_of::<u64>() <= size_of::<AtomicU128>()) };
        let half: u64;
        // SAFETY: reads what `at` refers to. Either half is what an atomic load of the whole would
        // have found there; loads acquire on this processor, and are made in order.
        unsafe {
            core::arch::asm!(
                "mov {half}, [{at} + {byte}]",
                half = lateout(reg) half,
                at = in(reg) at,
                byte = const BYTE,
                options(nostack, preserves_flags, readonly),
            );
        }
        Some(half)
    }
    #[cfg(not(all(
        target_arch = "x86_64",
        target_pointer_width = "64",
        not(portable_atomic_sanitize_thread)
    )))]
    {
        let _ = at;
        None
    }
}
