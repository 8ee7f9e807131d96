//! What a gate is asked, and what it answers.
use core::fmt;

use crate::key::Key;
use crate::permit::Permit;

/// A call to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Call {
    /// Who calls; needed where a limit of the policy is kept by caller.
    pub caller: Key,
    /// What is called; needed where a limit of the policy is kept by tool.
    pub tool: Key,
    /// Tokens to take from each rate limit of the policy: 1 for a call, n for a batch of n. 0 asks
    /// whether there is any debt to wait for, and takes nothing.
    pub cost: u64,
    /// Units to set aside in each quota of the policy.
    pub reserve: u64,
    /// The policy's index in the configuration.
    pub policy: u32,
}

impl Default for Call {
    /// One call under the first policy, by nobody, of nothing.
    fn default() -> Self {
        Self { policy: 0, caller: Key::ABSENT, tool: Key::ABSENT, cost: 1, reserve: 0 }
    }
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// A rate limit has too few tokens left.
    Rate = 1,
    /// Too many calls are in flight.
    Concurrency = 2,
    /// A breaker is open.
    BreakerOpen = 3,
    /// A quota is used up.
    Quota = 4,
    /// A quota waits to be told what was used before.
    Unseeded = 5,
    /// There is no place for the state of a new caller.
    TableFull = 6,
    /// The cost is above what the limit can ever hold.
    Never = 7,
}

impl Reason {
    pub(crate) const COUNT: usize = 8;
}

/// What was decided about a call.
///
/// Of an admitted call, the figures are those of the rate limit or quota that has the least left;
/// of the concurrency limit with the fewest places left, where its policy has no other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why the call is refused; `None` where it is admitted.
    pub refused: Option<Reason>,
    /// The index of the limit that refused, or that the figures are of; `None` where every limit
    /// is off (`limit` and `remaining` are `u64::MAX` then).
    pub by: Option<u8>,
    /// After this many nanoseconds the limit that refused would admit the call, nobody else having
    /// charged; those behind it in the policy were not asked. 0 where it is admitted, and where no time
    /// is known: [`Reason::Never`], [`Reason::Concurrency`], [`Reason::Unseeded`], and
    /// [`Reason::BreakerOpen`] while probes are out.
    pub retry_after_ns: u64,
    /// What the limit holds when nobody has charged it: tokens, places or units.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// After this many nanoseconds all of it is back; 0 of a concurrency limit, whose places come
    /// back when calls end.
    pub reset_after_ns: u64,
}

impl Decision {
    /// What is said where every limit of the policy is off.
    pub const UNLIMITED: Self = Self {
        refused: None,
        by: None,
        retry_after_ns: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after_ns: 0,
    };

    /// No place for the state of `limit`: its figures mean nothing.
    pub(crate) const fn table_full(limit: u8, retry_after_ns: u64) -> Self {
        Self {
            refused: Some(Reason::TableFull),
            by: Some(limit),
            retry_after_ns,
            limit: 0,
            remaining: 0,
            reset_after_ns: 0,
        }
    }

    /// Whether the call may run.
    pub const fn admitted(&self) -> bool {
        self.refused.is_none()
    }
}

/// A decision, with the permit where it admits.
#[derive(Debug)]
pub struct Admission {
    /// What was decided.
    pub decision: Decision,
    /// What the call holds until it is [settled](crate::Gate::settle).
    pub permit: Option<Permit>,
}

/// What is wrong with a call. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallError {
    /// The gate has no policy of this index.
    UnknownPolicy,
    /// The gate has no limit of this index.
    UnknownLimit,
    /// A limit of the policy is kept by caller, and the call has none.
    MissingCaller,
    /// A limit of the policy is kept by tool, and the call has none.
    MissingTool,
    /// The time is not below [`TIME_LIMIT_NS`](crate::TIME_LIMIT_NS).
    TimeOutOfRange,
    /// The permit is none of this gate's.
    UnknownPermit,
    /// The limit is no quota.
    NotAQuota,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownPolicy => "policy: not the index of one of the gate's policies",
            Self::UnknownLimit => "limit: not the index of one of the gate's limits",
            Self::MissingCaller => "caller: absent, but the policy keeps a limit by caller",
            Self::MissingTool => "tool: absent, but the policy keeps a limit by tool",
            Self::TimeOutOfRange => "now_ns: must be below 2^61",
            Self::UnknownPermit => "permit: not one that this gate gave",
            Self::NotAQuota => "limit: no quota",
        })
    }
}

impl core::error::Error for CallError {}

/// What became of telling a quota what was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seeded {
    /// It was told.
    Now,
    /// It had been told before, in this window; nothing was done.
    Already,
    /// There is no place for the caller's state; there may be after so many nanoseconds.
    TableFull {
        /// At least 1.
        retry_after_ns: u64,
    },
}
