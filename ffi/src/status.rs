//! Statuses: what was wrong, as a number, a field and a sentence.
use core::ffi::{CStr, c_char};
use core::ptr;

use callgate_core::{CallError, ClockError, ConfigError, Field};

/// What became of a call of the library. Codes are never reused. A refused call is not an error:
/// it is a decision.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum callgate_status {
    /// It is done.
    CALLGATE_OK = 0,
    /// The permit had been settled before, or is the empty one of a refused call; nothing was done.
    CALLGATE_ALREADY_SETTLED = 1,
    /// The permit was settled after its lease: the call's place had been taken for lost. Of that
    /// limit nothing was changed.
    CALLGATE_LAPSED = 2,
    /// The quota had been told before, for this caller and window; nothing was done.
    CALLGATE_ALREADY_SEEDED = 3,
    /// There is no place for the state of a new caller; nothing was done.
    CALLGATE_TABLE_FULL = 4,

    /// A pointer that may not be NULL is NULL.
    CALLGATE_NULL_POINTER = 16,
    /// A pointer is not aligned for what it points to.
    CALLGATE_MISALIGNED = 17,
    /// `struct_size` is not the size of that struct in this version.
    CALLGATE_BAD_STRUCT_SIZE = 18,
    /// A reserved field is not zero.
    CALLGATE_RESERVED_NOT_ZERO = 19,
    /// This is not a gate that `callgate_init` made.
    CALLGATE_NOT_A_GATE = 20,
    /// The system's clock could not be read: on what is no Unix it never can, and the functions that
    /// take a time are there.
    CALLGATE_CLOCK_FAILED = 21,
    /// `policy` is not the index of one of the gate's policies.
    CALLGATE_UNKNOWN_POLICY = 22,
    /// `limit` is not the index of one of the gate's limits.
    CALLGATE_UNKNOWN_LIMIT = 23,
    /// `caller` is absent, but a limit of the policy is kept by caller.
    CALLGATE_MISSING_CALLER = 24,
    /// `tool` is absent, but a limit of the policy is kept by tool.
    CALLGATE_MISSING_TOOL = 25,
    /// `now_ns` must be below 2^61.
    CALLGATE_TIME_OUT_OF_RANGE = 26,
    /// The permit is not one that this gate gave, or one of the same secret.
    CALLGATE_UNKNOWN_PERMIT = 27,
    /// `outcome` is not one of the `CALLGATE_OUTCOME_*`.
    CALLGATE_UNKNOWN_OUTCOME = 28,
    /// `domain` is not one of the `CALLGATE_DOMAIN_*`.
    CALLGATE_UNKNOWN_DOMAIN = 29,
    /// The identity is empty: it would be one that all strangers share.
    CALLGATE_EMPTY_IDENTITY = 30,
    /// `limit` is not the index of a quota, or of one whose windows are its own.
    CALLGATE_NOT_A_QUOTA = 31,
    /// `end_unix_s` must be 1 to 2^29-1 s after `start_unix_s`, which must be below 2^35.
    CALLGATE_BAD_WINDOW = 32,
    /// The buffer is too small for the text.
    CALLGATE_BUFFER_TOO_SMALL = 33,

    /// `capacity` must be 1 to 67,108,864 callers.
    CALLGATE_CONFIG_CAPACITY = 64,
    /// `secret` must be 16 random bytes, not all zero.
    CALLGATE_CONFIG_SECRET = 65,
    /// `limit_count` must be 1 to 64.
    CALLGATE_CONFIG_LIMITS = 66,
    /// `policy_count` must be 1 to 64.
    CALLGATE_CONFIG_POLICIES = 67,
    /// `rule_count` must be 1 to 8.
    CALLGATE_CONFIG_RULES = 68,
    /// A rule's `limit` must be below `limit_count`.
    CALLGATE_CONFIG_RULE_LIMIT = 69,
    /// A policy has the same limit with the same scope twice.
    CALLGATE_CONFIG_RULE_TWICE = 70,
    /// `scope` is not one of the `CALLGATE_SCOPE_*`.
    CALLGATE_CONFIG_SCOPE = 71,
    /// `kind` is not one of the `CALLGATE_KIND_*`, or not the one that the limit has.
    CALLGATE_CONFIG_KIND = 72,
    /// `count` must be 1 or more tokens.
    CALLGATE_CONFIG_COUNT = 73,
    /// `period_ns` must be 1 or more.
    CALLGATE_CONFIG_PERIOD = 74,
    /// `burst` must be 1 or more tokens, and `burst * period_ns / count` at most 2^61 ns.
    CALLGATE_CONFIG_BURST = 75,
    /// The memory is shorter than `callgate_size` says.
    CALLGATE_CONFIG_MEMORY = 76,
    /// `max_in_flight` must be 1 to 4095 calls.
    CALLGATE_CONFIG_MAX_IN_FLIGHT = 77,
    /// `lease_ns` must be 1 ms to 2^61 ns, and stay what it was.
    CALLGATE_CONFIG_LEASE = 78,
    /// `reject_trip` must be at most 63.
    CALLGATE_CONFIG_REJECT_TRIP = 79,
    /// `failure_trip` must be at most 63.
    CALLGATE_CONFIG_FAILURE_TRIP = 80,
    /// `cooldown_ns` must be at most 2^61 ns and 50,000 leases, and at least 1 ms where there is a
    /// trip.
    CALLGATE_CONFIG_COOLDOWN = 81,
    /// `half_open_probes` must be at most 15.
    CALLGATE_CONFIG_HALF_OPEN_PROBES = 82,
    /// `limit` of a quota must be 1 to 2^47 units.
    CALLGATE_CONFIG_LIMIT = 83,
    /// `period_s` must be 1 to 2^33 s, or 0 without an anchor.
    CALLGATE_CONFIG_PERIOD_S = 84,
    /// `must_seed` must be 0 or 1.
    CALLGATE_CONFIG_MUST_SEED = 85,
}

use callgate_status::*;

pub(crate) type Result<T> = core::result::Result<T, callgate_status>;

impl From<ConfigError> for callgate_status {
    fn from(error: ConfigError) -> Self {
        match error.field {
            Field::Capacity => CALLGATE_CONFIG_CAPACITY,
            Field::Secret => CALLGATE_CONFIG_SECRET,
            Field::Limits => CALLGATE_CONFIG_LIMITS,
            Field::Policies => CALLGATE_CONFIG_POLICIES,
            Field::Rules => CALLGATE_CONFIG_RULES,
            Field::RuleLimit => CALLGATE_CONFIG_RULE_LIMIT,
            Field::RuleTwice => CALLGATE_CONFIG_RULE_TWICE,
            Field::Count => CALLGATE_CONFIG_COUNT,
            Field::PeriodNs => CALLGATE_CONFIG_PERIOD,
            Field::Burst => CALLGATE_CONFIG_BURST,
            Field::Memory => CALLGATE_CONFIG_MEMORY,
            Field::Now => CALLGATE_TIME_OUT_OF_RANGE,
            Field::MaxInFlight => CALLGATE_CONFIG_MAX_IN_FLIGHT,
            Field::LeaseNs => CALLGATE_CONFIG_LEASE,
            Field::RejectTrip => CALLGATE_CONFIG_REJECT_TRIP,
            Field::FailureTrip => CALLGATE_CONFIG_FAILURE_TRIP,
            Field::CooldownNs => CALLGATE_CONFIG_COOLDOWN,
            Field::HalfOpenProbes => CALLGATE_CONFIG_HALF_OPEN_PROBES,
            Field::Limit => CALLGATE_CONFIG_LIMIT,
            Field::PeriodS => CALLGATE_CONFIG_PERIOD_S,
            Field::Window => CALLGATE_BAD_WINDOW,
            _ => CALLGATE_CONFIG_KIND,
        }
    }
}

impl From<CallError> for callgate_status {
    fn from(error: CallError) -> Self {
        match error {
            CallError::UnknownPolicy => CALLGATE_UNKNOWN_POLICY,
            CallError::MissingCaller => CALLGATE_MISSING_CALLER,
            CallError::MissingTool => CALLGATE_MISSING_TOOL,
            CallError::TimeOutOfRange => CALLGATE_TIME_OUT_OF_RANGE,
            CallError::UnknownLimit => CALLGATE_UNKNOWN_LIMIT,
            CallError::NotAQuota => CALLGATE_NOT_A_QUOTA,
            _ => CALLGATE_UNKNOWN_PERMIT,
        }
    }
}

impl From<ClockError> for callgate_status {
    fn from(_: ClockError) -> Self {
        CALLGATE_CLOCK_FAILED
    }
}

/// A sentence that says what was wrong and what is allowed; never NULL, valid for ever. Any number
/// may be asked for.
#[unsafe(no_mangle)]
pub extern "C" fn callgate_strerror(status: i32) -> *const c_char {
    let (_, sentence) = describe(status);
    sentence.as_ptr()
}

/// The name of the field that a status blames, as in the structs of this header; NULL where it
/// blames none. Valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn callgate_error_field(status: i32) -> *const c_char {
    let (field, _) = describe(status);
    if field.is_empty() { ptr::null() } else { field.as_ptr() }
}

fn describe(status: i32) -> (&'static CStr, &'static CStr) {
    let known = TEXTS.iter().find(|(of, _, _)| *of as i32 == status);
    known.map_or((c"", c"unknown status"), |(_, field, sentence)| (field, sentence))
}

static TEXTS: [(callgate_status, &CStr, &CStr); 45] = [
    (CALLGATE_OK, c"", c"done"),
    (CALLGATE_ALREADY_SETTLED, c"", c"the permit had been settled before; nothing was done"),
    (CALLGATE_LAPSED, c"", c"the permit was settled after its lease: its place was lost before"),
    (CALLGATE_ALREADY_SEEDED, c"", c"the quota had been told before, for this caller and window"),
    (CALLGATE_TABLE_FULL, c"", c"there is no place for the state of a new caller"),
    (CALLGATE_NULL_POINTER, c"", c"a pointer that may not be NULL is NULL"),
    (CALLGATE_MISALIGNED, c"", c"a pointer is not aligned for what it points to"),
    (
        CALLGATE_BAD_STRUCT_SIZE,
        c"struct_size",
        c"struct_size is not the struct's size in this version",
    ),
    (CALLGATE_RESERVED_NOT_ZERO, c"reserved", c"a reserved field is not zero"),
    (CALLGATE_NOT_A_GATE, c"gate", c"not a gate that callgate_init made"),
    (CALLGATE_CLOCK_FAILED, c"", c"the system's clock could not be read"),
    (CALLGATE_UNKNOWN_POLICY, c"policy", c"policy is not the index of one of the gate's policies"),
    (CALLGATE_UNKNOWN_LIMIT, c"limit", c"limit is not the index of one of the gate's limits"),
    (
        CALLGATE_MISSING_CALLER,
        c"caller",
        c"caller is absent, but a limit of the policy is kept by caller",
    ),
    (CALLGATE_MISSING_TOOL, c"tool", c"tool is absent, but a limit of the policy is kept by tool"),
    (CALLGATE_TIME_OUT_OF_RANGE, c"now_ns", c"now_ns must be below 2^61"),
    (CALLGATE_UNKNOWN_PERMIT, c"permit", c"the permit is not one that this gate gave"),
    (CALLGATE_UNKNOWN_OUTCOME, c"outcome", c"outcome must be one of CALLGATE_OUTCOME_*, 1 to 4"),
    (CALLGATE_UNKNOWN_DOMAIN, c"domain", c"domain must be one of CALLGATE_DOMAIN_*, 1 or 2"),
    (CALLGATE_EMPTY_IDENTITY, c"identity", c"identity must have 1 or more bytes"),
    (CALLGATE_NOT_A_QUOTA, c"limit", c"limit is not the index of a quota of the kind that is needed"),
    (
        CALLGATE_BAD_WINDOW,
        c"end_unix_s",
        c"end_unix_s must be 1 to 2^29-1 s after start_unix_s, which must be below 2^35",
    ),
    (CALLGATE_BUFFER_TOO_SMALL, c"size", c"size is less than the text takes: see needed"),
    (CALLGATE_CONFIG_CAPACITY, c"capacity", c"capacity must be 1 to 67108864 callers"),
    (CALLGATE_CONFIG_SECRET, c"secret", c"secret must be 16 random bytes, not all zero"),
    (CALLGATE_CONFIG_LIMITS, c"limit_count", c"limit_count must be 1 to 64"),
    (CALLGATE_CONFIG_POLICIES, c"policy_count", c"policy_count must be 1 to 64"),
    (CALLGATE_CONFIG_RULES, c"rule_count", c"rule_count must be 1 to 8"),
    (CALLGATE_CONFIG_RULE_LIMIT, c"limit", c"a rule's limit must be below limit_count"),
    (CALLGATE_CONFIG_RULE_TWICE, c"rules", c"a policy may have a limit with one scope only once"),
    (CALLGATE_CONFIG_SCOPE, c"scope", c"scope must be one of CALLGATE_SCOPE_*, 1 to 4"),
    (
        CALLGATE_CONFIG_KIND,
        c"kind",
        c"kind must be one of CALLGATE_KIND_*, 1 to 4, and a limit that has one can only be off",
    ),
    (CALLGATE_CONFIG_COUNT, c"count", c"count must be 1 to 2^64-1 tokens"),
    (CALLGATE_CONFIG_PERIOD, c"period_ns", c"period_ns must be 1 to 2^64-1 ns"),
    (
        CALLGATE_CONFIG_BURST,
        c"burst",
        c"burst must be 1 or more tokens, and burst * period_ns / count at most 2^61 ns",
    ),
    (CALLGATE_CONFIG_MEMORY, c"memory", c"memory is shorter than callgate_size says"),
    (CALLGATE_CONFIG_MAX_IN_FLIGHT, c"max_in_flight", c"max_in_flight must be 1 to 4095 calls"),
    (
        CALLGATE_CONFIG_LEASE,
        c"lease_ns",
        c"lease_ns must be 1 ms to 2^61 ns, and what it was when the gate was made",
    ),
    (CALLGATE_CONFIG_REJECT_TRIP, c"reject_trip", c"reject_trip must be 0 to 63, 0 for never"),
    (CALLGATE_CONFIG_FAILURE_TRIP, c"failure_trip", c"failure_trip must be 0 to 63, 0 for never"),
    (
        CALLGATE_CONFIG_COOLDOWN,
        c"cooldown_ns",
        c"cooldown_ns must be at most 2^61 ns and 50,000 leases, and 1 ms or more where there is a trip",
    ),
    (CALLGATE_CONFIG_HALF_OPEN_PROBES, c"half_open_probes", c"half_open_probes must be 0 to 15"),
    (CALLGATE_CONFIG_LIMIT, c"limit", c"limit must be 1 to 2^47 units"),
    (CALLGATE_CONFIG_PERIOD_S, c"period_s", c"period_s must be 1 to 2^33 s, or 0 without an anchor"),
    (CALLGATE_CONFIG_MUST_SEED, c"must_seed", c"must_seed must be 0 or 1"),
];
