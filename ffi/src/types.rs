//! The structs and constants of the header.
use core::mem::{align_of, offset_of, size_of};

use callgate_core::{Decisions, Gate};

/// The version of this header: major, minor and patch in a byte each. Compare it with
/// `callgate_version()` at load: before 1.0, a library of another minor version is another ABI.
pub const CALLGATE_VERSION: u32 = 0x0000_0100;

/// What the memory of a gate must be aligned to, in bytes.
pub const CALLGATE_ALIGNMENT: u32 = 32;

/// The most limits in a policy.
pub const CALLGATE_MAX_RULES: usize = 8;

/// `by` of a decision where every limit of the policy is off.
pub const CALLGATE_NO_LIMIT: u32 = u32::MAX;

/// Admits everything and keeps nothing.
pub const CALLGATE_KIND_OFF: u32 = 1;
/// A token bucket: `count`, `period_ns`, `burst`.
pub const CALLGATE_KIND_RATE: u32 = 2;
/// So many calls at once, and a breaker that opens when too many are refused or fail:
/// `max_in_flight`, `lease_ns`, `reject_trip`, `failure_trip`, `cooldown_ns`, `half_open_probes`.
pub const CALLGATE_KIND_CONCURRENCY: u32 = 3;
/// So many units in each window of the calendar, for costs that are known only afterwards: `limit`,
/// `period_s`, `anchor_unix_s`, `must_seed`.
pub const CALLGATE_KIND_QUOTA: u32 = 4;

/// One state for each caller.
pub const CALLGATE_SCOPE_CALLER: u32 = 1;
/// One state for each tool.
pub const CALLGATE_SCOPE_TOOL: u32 = 2;
/// One state for each caller and tool.
pub const CALLGATE_SCOPE_CALLER_TOOL: u32 = 3;
/// One state for all calls.
pub const CALLGATE_SCOPE_SHARED: u32 = 4;

/// Who calls: a user, a client, a token.
pub const CALLGATE_DOMAIN_CALLER: u32 = 1;
/// What is called.
pub const CALLGATE_DOMAIN_TOOL: u32 = 2;

/// The call is admitted.
pub const CALLGATE_REASON_NONE: u32 = 0;
/// A rate limit has too few tokens left.
pub const CALLGATE_REASON_RATE: u32 = 1;
/// Too many calls are in flight.
pub const CALLGATE_REASON_CONCURRENCY: u32 = 2;
/// A breaker is open.
pub const CALLGATE_REASON_BREAKER_OPEN: u32 = 3;
/// A quota is used up.
pub const CALLGATE_REASON_QUOTA: u32 = 4;
/// A quota waits to be told what was used before.
pub const CALLGATE_REASON_UNSEEDED: u32 = 5;
/// There is no place for the state of a new caller.
pub const CALLGATE_REASON_TABLE_FULL: u32 = 6;
/// The cost is above what the limit can ever hold.
pub const CALLGATE_REASON_NEVER: u32 = 7;

/// The call ran and succeeded.
pub const CALLGATE_OUTCOME_SUCCESS: u32 = 1;
/// The call ran and failed.
pub const CALLGATE_OUTCOME_FAILURE: u32 = 2;
/// The call ran, but its client went away: neither a success nor a failure, and paid for.
pub const CALLGATE_OUTCOME_ABANDONED: u32 = 3;
/// The call never ran: what it was charged is given back.
pub const CALLGATE_OUTCOME_CANCELLED: u32 = 4;

/// One limit of a gate. Fill unused fields with zero.
#[repr(C)]
pub struct callgate_limit {
    /// One of the `CALLGATE_KIND_*`. Of `CALLGATE_KIND_OFF` only the reserved fields are looked at.
    pub kind: u32,
    /// Zero.
    pub reserved_0: u32,
    /// Of a rate: tokens that come back in each period, 1 or more.
    pub count: u64,
    /// Of a rate: the period in nanoseconds, 1 or more.
    pub period_ns: u64,
    /// Of a rate: what a full bucket holds, 1 or more tokens. Filling it from empty must take at
    /// most 2^61 ns: `burst * period_ns / count`, of which the part for one token is rounded up to 2^-32 ns.
    pub burst: u64,
    /// Of a concurrency limit: how many calls may be in flight at once, 1 to 4095.
    pub max_in_flight: u32,
    /// Of a concurrency limit: how many calls at a time probe the way after the cooldown, at most
    /// 15. One that succeeds closes the breaker, one that fails opens it anew. 0: it is closed
    /// after the cooldown.
    pub half_open_probes: u32,
    /// Of a concurrency limit: a call that is not settled gives its place back by itself, between
    /// one and two of these later. 1 ms to 2^61 ns; it can't be reconfigured.
    pub lease_ns: u64,
    /// Of a concurrency limit: so many refusals in a row, with no call settled in between, open
    /// the breaker; at most 63. 0: refusals never do.
    pub reject_trip: u32,
    /// Of a concurrency limit: so many calls in a row settled as failures open the breaker; at
    /// most 63. 0: failures never do.
    pub failure_trip: u32,
    /// Of a concurrency limit: for how long the breaker is open, rounded up to whole milliseconds
    /// when it opens. At least 1 ms where there is a trip; at most 2^61 ns and 50,000 leases.
    pub cooldown_ns: u64,
    /// Of a quota: units in a window, 1 to 2^47.
    pub limit: u64,
    /// Of a quota: how long each window is, in seconds, 1 to 2^33; a day has 86,400. 0: the host
    /// sets the windows by `callgate_window_set`.
    pub period_s: u64,
    /// Of a quota with a period: when one of the windows begins, in seconds since the Unix epoch.
    /// Midnight at an offset of h hours east of Greenwich is -3600 h.
    pub anchor_unix_s: i64,
    /// Of a quota: 1 where calls are refused until `callgate_seed` has told, for the caller and
    /// the window, what was used before; else 0.
    pub must_seed: u32,
    /// Zero.
    pub reserved: u32,
}

/// One step of a policy: a limit, and whose state it keeps.
#[repr(C)]
pub struct callgate_rule {
    /// The limit's index in the configuration.
    pub limit: u32,
    /// One of the `CALLGATE_SCOPE_*`.
    pub scope: u32,
}

/// A policy: the limits that a class of callers is held to. They are charged in this order, all or
/// none.
#[repr(C)]
pub struct callgate_policy {
    /// How many of the rules are used, 1 to `CALLGATE_MAX_RULES`.
    pub rule_count: u32,
    /// Zero.
    pub reserved: u32,
    /// The rules; those behind `rule_count` are not looked at.
    pub rules: [callgate_rule; CALLGATE_MAX_RULES],
}

/// What a gate is made from. It is copied: nothing here need outlive `callgate_init`.
#[repr(C)]
pub struct callgate_config {
    /// `sizeof(callgate_config)`.
    pub struct_size: u32,
    /// How many distinct callers are sure to find a place, 1 to 67,108,864: a guarantee, not a cap.
    /// Each tool of a limit kept by tool, and each pair of one kept by both, takes the place of a
    /// caller; so does a caller once more under each further policy whose limits are others.
    pub capacity: u32,
    /// 16 random bytes under which identities are hashed, not all zero. Keep them secret: who knows
    /// them can aim at other callers' places in the table. No two gates have the same: they would
    /// take each other's permits for their own.
    pub secret: [u8; 16],
    /// How many limits there are, 1 to 64.
    pub limit_count: u32,
    /// How many policies there are, 1 to 64.
    pub policy_count: u32,
    /// The limits, named by their index from here on.
    pub limits: *const callgate_limit,
    /// The policies, named by their index from here on.
    pub policies: *const callgate_policy,
    /// Zero.
    pub reserved: [u64; 4],
}

/// Where `callgate_check` found a fault.
#[repr(C)]
pub struct callgate_fault {
    /// What `callgate_init` would return.
    pub status: i32,
    /// The index of the limit that is at fault, or `CALLGATE_NO_LIMIT`.
    pub limit: u32,
    /// The index of the policy that is at fault, or `CALLGATE_NO_LIMIT`.
    pub policy: u32,
}

/// A handle to a gate, made by `callgate_init`. Plain data; it holds pointers into the gate's
/// memory, which must outlive it. It may be copied, and is inherited by a forked child.
#[repr(C)]
pub struct callgate_gate {
    /// The library's own.
    pub opaque: [u64; 24],
}

/// The key of an identity, made by `callgate_key_make`. All zero means that there is none.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct callgate_key {
    /// The lower half.
    pub lo: u64,
    /// The upper half.
    pub hi: u64,
}

/// A call to be decided.
#[repr(C)]
pub struct callgate_call {
    /// `sizeof(callgate_call)`.
    pub struct_size: u32,
    /// The policy's index.
    pub policy: u32,
    /// Who calls; may be zero where no limit of the policy is kept by caller.
    pub caller: callgate_key,
    /// What is called; may be zero where no limit of the policy is kept by tool.
    pub tool: callgate_key,
    /// Tokens to take from each rate limit of the policy: 1 for a call, n for a batch of n. 0 asks
    /// whether there is any debt to wait for, and takes nothing.
    pub cost: u64,
    /// Units to set aside in each quota of the policy.
    pub reserve: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// What was decided about a call. Of an admitted call, the figures are those of the rate limit or
/// quota that has the least left; of the concurrency limit with the fewest places left, where its
/// policy has no other kind.
#[repr(C)]
pub struct callgate_decision {
    /// 1 where the call may run, else 0.
    pub admitted: u32,
    /// One of the `CALLGATE_REASON_*`.
    pub reason: u32,
    /// The index of the limit that refused, or that the figures are of; `CALLGATE_NO_LIMIT` where
    /// every limit is off (`limit` and `remaining` are 2^64-1 then).
    pub by: u32,
    /// Zero.
    pub reserved: u32,
    /// The limit that refused would admit the call in exactly so many nanoseconds, nobody else having
    /// charged; those behind it in the policy were not asked, and may refuse it then. 0 where it is
    /// admitted, and where no time can be known: of `CALLGATE_REASON_CONCURRENCY`, `_UNSEEDED` and
    /// `_NEVER`, and of `_BREAKER_OPEN` while probes are out.
    pub retry_after_ns: u64,
    /// What the limit holds when nobody has charged it: tokens, places or units. Of a full table,
    /// this and the rest is 0.
    pub limit: u64,
    /// What is left of that.
    pub remaining: u64,
    /// All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back
    /// when calls end.
    pub reset_after_ns: u64,
}

/// What an admitted call holds until it is settled. Plain data of which a host keeps one copy, in
/// its own request object for instance; a copy would be settled anew.
#[repr(C)]
pub struct callgate_permit {
    /// The library's own. All zero: no permit.
    pub opaque: [u64; 20],
}

/// What the slots of a gate's table hold.
#[repr(C)]
pub struct callgate_stats {
    /// All slots.
    pub slots: u64,
    /// Those with a state that is not at rest.
    pub live: u64,
    /// Those with a state at rest, free for anybody.
    pub at_rest: u64,
    /// Those that a thread is about to use.
    pub claimed: u64,
    /// Those that hold nothing.
    pub empty: u64,
}

/// What a concurrency limit looks like, over all its states, and what was counted since the gate was
/// made.
#[repr(C)]
pub struct callgate_guards {
    /// How many calls hold a place.
    pub in_flight: u64,
    /// How many breakers are open.
    pub open: u64,
    /// How many breakers are half-open.
    pub half_open: u64,
    /// How often a breaker opened.
    pub trips: u64,
    /// How many permits were settled after their lease.
    pub lapsed: u64,
}

/// The decisions of one policy since the gate was made.
#[repr(C)]
pub struct callgate_decisions {
    /// How many calls were admitted.
    pub admitted: u64,
    /// How many calls each rule refused, by `CALLGATE_REASON_*`.
    pub refused: [[u64; 8]; CALLGATE_MAX_RULES],
}

/// A gate with the mark by which it is known again.
#[repr(C)]
pub(crate) struct Handle {
    pub(crate) mark: u64,
    pub(crate) gate: Gate<'static>,
}

/// "callgate" in ASCII.
pub(crate) const MARK: u64 = 0x6574_6167_6c6c_6163;

// The layout, as tests/c/layout.h asserts it in C.
const _: () = {
    assert!(size_of::<Handle>() <= size_of::<callgate_gate>());
    assert!(align_of::<Handle>() <= align_of::<callgate_gate>());
    assert!(size_of::<callgate_limit>() == 96 && offset_of!(callgate_limit, burst) == 24);
    assert!(offset_of!(callgate_limit, lease_ns) == 40);
    assert!(offset_of!(callgate_limit, limit) == 64);
    assert!(offset_of!(callgate_limit, reserved) == 92);
    assert!(size_of::<callgate_guards>() == 40);
    assert!(size_of::<callgate_rule>() == 8 && size_of::<callgate_policy>() == 72);
    assert!(size_of::<callgate_call>() == 72 && offset_of!(callgate_call, cost) == 40);
    assert!(size_of::<callgate_decision>() == 48);
    assert!(offset_of!(callgate_decision, retry_after_ns) == 16);
    assert!(size_of::<callgate_gate>() == 192 && size_of::<callgate_permit>() == 160);
    assert!(size_of::<callgate_stats>() == 40 && size_of::<callgate_decisions>() == 520);
    assert!(size_of::<Decisions>() == size_of::<callgate_decisions>());
};
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<callgate_config>() == 80);
