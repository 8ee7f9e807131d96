//! How a gate's memory is laid out, and how it becomes a gate. The only place that casts.
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, size_of};
use core::slice;

use portable_atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::config::{Config, ConfigError, Field};
use crate::gate::Gate;
use crate::key::GROUP_SLOTS;
use crate::metrics::{Account, STRIPES, Tally};
use crate::policy::{PolicyCell, Scope, limit_bit};
use crate::settings::LimitCell;
use crate::table::{Horizons, Slot};

/// What changes in a gate's memory beside its cells and slots. Lines of their own for each, since
/// every call reads the one and reclaiming a slot writes the other.
#[repr(C)]
pub(crate) struct Head {
    pub(crate) shared: Line<Shared>,
    pub(crate) horizons: Line<Horizons>,
}

/// What every call reads.
#[repr(C)]
pub(crate) struct Shared {
    pub(crate) revision: AtomicU32,
    /// A bit for each limit that is a quota, or was one: to its calls the wall clock matters.
    pub(crate) quotas: AtomicU64,
}

#[repr(C, align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// The parts of a gate's memory.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'m> {
    pub(crate) head: &'m Head,
    pub(crate) tallies: &'m [Tally],
    pub(crate) limits: &'m [LimitCell],
    pub(crate) accounts: &'m [Account],
    pub(crate) policies: &'m [PolicyCell],
    pub(crate) slots: &'m [Slot],
}

/// How many of each part a gate has; they follow each other in this order, the largest alignment
/// first, from the first multiple of 64 in the memory.
struct Layout {
    tallies: usize,
    limits: usize,
    policies: usize,
    slots: usize,
}

const ALIGNMENT: usize = 64;

const _: () = {
    assert!(size_of::<Slot>() == 32 && align_of::<Slot>() == 32);
    assert!(size_of::<Head>() == 2 * ALIGNMENT && align_of::<Head>() == ALIGNMENT);
    assert!(align_of::<Tally>() == ALIGNMENT);
    assert!(size_of::<LimitCell>() == 128 && align_of::<LimitCell>() == 32);
    assert!(size_of::<Account>() == 32 && align_of::<Account>() == 32);
    assert!(size_of::<PolicyCell>() == 32 && align_of::<PolicyCell>() == 32);
};

impl Layout {
    fn of(config: &Config<'_>) -> Self {
        Self {
            tallies: config.policies.len() * STRIPES,
            limits: config.limits.len(),
            policies: config.policies.len(),
            slots: group_count(config) as usize * GROUP_SLOTS,
        }
    }

    /// In slots, with two to spare so that the first part and the slots start at a multiple of 64.
    fn size(&self) -> usize {
        let bytes = size_of::<Head>()
            + self.tallies * size_of::<Tally>()
            + self.limits * (size_of::<LimitCell>() + size_of::<Account>())
            + self.policies * size_of::<PolicyCell>();
        bytes / size_of::<Slot>() + self.slots + 2
    }
}

/// Slots are 1.6 for each entry that must find a place, in groups of eight, and at least two
/// groups. At that density no insertion of half a billion failed (ARCHITECTURE.md).
fn group_count(config: &Config<'_>) -> u32 {
    let entries = u64::from(config.capacity) * u64::from(entries_per_caller(config))
        + u64::from(shared_entries(config));
    (entries.div_ceil(5).max(2)).min(u64::from(u32::MAX / 16)) as u32
}

/// The most entries that one caller's calls take up: a caller is held to one policy.
fn entries_per_caller(config: &Config<'_>) -> u32 {
    let keyed = |rules: &&[crate::Rule]| rules.iter().filter(|r| r.scope != Scope::Shared).count();
    config.policies.iter().map(keyed).max().unwrap_or(0).max(1) as u32
}

fn shared_entries(config: &Config<'_>) -> u32 {
    let mut limits = 0u64;
    for rule in config.policies.iter().flat_map(|rules| rules.iter()) {
        if rule.scope == Scope::Shared {
            limits |= limit_bit(rule.limit);
        }
    }
    limits.count_ones()
}

/// How much memory a gate needs, in slots of 32 bytes.
pub(crate) fn slots_needed(config: &Config<'_>) -> Result<usize, ConfigError> {
    config.check()?;
    Ok(Layout::of(config).size())
}

/// Zeroes the memory and lays the parts of a gate out in it.
pub(crate) fn carve<'m>(
    memory: &'m mut [MaybeUninit<Slot>],
    config: &Config<'_>,
) -> Result<Parts<'m>, ConfigError> {
    config.check()?;
    let layout = Layout::of(config);
    if memory.len() < layout.size() {
        return Err(ConfigError::of(Field::Memory));
    }
    let start = memory.as_mut_ptr();
    // SAFETY: the slice is writable for its whole length, and exclusively ours.
    unsafe { start.write_bytes(0, memory.len()) };
    let mut cursor = Cursor { next: start.cast(), memory: PhantomData };
    cursor.align();
    Ok(Parts {
        // SAFETY: `Layout::size` adds up these very parts, in this order, and half a line for each
        // alignment; the memory is at least as long.
        head: unsafe { cursor.one() },
        // SAFETY: as above.
        tallies: unsafe { cursor.take(layout.tallies) },
        // SAFETY: as above.
        limits: unsafe { cursor.take(layout.limits) },
        // SAFETY: as above.
        accounts: unsafe { cursor.take(layout.limits) },
        // SAFETY: as above.
        policies: unsafe { cursor.take(layout.policies) },
        slots: {
            cursor.align();
            // SAFETY: as above.
            unsafe { cursor.take(layout.slots) }
        },
    })
}

/// Hands out parts of zeroed memory that is exclusively its own for `'m`.
struct Cursor<'m> {
    next: *mut u8,
    memory: PhantomData<&'m mut [MaybeUninit<Slot>]>,
}

impl<'m> Cursor<'m> {
    /// Goes to the next multiple of 64, so that two slots share a cache line.
    fn align(&mut self) {
        self.next = self.next.wrapping_add(self.next.addr().wrapping_neg() % ALIGNMENT);
    }

    /// # Safety
    /// The next `count * size_of::<T>()` bytes lie in the memory, aligned for `T`.
    unsafe fn take<T: Zeroable>(&mut self, count: usize) -> &'m [T] {
        let taken = self.next.cast::<T>();
        self.next = self.next.wrapping_add(count * size_of::<T>());
        // SAFETY: by the contract, and since zero is a value of `T`. No byte is handed out twice.
        unsafe { slice::from_raw_parts(taken, count) }
    }

    /// # Safety
    /// As [`take`](Self::take), with a count of one.
    unsafe fn one<T: Zeroable>(&mut self) -> &'m T {
        let taken = self.next.cast::<T>();
        self.next = self.next.wrapping_add(size_of::<T>());
        // SAFETY: as in `take`.
        unsafe { &*taken }
    }
}

/// # Safety
/// Memory that is all zero is a value of the type, and every change of it goes through atomics.
pub(crate) unsafe trait Zeroable {}

// SAFETY: each of these is made of atomic integers only.
unsafe impl Zeroable for Head {}
// SAFETY: as above.
unsafe impl Zeroable for Tally {}
// SAFETY: as above.
unsafe impl Zeroable for LimitCell {}
// SAFETY: as above.
unsafe impl Zeroable for Account {}
// SAFETY: as above.
unsafe impl Zeroable for PolicyCell {}
// SAFETY: as above.
unsafe impl Zeroable for Slot {}

#[cfg(test)]
pub(crate) fn zeroed<T: Zeroable>() -> T {
    // SAFETY: by the trait.
    unsafe { core::mem::zeroed() }
}

/// Memory for a gate in a `static`, for programs without an allocator.
///
/// ```
/// use callgate_core::{Config, Gate, Limit, RateLimit, Rule, Scope, StaticMemory};
///
/// static MEMORY: StaticMemory<512> = StaticMemory::new();
///
/// let limits = [Limit::Rate(RateLimit { count: 30, period_ns: 1_000_000_000, burst: 60 })];
/// let policy: &[Rule] = &[Rule { limit: 0, scope: Scope::Caller }];
/// let config = Config { capacity: 64, secret: [7; 16], limits: &limits, policies: &[policy] };
/// let gate: Gate<'static> = MEMORY.init(&config).unwrap();
/// ```
pub struct StaticMemory<const SLOTS: usize> {
    taken: AtomicBool,
    slots: UnsafeCell<[MaybeUninit<Slot>; SLOTS]>,
}

// SAFETY: the slots are only reached through `init`, which hands them out once.
unsafe impl<const SLOTS: usize> Sync for StaticMemory<SLOTS> {}

impl<const SLOTS: usize> StaticMemory<SLOTS> {
    /// Memory for a gate that [needs](Gate::slots_needed) at most this many slots.
    pub const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            slots: UnsafeCell::new([const { MaybeUninit::uninit() }; SLOTS]),
        }
    }

    /// Makes the gate.
    ///
    /// # Errors
    /// As [`Gate::init`]; and [`Field::Memory`] where this memory has a gate already.
    pub fn init(&'static self, config: &Config<'_>) -> Result<Gate<'static>, ConfigError> {
        if slots_needed(config)? > SLOTS || self.taken.swap(true, Ordering::AcqRel) {
            return Err(ConfigError::of(Field::Memory));
        }
        // SAFETY: `taken` was false, so nobody else has had or will have a reference to these.
        Gate::init(unsafe { &mut *self.slots.get() }, config)
    }
}

impl<const SLOTS: usize> Default for StaticMemory<SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;
    use crate::policy::Rule;

    const fn rule(limit: u8, scope: Scope) -> Rule {
        Rule { limit, scope }
    }

    fn group_count(capacity: u32, policies: &[&[Rule]]) -> u32 {
        super::group_count(&Config { capacity, secret: [7; 16], limits: &[], policies })
    }

    #[test]
    fn a_gate_takes_as_much_memory_as_its_parts_and_a_line_to_align_them() {
        let limits = [Limit::Off; 3];
        let policies: &[&[Rule]] = &[&[rule(0, Scope::Caller)], &[rule(1, Scope::Caller)]];
        let config = Config { capacity: 100, secret: [7; 16], limits: &limits, policies };
        // The head, 5 for each limit, 1 for each policy and its tallies, 160 for 100 callers.
        let fixed = 4 + 3 * 5 + 2 + 2 * STRIPES * size_of::<Tally>() / 32;
        assert_eq!(slots_needed(&config), Ok(fixed + 160 + 2));
    }

    #[test]
    fn there_are_eight_slots_for_five_entries() {
        let by_caller: &[Rule] = &[rule(0, Scope::Caller)];
        assert_eq!([1, 10, 11].map(|n| group_count(n, &[by_caller])), [2, 2, 3]);
        // The most that a caller's calls take up under one policy, and one for each limit that is
        // shared, however many policies share it.
        let twice: &[Rule] =
            &[rule(0, Scope::Tool), rule(1, Scope::CallerTool), rule(2, Scope::Shared)];
        let shared: &[Rule] = &[rule(2, Scope::Shared), rule(3, Scope::Shared)];
        assert_eq!(group_count(100, &[by_caller, twice]), 41);
        assert_eq!(group_count(100, &[twice]), 41);
        assert_eq!(group_count(1000, &[by_caller, shared]), 201);
        assert_eq!(group_count(4, &[&[rule(63, Scope::Shared)], shared]), 2);
        assert_eq!(group_count(9, &[&[rule(63, Scope::Shared)], shared]), 3);
        let all: [Rule; 8] = core::array::from_fn(|limit| rule(limit as u8, Scope::Caller));
        assert_eq!(group_count(1 << 26, &[&all]), (1u32 << 29).div_ceil(5));
    }

    #[test]
    fn static_memory_takes_one_gate_that_fits() {
        static SHORT: StaticMemory<171> = StaticMemory::new();
        static ENOUGH: StaticMemory<172> = StaticMemory::new();
        static AMPLE: StaticMemory<512> = StaticMemory::new();
        let policies: &[&[Rule]] = &[&[rule(0, Scope::Caller)]];
        let config = Config { capacity: 10, secret: [7; 16], limits: &[Limit::Off], policies };
        // Where a thread counts in one place only, less is needed.
        if slots_needed(&config) == Ok(172) {
            assert_eq!(SHORT.init(&config).err(), Some(ConfigError::of(Field::Memory)));
        }
        for memory in [ENOUGH.init(&config), AMPLE.init(&config)] {
            assert_eq!(memory.unwrap().limit_count(), 1);
        }
        assert_eq!(AMPLE.init(&config).err(), Some(ConfigError::of(Field::Memory)));
    }
}
