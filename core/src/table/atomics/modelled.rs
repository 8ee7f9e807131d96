//! Atomics on top of loom's.
//!
//! loom's are 64 bits wide. A 128-bit one is one of loom's that holds the number of a value: each
//! value has one number for good, so that to compare numbers is to compare values, and every access
//! is one access of loom's, with the ordering that the table asked for.
//!
//! Of each atomic, loom remembers the last access only, so where one thread reads, another reads and
//! then writes, it does not see that the first one might have read what was written, and leaves that
//! out. Hence the `marks`: an access of its own for each reader, which the writers make as well. None
//! of them ever stores, so none orders anything.
use core::cell::{Cell, RefCell};
use std::boxed::Box;
use std::collections::HashMap;
use std::panic;
use std::rc::Rc;
use std::vec::Vec;

use loom::sync::atomic::AtomicU64 as Loom;
pub(crate) use loom::sync::atomic::{Ordering, fence};
use portable_atomic::AtomicUsize;

#[derive(Default)]
struct Numbers {
    of: HashMap<u128, u64>,
    values: Vec<u128>,
}

/// An atomic of one execution.
enum Atomic {
    Shared {
        content: Loom,
        /// By the number of the thread that reads.
        marks: Vec<Loom>,
    },
    /// Nobody changes it, so that loom need not know of it.
    Still(u64),
}

// All threads of a model are coroutines of one thread of the system. None of these is borrowed
// while an access is under way, for there loom switches between them.
std::thread_local! {
    static NUMBERS: RefCell<Numbers> = RefCell::default();
    static ATOMICS: RefCell<Vec<Rc<Atomic>>> = RefCell::default();
    static STALE_FAILURES: Cell<bool> = const { Cell::new(false) };
    static THREADS: Cell<usize> = const { Cell::new(0) };
    static STARTED: Cell<usize> = const { Cell::new(0) };
}

loom::thread_local! {
    /// How many accesses the thread has left before it stops for good.
    static LEFT: Cell<u32> = Cell::new(u32::MAX);
    static ME: usize = STARTED.replace(STARTED.get() + 1);
}

/// What a thread is unwound by that stops.
struct Stopped;

/// Forgets the execution before, and begins one of so many threads. `stale_failures`: a compare-and-swap that fails may have seen an
/// older value, as the language allows and loom by itself never shows.
pub(crate) fn begin(threads: usize, stale_failures: bool) {
    ATOMICS.with_borrow_mut(Vec::clear);
    STALE_FAILURES.set(stale_failures);
    THREADS.set(threads);
    STARTED.set(0);
}

/// Runs `work` until it has made so many accesses, and no further. `None`: it was stopped.
pub(crate) fn stopped_after<T>(accesses: u32, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.with(|left| left.set(accesses));
    match panic::catch_unwind(panic::AssertUnwindSafe(work)) {
        Ok(done) => Some(done),
        Err(cause) if cause.is::<Stopped>() => None,
        Err(cause) => panic::resume_unwind(cause),
    }
}

fn step() {
    let left = LEFT.with(Cell::get);
    if left == 0 {
        panic::resume_unwind(Box::new(Stopped));
    }
    if left < u32::MAX {
        LEFT.with(|cell| cell.set(left - 1));
    }
}

fn number(value: u128) -> u64 {
    NUMBERS.with_borrow_mut(|numbers| {
        let Numbers { of, values } = numbers;
        *of.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as u64 - 1
        })
    })
}

fn value(number: u64) -> u128 {
    NUMBERS.with_borrow(|numbers| numbers.values[number as usize])
}

/// Which of the execution's atomics it is.
#[repr(transparent)]
struct Handle(AtomicUsize);

impl Handle {
    /// Before the other threads of the model start.
    fn begin(&self, atomic: Atomic) {
        let index = ATOMICS.with_borrow_mut(|atomics| {
            atomics.push(Rc::new(atomic));
            atomics.len() - 1
        });
        self.0.store(index, Ordering::Relaxed);
    }

    fn begin_shared(&self, content: u64) {
        let marks = (0..THREADS.get()).map(|_| Loom::new(0)).collect();
        self.begin(Atomic::Shared { content: Loom::new(content), marks });
    }

    fn atomic(&self) -> Rc<Atomic> {
        ATOMICS.with_borrow(|atomics| Rc::clone(&atomics[self.0.load(Ordering::Relaxed)]))
    }

    fn load(&self, order: Ordering) -> u64 {
        match &*self.atomic() {
            Atomic::Still(content) => *content,
            Atomic::Shared { content, marks } => {
                step();
                marks[ME.with(|me| *me)].load(Ordering::Relaxed);
                content.load(order)
            }
        }
    }

    /// Runs `change` on loom's atomic.
    fn change<T>(&self, change: impl FnOnce(&Loom) -> T) -> T {
        match &*self.atomic() {
            Atomic::Still(_) => panic!("nobody was to change this"),
            Atomic::Shared { content, marks } => {
                step();
                let me = ME.with(|me| *me);
                for (_, mark) in marks.iter().enumerate().filter(|&(reader, _)| reader != me) {
                    // Fails, so that it is no store.
                    let _ = mark.compare_exchange(1, 1, Ordering::Relaxed, Ordering::Relaxed);
                }
                change(content)
            }
        }
    }
}

#[repr(C, align(16))]
pub(crate) struct AtomicU128(Handle, u64);

impl AtomicU128 {
    pub(crate) fn is_lock_free() -> bool {
        true
    }

    pub(crate) fn begin(&self, content: u128) {
        self.0.begin_shared(number(content));
    }

    pub(crate) fn begin_still(&self, content: u128) {
        self.0.begin(Atomic::Still(number(content)));
    }

    pub(crate) fn load(&self, order: Ordering) -> u128 {
        value(self.0.load(order))
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u128,
        new: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        let (old, new) = (number(old), number(new));
        let swapped = self.0.change(|content| {
            if STALE_FAILURES.get() {
                let seen = content.load(failure);
                if seen != old {
                    return Err(seen);
                }
            }
            content.compare_exchange(old, new, success, failure)
        });
        swapped.map(value).map_err(value)
    }
}

/// What is there, the halves each of a moment of its own.
pub(crate) fn glimpse(at: &AtomicU128) -> u128 {
    const LOWER: u128 = u64::MAX as u128;
    let upper = at.load(Ordering::Acquire) & !LOWER;
    upper | at.load(Ordering::Acquire) & LOWER
}

/// None is given: wherever one looks first, what is found there is checked.
pub(crate) fn hint(_: &AtomicU128) -> Option<u64> {
    None
}

#[repr(C, align(8))]
pub(crate) struct AtomicU64(Handle);

impl Default for AtomicU64 {
    fn default() -> Self {
        Self(Handle(AtomicUsize::new(0)))
    }
}

impl AtomicU64 {
    pub(crate) fn begin(&self, content: u64) {
        self.0.begin_shared(content);
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn fetch_max(&self, other: u64, order: Ordering) -> u64 {
        self.0.change(|content| content.fetch_max(other, order))
    }
}
