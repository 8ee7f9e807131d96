//! The system's clock, for hosts that bring none of their own.
use core::fmt;

use crate::time::{TIME_LIMIT_NS, Time};

/// The system's clock could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockError;

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system's clock could not be read")
    }
}

impl core::error::Error for ClockError {}

/// The present instant: `CLOCK_BOOTTIME` on Linux, the monotonic clock elsewhere, and the wall
/// clock. [`Gate::system_time`](crate::Gate::system_time) reads what its gate needs.
///
/// # Errors
/// Where the system has no such clock: on what is no Unix always.
#[inline]
pub fn system_time() -> Result<Time, ClockError> {
    let unix_ns = clocks::wall_ns()?;
    Ok(Time { unix_ns, ..monotonic_time()? })
}

/// The present instant without the wall clock's.
#[inline]
pub(crate) fn monotonic_time() -> Result<Time, ClockError> {
    Ok(Time::at(clocks::monotonic_ns()?.min(TIME_LIMIT_NS - 1)))
}

#[cfg(unix)]
mod clocks {
    use super::ClockError;

    /// Time spent suspended counts on Linux: a bucket refills while a laptop sleeps.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const MONOTONIC: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const MONOTONIC: libc::clockid_t = libc::CLOCK_MONOTONIC;

    #[inline]
    pub(super) fn monotonic_ns() -> Result<u64, ClockError> {
        read(MONOTONIC)
    }

    #[inline]
    pub(super) fn wall_ns() -> Result<u64, ClockError> {
        read(libc::CLOCK_REALTIME)
    }

    #[inline]
    fn read(clock: libc::clockid_t) -> Result<u64, ClockError> {
        let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `spec` is a timespec to write to.
        if unsafe { libc::clock_gettime(clock, &raw mut spec) } != 0 {
            return Err(ClockError);
        }
        let seconds = u64::try_from(spec.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(spec.tv_nsec).unwrap_or(0);
        Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }
}

/// Firmware brings its own.
#[cfg(not(unix))]
mod clocks {
    use super::ClockError;

    pub(super) fn monotonic_ns() -> Result<u64, ClockError> {
        Err(ClockError)
    }

    pub(super) fn wall_ns() -> Result<u64, ClockError> {
        Err(ClockError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::time::{SystemTime, UNIX_EPOCH};

    fn wall_ns() -> u128 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
    }

    #[test]
    fn both_clocks_are_the_systems() {
        let before = (wall_ns(), monotonic_time().unwrap().now_ns);
        let Time { now_ns, unix_ns } = system_time().unwrap();
        let after = (wall_ns(), monotonic_time().unwrap().now_ns);
        assert!((before.0..=after.0).contains(&unix_ns.into()), "was the wall clock set just now?");
        assert!((before.1..=after.1).contains(&now_ns));
        assert_eq!(monotonic_time().unwrap().unix_ns, 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_monotonic_clock_counts_the_time_since_the_system_was_started() {
        let uptime_s = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split('.').next().unwrap().parse::<u64>().unwrap()
        };
        let before_s = uptime_s();
        let now_s = monotonic_time().unwrap().now_ns / 1_000_000_000;
        // Of the clock's hundredths, one may be on either side.
        assert!((before_s.saturating_sub(1)..=uptime_s() + 1).contains(&now_s), "{now_s}");
    }

    #[test]
    fn an_error_says_what_failed() {
        assert_eq!(ClockError.to_string(), "the system's clock could not be read");
    }
}
