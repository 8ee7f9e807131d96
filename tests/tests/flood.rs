//! Ten million strangers at one gate: what it remembers, what it takes, and what each of them costs.
use std::fs;
use std::mem::MaybeUninit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use callgate_core::{Call, Config, Gate, Key, Reason, Slot, Time};
use callgate_tests::gates::{self, SECRET, call_of};
use callgate_tests::reference::{Limit, RateLimit, Rule, Scope};

const HOUR: u64 = 3_600_000_000_000;

/// Two limits by caller, a slow one under the first policy and a fast one under the second.
fn limits() -> [callgate_core::Limit; 2] {
    [(1, HOUR, 1), (1, 1_000, 1)].map(|(count, period_ns, burst)| {
        gates::limit(&Limit::Rate(RateLimit { count, period_ns, burst }))
    })
}

/// Both tests look at the memory of the whole process, so one waits for the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stranger(gate: &Gate<'_>, n: u64) -> Call {
    // As random as a digest, and cheaper to make.
    let lo = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635;
    let hi = (n ^ n << 31).wrapping_mul(0xd6e8_feb8_6659_fd93) ^ lo.rotate_left(29);
    Call { caller: Key { lo, hi }, ..call_of(gate, 0) }
}

#[test]
fn ten_million_strangers_cost_no_memory_and_no_drained_bucket() {
    let _alone = alone();
    let rules = [0, 1].map(|limit| [gates::rule(&Rule { limit, scope: Scope::Caller })]);
    let policies: [&[callgate_core::Rule]; 2] = [&rules[0], &rules[1]];
    let limits = limits();
    let config = Config { capacity: 1_000, secret: SECRET, limits: &limits, policies: &policies };
    let needed = Gate::slots_needed(&config).unwrap();
    let mut memory = Vec::new();
    memory.resize_with(needed + 1, MaybeUninit::<Slot>::uninit);
    // SAFETY: any bytes are a `MaybeUninit`, and these are the vector's.
    unsafe { memory.as_mut_ptr().write_bytes(0xA5, memory.len()) };
    let (inside, canary) = memory.split_at_mut(needed);
    let gate = Gate::init(inside, &config).unwrap();

    for n in 0..1_000 {
        assert!(gate.admit(&call_of(&gate, n), Time::at(0)).unwrap().decision.admitted());
    }
    let before = resident_kib();
    let (mut admitted, mut full) = (0, 0);
    for n in 0..10_000_000u64 {
        // Half of them take a place for a while, half would drain a bucket for an hour.
        let policy = u32::from(n % 1_000_000 < 500_000);
        let call = Call { policy, ..stranger(&gate, n) };
        match gate.admit(&call, Time::at(n)).unwrap().decision.refused {
            None => admitted += 1,
            Some(Reason::TableFull) => full += 1,
            Some(other) => panic!("stranger {n} was refused by {other:?}"),
        }
    }
    assert!(admitted > 100_000 && full > 1_000_000, "{admitted} admitted, {full} found no place");
    let after = resident_kib();
    assert!(after < before + 512, "from {before} KiB to {after} KiB");
    for n in 0..1_000 {
        let decision = gate.admit(&call_of(&gate, n), Time::at(10_000_000)).unwrap().decision;
        assert_eq!(decision.refused, Some(Reason::Rate), "caller {n} was forgotten");
        assert_eq!(decision.retry_after_ns, HOUR - 10_000_000);
    }
    // SAFETY: all bytes of the slot were written above, and any bytes are an array.
    let bytes: [u8; 32] = unsafe { std::mem::transmute_copy(&canary[0]) };
    assert_eq!(bytes, [0xA5; 32], "it wrote behind its memory");
}

/// In KiB, of this process.
#[cfg(target_os = "linux")]
fn resident_kib() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4
}

#[cfg(not(target_os = "linux"))]
fn resident_kib() -> u64 {
    0
}

/// The kernel counts which pages of the table were touched: those of the two groups, and of what
/// every call reads. A walk of any kind would touch hundreds.
#[test]
#[cfg(target_os = "linux")]
fn a_stranger_who_is_refused_touches_two_groups_of_a_large_table() {
    let _alone = alone();
    let rules = [gates::rule(&Rule { limit: 0, scope: Scope::Caller })];
    let limits = limits();
    let config = Config { capacity: 20_000, secret: SECRET, limits: &limits, policies: &[&rules] };
    let mapping = Mapping::new(Gate::slots_needed(&config).unwrap());
    let gate = Gate::init(mapping.slots(), &config).unwrap();
    for n in 0..100_000 {
        gate.admit(&stranger(&gate, n), Time::at(0)).unwrap();
    }
    assert!(mapping.kib() > 1_000, "the table has hundreds of pages");
    let mut found_full = 0;
    for n in 200_000..200_050 {
        let call = stranger(&gate, n);
        let (refused, kib) = mapping.touched_by(|| {
            gate.admit(&call, Time::at(1)).unwrap().decision.refused == Some(Reason::TableFull)
        });
        found_full += u32::from(refused);
        // Two for the groups; one or two each for the head, the counts, the limits, the policies.
        assert!(kib <= 7 * 4, "stranger {n} touched {kib} KiB");
    }
    assert!(found_full > 25, "only {found_full} of 50 found no place");
}

/// Memory of its own for a gate, of which the kernel can be asked what was touched.
#[cfg(target_os = "linux")]
struct Mapping {
    start: *mut Slot,
    slots: usize,
}

#[cfg(target_os = "linux")]
impl Mapping {
    fn new(slots: usize) -> Self {
        let size = slots * size_of::<Slot>();
        // SAFETY: a new mapping, at a place that the kernel picks.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: advice on the mapping just made: pages are counted one by one.
        unsafe { libc::madvise(start, size, libc::MADV_NOHUGEPAGE) };
        Self { start: start.cast(), slots }
    }

    #[allow(clippy::mut_from_ref, reason = "called once")]
    fn slots(&self) -> &mut [MaybeUninit<Slot>] {
        // SAFETY: the mapping is as long, writable, and lent out only here.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.slots) }
    }

    fn kib(&self) -> usize {
        self.slots * size_of::<Slot>() / 1024
    }

    /// Does something; also how many KiB of the mapping it touched.
    fn touched_by<T>(&self, work: impl FnOnce() -> T) -> (T, u64) {
        fs::write("/proc/self/clear_refs", "1").expect("the kernel counts touched pages");
        let done = work();
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let head = format!("{:x}-", self.start.addr());
        let mut mine = maps.lines().skip_while(|line| !line.starts_with(&head));
        let count = mine.find_map(|line| line.strip_prefix("Referenced:")).and_then(|count| {
            let kib = count.trim().strip_suffix(" kB")?;
            kib.parse().ok()
        });
        (done, count.expect("smaps has the mapping"))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, of which nobody has a part any more.
        unsafe { libc::munmap(self.start.cast(), self.slots * size_of::<Slot>()) };
    }
}
