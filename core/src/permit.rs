//! What an admitted call holds until it is settled.
use core::fmt;
use core::mem::size_of;
use portable_atomic::{AtomicU32, Ordering};

use crate::call::Call;
use crate::config::MAX_RULES;
use crate::key::Key;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// It ran and succeeded.
    Success = 1,
    /// It ran and failed.
    Failure = 2,
    /// It ran, but its client went away: neither a success nor a failure, and paid for.
    Abandoned = 3,
    /// It never ran: what it was charged is given back.
    Cancelled = 4,
}

/// What a settlement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// It took effect.
    Now,
    /// The permit had been settled before, or is [none](Permit::EMPTY); nothing was done.
    Already,
    /// It came after the lease: the call's place had been taken for lost, and given to others. Of
    /// that limit nothing was changed.
    Lapsed,
}

/// What an admitted call holds until it is settled: plain data, of which a host keeps one copy.
///
/// Settling twice through one permit has no effect, from whatever threads; a copy would be settled
/// anew.
// A host copies it byte by byte, so no byte may be left unwritten: the call's fields without the
// padding of `Call`.
#[repr(C)]
pub struct Permit {
    state: AtomicU32,
    /// Of the gate that gave it.
    fingerprint: u32,
    /// The gate's when the call was admitted: a limit that was changed since takes nothing back.
    pub(crate) revision: u32,
    policy: u32,
    caller: Key,
    tool: Key,
    cost: u64,
    reserve: u64,
    /// When the call was charged.
    pub(crate) stamp_ns: u64,
    /// Whether there are marks.
    is_marked: u64,
    marks: [u64; MAX_RULES],
}

const _: () = assert!(size_of::<Permit>() == 16 + 2 * size_of::<Key>() + 4 * 8 + 8 * MAX_RULES);

/// Of each rule of a call's policy, what its limit needs to know of the charge; 0 where that is
/// nothing.
pub(crate) struct Marks {
    any: u64,
    marks: [u64; MAX_RULES],
}

impl Marks {
    pub(crate) const NONE: Self = Self { any: 0, marks: [0; MAX_RULES] };

    pub(crate) fn set(&mut self, rule: u8, mark: u64) {
        if let Some(slot) = self.marks.get_mut(usize::from(rule)) {
            *slot = mark;
            self.any = 1;
        }
    }
}

const HELD: u32 = 1;
const SETTLED: u32 = 2;

impl Permit {
    /// No permit: no gate gave it.
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "a template, like `AtomicU32::new(0)`"
    )]
    pub const EMPTY: Self = Self {
        state: AtomicU32::new(0),
        fingerprint: 0,
        revision: 0,
        policy: 0,
        caller: Key::ABSENT,
        tool: Key::ABSENT,
        cost: 0,
        reserve: 0,
        stamp_ns: 0,
        is_marked: 0,
        marks: [0; MAX_RULES],
    };

    #[inline]
    pub(crate) fn new(
        fingerprint: u32,
        revision: u32,
        call: &Call,
        stamp_ns: u64,
        Marks { any: is_marked, marks }: Marks,
    ) -> Self {
        let state = AtomicU32::new(HELD);
        let Call { caller, tool, cost, reserve, policy } = *call;
        Self {
            state,
            fingerprint,
            revision,
            policy,
            caller,
            tool,
            cost,
            reserve,
            stamp_ns,
            is_marked,
            marks,
        }
    }

    /// The call that was admitted.
    #[inline]
    pub(crate) fn call(&self) -> Call {
        let Self { caller, tool, cost, reserve, policy, .. } = *self;
        Call { caller, tool, cost, reserve, policy }
    }

    pub(crate) fn has_marks(&self) -> bool {
        self.is_marked != 0
    }

    pub(crate) fn mark(&self, rule: u8) -> u64 {
        self.marks.get(usize::from(rule)).copied().unwrap_or(0)
    }

    /// Whether this is what a refused call holds.
    pub(crate) fn is_empty(&self) -> bool {
        self.fingerprint == 0 && self.state.load(Ordering::Relaxed) == 0
    }

    /// Whether this can be a permit of that gate: garbage mostly can't.
    pub(crate) fn is_of(&self, fingerprint: u32) -> bool {
        // Relaxed: only a hint; `take` decides.
        let state = self.state.load(Ordering::Relaxed);
        self.fingerprint == fingerprint && matches!(state, HELD | SETTLED)
    }

    /// Whether this was the first to settle it.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: what the permit says was handed to this thread along with it.
        self.state.swap(SETTLED, Ordering::Relaxed) == HELD
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled = self.state.load(Ordering::Relaxed) == SETTLED;
        f.debug_struct("Permit").field("settled", &settled).finish_non_exhaustive()
    }
}
