//! Threads that start together, dice for them, and the bound that any interleaving must keep.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Runs `work` on that many threads, which start together; each is told its number.
pub fn in_parallel(threads: u64, work: impl Fn(u64) + Sync) {
    let start = Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

/// Says that it is over when it goes, also where a check failed: others wait for that.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Random enough, and the same each time (xorshift64*; Vigna, 2016).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// One admission: at what time it was asked for, and the latest that any clock had told when it was
/// given. It took effect at a time between them.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    pub told_ns: u64,
    pub done_ns: u64,
}

/// No span of time may hold more admissions than a burst and what the span brought.
pub fn check_windows(who: &str, visits: &mut [Visit], burst: u64, interval_ns: u64) {
    visits.sort_by_key(|visit| visit.done_ns);
    let mut starts: Vec<u64> = visits.iter().map(|visit| visit.told_ns).collect();
    starts.sort_unstable();
    for start_ns in starts {
        let mut given = 0;
        for visit in visits.iter().filter(|visit| visit.told_ns >= start_ns) {
            given += 1;
            let span_ns = visit.done_ns - start_ns;
            assert!(
                given * interval_ns <= burst * interval_ns + span_ns,
                "{who} was given {given} within {span_ns} ns from {start_ns}"
            );
        }
    }
}
