//! What a gate is made from, asked and answers.
use super::{ConcurrencyLimit, Quota, RateLimit};

/// An instant by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instant {
    /// The monotonic clock's.
    pub now_ns: u64,
    /// The wall clock's.
    pub unix_ns: u64,
}

/// One limit of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Admits everything and keeps nothing.
    Off,
    /// A token bucket.
    Rate(RateLimit),
    /// Calls at once, and a breaker.
    Concurrency(ConcurrencyLimit),
    /// Units in a window.
    Quota(Quota),
}

/// Whose state a limit keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One state for each caller.
    Caller,
    /// One state for each tool.
    Tool,
    /// One state for each caller and tool.
    CallerTool,
    /// One state for all calls.
    Shared,
}

/// One step of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The limit's index.
    pub limit: usize,
    /// Whose state it keeps.
    pub scope: Scope,
}

/// A call to be decided. Callers and tools are numbers here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The policy's index.
    pub policy: usize,
    /// Who calls.
    pub caller: u32,
    /// What is called.
    pub tool: u32,
    /// Tokens to take from each rate limit.
    pub cost: u64,
    /// Units to set aside in each quota.
    pub reserve: u64,
}

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Too few tokens are left.
    Rate,
    /// Too many calls are in flight.
    Concurrency,
    /// A breaker is open.
    BreakerOpen,
    /// A quota is used up.
    Quota,
    /// A quota has not been told what was used before.
    Unseeded,
    /// The cost is above what the limit can ever hold.
    Never,
    /// There is no place for the state.
    TableFull,
}

/// What was decided about a call, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why it is refused, if it is.
    pub refused: Option<Reason>,
    /// The limit that refused, or that has the fewest tokens left.
    pub by: Option<usize>,
    /// How long until it would be admitted.
    pub retry_after_ns: u64,
    /// What the limit holds.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// How long until all of it is back.
    pub reset_after_ns: u64,
}

impl Decision {
    /// Of a limit that is off.
    pub const UNLIMITED: Self = Self {
        refused: None,
        by: None,
        retry_after_ns: 0,
        limit: u64::MAX,
        remaining: u64::MAX,
        reset_after_ns: 0,
    };

    pub(super) fn table_full(limit: usize, retry_after_ns: u64) -> Self {
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
    pub fn admitted(&self) -> bool {
        self.refused.is_none()
    }
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded.
    Success,
    /// It failed.
    Failure,
    /// Its client went away.
    Abandoned,
    /// It never ran.
    Cancelled,
}

/// What a settlement comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect.
    Now,
    /// It had been settled.
    Already,
    /// A place had lapsed.
    Lapsed,
}

/// What telling a quota comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeded {
    /// It was told.
    Now,
    /// It had been told.
    Already,
    /// There is no place for the state.
    TableFull {
        /// How long until there is.
        retry_after_ns: u64,
    },
}
