/* callgate: decides, in-process and without allocating, whether a tool call may run.
 *
 * This header is the manual of libcallgate; it is generated from the Rust sources.
 *
 * Threads: every function may be called from any thread at any time, except callgate_init and
 * callgate_reconfigure of the same gate by two threads at once.
 *
 * Pointers: each points to what its type and the counts beside it say, for the time of the call.
 * NULL and misaligned ones are statuses, not crashes; others can't be told from good ones.
 *
 * Memory: all of it is the caller's. A static array is enough. No function allocates, blocks,
 * logs, starts a thread, unwinds or exits.
 *
 * Errors: every function that can fail returns a status and writes its outputs only on success.
 * A refusal is no error: it is a decision. callgate_strerror() turns a status into a sentence.
 *
 * Time: nanoseconds. The functions that end in _at take it; the others read the system's clock.
 *
 *     callgate_limit limits[] = {{.kind = CALLGATE_KIND_RATE, .count = 30,
 *                                 .period_ns = 1000000000, .burst = 60}};
 *     callgate_policy policies[] = {{.rule_count = 1, .rules = {{0, CALLGATE_SCOPE_CALLER}}}};
 *     callgate_config config = {.struct_size = sizeof config, .capacity = 10000,
 *                               .limit_count = 1, .policy_count = 1,
 *                               .limits = limits, .policies = policies};
 *     getrandom(config.secret, sizeof config.secret, 0);
 *     size_t size;
 *     callgate_size(&config, &size);
 *     void *memory = aligned_alloc(CALLGATE_ALIGNMENT, size);
 *     callgate_gate gate;
 *     callgate_init(memory, size, &config, &gate);
 *
 *     callgate_call call = {.struct_size = sizeof call, .policy = 0, .cost = 1};
 *     callgate_key_make(&gate, CALLGATE_DOMAIN_CALLER, "user:1001", 9, &call.caller);
 *     callgate_decision decision;
 *     if (callgate_admit(&gate, &call, NULL, &decision) == CALLGATE_OK && !decision.admitted)
 *         printf("try again in %" PRIu64 " ns\n", decision.retry_after_ns);
 */

#ifndef CALLGATE_H
#define CALLGATE_H

#include <stddef.h>
#include <stdint.h>

// The version of this header: major, minor and patch in a byte each. Compare it with
// `callgate_version()` at load: before 1.0, a library of another minor version is another ABI.
#define CALLGATE_VERSION 256

// What the memory of a gate must be aligned to, in bytes.
#define CALLGATE_ALIGNMENT 32

// The most limits in a policy.
#define CALLGATE_MAX_RULES 8

// `by` of a decision where every limit of the policy is off.
#define CALLGATE_NO_LIMIT UINT32_MAX

// Admits everything and keeps nothing.
#define CALLGATE_KIND_OFF 1

// A token bucket: `count`, `period_ns`, `burst`.
#define CALLGATE_KIND_RATE 2

// So many calls at once, and a breaker that opens when too many are refused or fail:
// `max_in_flight`, `lease_ns`, `reject_trip`, `failure_trip`, `cooldown_ns`, `half_open_probes`.
#define CALLGATE_KIND_CONCURRENCY 3

// So many units in each window of the calendar, for costs that are known only afterwards: `limit`,
// `period_s`, `anchor_unix_s`, `must_seed`.
#define CALLGATE_KIND_QUOTA 4

// One state for each caller.
#define CALLGATE_SCOPE_CALLER 1

// One state for each tool.
#define CALLGATE_SCOPE_TOOL 2

// One state for each caller and tool.
#define CALLGATE_SCOPE_CALLER_TOOL 3

// One state for all calls.
#define CALLGATE_SCOPE_SHARED 4

// Who calls: a user, a client, a token.
#define CALLGATE_DOMAIN_CALLER 1

// What is called.
#define CALLGATE_DOMAIN_TOOL 2

// The call is admitted.
#define CALLGATE_REASON_NONE 0

// A rate limit has too few tokens left.
#define CALLGATE_REASON_RATE 1

// Too many calls are in flight.
#define CALLGATE_REASON_CONCURRENCY 2

// A breaker is open.
#define CALLGATE_REASON_BREAKER_OPEN 3

// A quota is used up.
#define CALLGATE_REASON_QUOTA 4

// A quota waits to be told what was used before.
#define CALLGATE_REASON_UNSEEDED 5

// There is no place for the state of a new caller.
#define CALLGATE_REASON_TABLE_FULL 6

// The cost is above what the limit can ever hold.
#define CALLGATE_REASON_NEVER 7

// The call ran and succeeded.
#define CALLGATE_OUTCOME_SUCCESS 1

// The call ran and failed.
#define CALLGATE_OUTCOME_FAILURE 2

// The call ran, but its client went away: neither a success nor a failure, and paid for.
#define CALLGATE_OUTCOME_ABANDONED 3

// The call never ran: what it was charged is given back.
#define CALLGATE_OUTCOME_CANCELLED 4

// What became of a call of the library. Codes are never reused. A refused call is not an error:
// it is a decision.
enum callgate_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It is done.
  CALLGATE_OK = 0,
  // The permit had been settled before, or is the empty one of a refused call; nothing was done.
  CALLGATE_ALREADY_SETTLED = 1,
  // The permit was settled after its lease: the call's place had been taken for lost. Of that
  // limit nothing was changed.
  CALLGATE_LAPSED = 2,
  // The quota had been told before, for this caller and window; nothing was done.
  CALLGATE_ALREADY_SEEDED = 3,
  // There is no place for the state of a new caller; nothing was done.
  CALLGATE_TABLE_FULL = 4,
  // A pointer that may not be NULL is NULL.
  CALLGATE_NULL_POINTER = 16,
  // A pointer is not aligned for what it points to.
  CALLGATE_MISALIGNED = 17,
  // `struct_size` is not the size of that struct in this version.
  CALLGATE_BAD_STRUCT_SIZE = 18,
  // A reserved field is not zero.
  CALLGATE_RESERVED_NOT_ZERO = 19,
  // This is not a gate that `callgate_init` made.
  CALLGATE_NOT_A_GATE = 20,
  // The system's clock could not be read: on what is no Unix it never can, and the functions that
  // take a time are there.
  CALLGATE_CLOCK_FAILED = 21,
  // `policy` is not the index of one of the gate's policies.
  CALLGATE_UNKNOWN_POLICY = 22,
  // `limit` is not the index of one of the gate's limits.
  CALLGATE_UNKNOWN_LIMIT = 23,
  // `caller` is absent, but a limit of the policy is kept by caller.
  CALLGATE_MISSING_CALLER = 24,
  // `tool` is absent, but a limit of the policy is kept by tool.
  CALLGATE_MISSING_TOOL = 25,
  // `now_ns` must be below 2^61.
  CALLGATE_TIME_OUT_OF_RANGE = 26,
  // The permit is not one that this gate gave, or one of the same secret.
  CALLGATE_UNKNOWN_PERMIT = 27,
  // `outcome` is not one of the `CALLGATE_OUTCOME_*`.
  CALLGATE_UNKNOWN_OUTCOME = 28,
  // `domain` is not one of the `CALLGATE_DOMAIN_*`.
  CALLGATE_UNKNOWN_DOMAIN = 29,
  // The identity is empty: it would be one that all strangers share.
  CALLGATE_EMPTY_IDENTITY = 30,
  // `limit` is not the index of a quota, or of one whose windows are its own.
  CALLGATE_NOT_A_QUOTA = 31,
  // `end_unix_s` must be 1 to 2^29-1 s after `start_unix_s`, which must be below 2^35.
  CALLGATE_BAD_WINDOW = 32,
  // The buffer is too small for the text.
  CALLGATE_BUFFER_TOO_SMALL = 33,
  // `capacity` must be 1 to 67,108,864 callers.
  CALLGATE_CONFIG_CAPACITY = 64,
  // `secret` must be 16 random bytes, not all zero.
  CALLGATE_CONFIG_SECRET = 65,
  // `limit_count` must be 1 to 64.
  CALLGATE_CONFIG_LIMITS = 66,
  // `policy_count` must be 1 to 64.
  CALLGATE_CONFIG_POLICIES = 67,
  // `rule_count` must be 1 to 8.
  CALLGATE_CONFIG_RULES = 68,
  // A rule's `limit` must be below `limit_count`.
  CALLGATE_CONFIG_RULE_LIMIT = 69,
  // A policy has the same limit with the same scope twice.
  CALLGATE_CONFIG_RULE_TWICE = 70,
  // `scope` is not one of the `CALLGATE_SCOPE_*`.
  CALLGATE_CONFIG_SCOPE = 71,
  // `kind` is not one of the `CALLGATE_KIND_*`, or not the one that the limit has.
  CALLGATE_CONFIG_KIND = 72,
  // `count` must be 1 or more tokens.
  CALLGATE_CONFIG_COUNT = 73,
  // `period_ns` must be 1 or more.
  CALLGATE_CONFIG_PERIOD = 74,
  // `burst` must be 1 or more tokens, and `burst * period_ns / count` at most 2^61 ns.
  CALLGATE_CONFIG_BURST = 75,
  // The memory is shorter than `callgate_size` says.
  CALLGATE_CONFIG_MEMORY = 76,
  // `max_in_flight` must be 1 to 4095 calls.
  CALLGATE_CONFIG_MAX_IN_FLIGHT = 77,
  // `lease_ns` must be 1 ms to 2^61 ns, and stay what it was.
  CALLGATE_CONFIG_LEASE = 78,
  // `reject_trip` must be at most 63.
  CALLGATE_CONFIG_REJECT_TRIP = 79,
  // `failure_trip` must be at most 63.
  CALLGATE_CONFIG_FAILURE_TRIP = 80,
  // `cooldown_ns` must be at most 2^61 ns and 50,000 leases, and at least 1 ms where there is a
  // trip.
  CALLGATE_CONFIG_COOLDOWN = 81,
  // `half_open_probes` must be at most 15.
  CALLGATE_CONFIG_HALF_OPEN_PROBES = 82,
  // `limit` of a quota must be 1 to 2^47 units.
  CALLGATE_CONFIG_LIMIT = 83,
  // `period_s` must be 1 to 2^33 s, or 0 without an anchor.
  CALLGATE_CONFIG_PERIOD_S = 84,
  // `must_seed` must be 0 or 1.
  CALLGATE_CONFIG_MUST_SEED = 85,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum callgate_status callgate_status;
#else
typedef int32_t callgate_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// One limit of a gate. Fill unused fields with zero.
typedef struct callgate_limit {
  // One of the `CALLGATE_KIND_*`. Of `CALLGATE_KIND_OFF` only the reserved fields are looked at.
  uint32_t kind;
  // Zero.
  uint32_t reserved_0;
  // Of a rate: tokens that come back in each period, 1 or more.
  uint64_t count;
  // Of a rate: the period in nanoseconds, 1 or more.
  uint64_t period_ns;
  // Of a rate: what a full bucket holds, 1 or more tokens. Filling it from empty must take at
  // most 2^61 ns: `burst * period_ns / count`, of which the part for one token is rounded up to 2^-32 ns.
  uint64_t burst;
  // Of a concurrency limit: how many calls may be in flight at once, 1 to 4095.
  uint32_t max_in_flight;
  // Of a concurrency limit: how many calls at a time probe the way after the cooldown, at most
  // 15. One that succeeds closes the breaker, one that fails opens it anew. 0: it is closed
  // after the cooldown.
  uint32_t half_open_probes;
  // Of a concurrency limit: a call that is not settled gives its place back by itself, between
  // one and two of these later. 1 ms to 2^61 ns; it can't be reconfigured.
  uint64_t lease_ns;
  // Of a concurrency limit: so many refusals in a row, with no call settled in between, open
  // the breaker; at most 63. 0: refusals never do.
  uint32_t reject_trip;
  // Of a concurrency limit: so many calls in a row settled as failures open the breaker; at
  // most 63. 0: failures never do.
  uint32_t failure_trip;
  // Of a concurrency limit: for how long the breaker is open, rounded up to whole milliseconds
  // when it opens. At least 1 ms where there is a trip; at most 2^61 ns and 50,000 leases.
  uint64_t cooldown_ns;
  // Of a quota: units in a window, 1 to 2^47.
  uint64_t limit;
  // Of a quota: how long each window is, in seconds, 1 to 2^33; a day has 86,400. 0: the host
  // sets the windows by `callgate_window_set`.
  uint64_t period_s;
  // Of a quota with a period: when one of the windows begins, in seconds since the Unix epoch.
  // Midnight at an offset of h hours east of Greenwich is -3600 h.
  int64_t anchor_unix_s;
  // Of a quota: 1 where calls are refused until `callgate_seed` has told, for the caller and
  // the window, what was used before; else 0.
  uint32_t must_seed;
  // Zero.
  uint32_t reserved;
} callgate_limit;

// One step of a policy: a limit, and whose state it keeps.
typedef struct callgate_rule {
  // The limit's index in the configuration.
  uint32_t limit;
  // One of the `CALLGATE_SCOPE_*`.
  uint32_t scope;
} callgate_rule;

// A policy: the limits that a class of callers is held to. They are charged in this order, all or
// none.
typedef struct callgate_policy {
  // How many of the rules are used, 1 to `CALLGATE_MAX_RULES`.
  uint32_t rule_count;
  // Zero.
  uint32_t reserved;
  // The rules; those behind `rule_count` are not looked at.
  struct callgate_rule rules[CALLGATE_MAX_RULES];
} callgate_policy;

// What a gate is made from. It is copied: nothing here need outlive `callgate_init`.
typedef struct callgate_config {
  // `sizeof(callgate_config)`.
  uint32_t struct_size;
  // How many distinct callers are sure to find a place, 1 to 67,108,864: a guarantee, not a cap.
  // Each tool of a limit kept by tool, and each pair of one kept by both, takes the place of a
  // caller; so does a caller once more under each further policy whose limits are others.
  uint32_t capacity;
  // 16 random bytes under which identities are hashed, not all zero. Keep them secret: who knows
  // them can aim at other callers' places in the table. No two gates have the same: they would
  // take each other's permits for their own.
  uint8_t secret[16];
  // How many limits there are, 1 to 64.
  uint32_t limit_count;
  // How many policies there are, 1 to 64.
  uint32_t policy_count;
  // The limits, named by their index from here on.
  const struct callgate_limit *limits;
  // The policies, named by their index from here on.
  const struct callgate_policy *policies;
  // Zero.
  uint64_t reserved[4];
} callgate_config;

// Where `callgate_check` found a fault.
typedef struct callgate_fault {
  // What `callgate_init` would return.
  int32_t status;
  // The index of the limit that is at fault, or `CALLGATE_NO_LIMIT`.
  uint32_t limit;
  // The index of the policy that is at fault, or `CALLGATE_NO_LIMIT`.
  uint32_t policy;
} callgate_fault;

// A handle to a gate, made by `callgate_init`. Plain data; it holds pointers into the gate's
// memory, which must outlive it. It may be copied, and is inherited by a forked child.
typedef struct callgate_gate {
  // The library's own.
  uint64_t opaque[24];
} callgate_gate;

// The key of an identity, made by `callgate_key_make`. All zero means that there is none.
typedef struct callgate_key {
  // The lower half.
  uint64_t lo;
  // The upper half.
  uint64_t hi;
} callgate_key;

// A call to be decided.
typedef struct callgate_call {
  // `sizeof(callgate_call)`.
  uint32_t struct_size;
  // The policy's index.
  uint32_t policy;
  // Who calls; may be zero where no limit of the policy is kept by caller.
  struct callgate_key caller;
  // What is called; may be zero where no limit of the policy is kept by tool.
  struct callgate_key tool;
  // Tokens to take from each rate limit of the policy: 1 for a call, n for a batch of n. 0 asks
  // whether there is any debt to wait for, and takes nothing.
  uint64_t cost;
  // Units to set aside in each quota of the policy.
  uint64_t reserve;
  // Zero.
  uint64_t reserved[2];
} callgate_call;

// What an admitted call holds until it is settled. Plain data of which a host keeps one copy, in
// its own request object for instance; a copy would be settled anew.
typedef struct callgate_permit {
  // The library's own. All zero: no permit.
  uint64_t opaque[20];
} callgate_permit;

// What was decided about a call. Of an admitted call, the figures are those of the rate limit or
// quota that has the least left; of the concurrency limit with the fewest places left, where its
// policy has no other kind.
typedef struct callgate_decision {
  // 1 where the call may run, else 0.
  uint32_t admitted;
  // One of the `CALLGATE_REASON_*`.
  uint32_t reason;
  // The index of the limit that refused, or that the figures are of; `CALLGATE_NO_LIMIT` where
  // every limit is off (`limit` and `remaining` are 2^64-1 then).
  uint32_t by;
  // Zero.
  uint32_t reserved;
  // The limit that refused would admit the call in exactly so many nanoseconds, nobody else having
  // charged; those behind it in the policy were not asked, and may refuse it then. 0 where it is
  // admitted, and where no time can be known: of `CALLGATE_REASON_CONCURRENCY`, `_UNSEEDED` and
  // `_NEVER`, and of `_BREAKER_OPEN` while probes are out.
  uint64_t retry_after_ns;
  // What the limit holds when nobody has charged it: tokens, places or units. Of a full table,
  // this and the rest is 0.
  uint64_t limit;
  // What is left of that.
  uint64_t remaining;
  // All of it is back in so many nanoseconds; 0 of a concurrency limit, whose places come back
  // when calls end.
  uint64_t reset_after_ns;
} callgate_decision;

// What the slots of a gate's table hold.
typedef struct callgate_stats {
  // All slots.
  uint64_t slots;
  // Those with a state that is not at rest.
  uint64_t live;
  // Those with a state at rest, free for anybody.
  uint64_t at_rest;
  // Those that a thread is about to use.
  uint64_t claimed;
  // Those that hold nothing.
  uint64_t empty;
} callgate_stats;

// The decisions of one policy since the gate was made.
typedef struct callgate_decisions {
  // How many calls were admitted.
  uint64_t admitted;
  // How many calls each rule refused, by `CALLGATE_REASON_*`.
  uint64_t refused[CALLGATE_MAX_RULES][8];
} callgate_decisions;

// What a concurrency limit looks like, over all its states, and what was counted since the gate was
// made.
typedef struct callgate_guards {
  // How many calls hold a place.
  uint64_t in_flight;
  // How many breakers are open.
  uint64_t open;
  // How many breakers are half-open.
  uint64_t half_open;
  // How often a breaker opened.
  uint64_t trips;
  // How many permits were settled after their lease.
  uint64_t lapsed;
} callgate_guards;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library. Compare it with `CALLGATE_VERSION`.
uint32_t callgate_version(void);

// 1 where this machine changes 128 bits at once by an instruction, else 0: the library then uses
// a lock in its place. It is right within one process all the same, but a thread may wait for
// another, and a gate's memory must not be shared between processes.
uint32_t callgate_is_lock_free(void);

// Writes how many bytes of memory a gate of this configuration needs.
//
// Errors: those of `callgate_init` that concern the configuration.
callgate_status callgate_size(const struct callgate_config *config, size_t *size);

// Finds the first fault of a configuration, and the limit or policy that is to blame. Returns OK
// whenever it could look, also where `fault->status` is none.
callgate_status callgate_check(const struct callgate_config *config, struct callgate_fault *fault);

// Makes a gate in `memory`, of which `size` bytes are the caller's, aligned to
// `CALLGATE_ALIGNMENT`, and may hold anything before. The memory must stay where it is until the
// last handle is out of use; there is nothing to free.
//
// Errors: the `CALLGATE_CONFIG_*`, `CALLGATE_BAD_STRUCT_SIZE`, `CALLGATE_RESERVED_NOT_ZERO`;
// nothing is written then.
callgate_status callgate_init(void *memory,
                              size_t size,
                              const struct callgate_config *config,
                              struct callgate_gate *gate);

// Makes the key of an identity of `size` bytes. Make it once where a caller comes again: hashing
// costs as much as deciding.
//
// Errors: `CALLGATE_EMPTY_IDENTITY`, `CALLGATE_UNKNOWN_DOMAIN`.
callgate_status callgate_key_make(const struct callgate_gate *gate,
                                  uint32_t domain,
                                  const void *identity,
                                  size_t size,
                                  struct callgate_key *key);

// Decides a call by the system's clock (`CLOCK_BOOTTIME` on Linux, where time spent suspended
// counts; the monotonic clock elsewhere). All limits of its policy are charged, or none is.
//
// `permit` may be NULL where the call will not be settled: its charges then stay. Where the call
// is refused, an empty permit is written.
//
// Errors: `CALLGATE_UNKNOWN_POLICY`, `CALLGATE_MISSING_CALLER`, `CALLGATE_MISSING_TOOL`,
// `CALLGATE_BAD_STRUCT_SIZE`, `CALLGATE_RESERVED_NOT_ZERO`, `CALLGATE_CLOCK_FAILED`; nothing is
// charged then.
callgate_status callgate_admit(const struct callgate_gate *gate,
                               const struct callgate_call *call,
                               struct callgate_permit *permit,
                               struct callgate_decision *decision);

// As `callgate_admit`, at a time that the caller takes: `now_ns` of a monotonic clock, below 2^61,
// and `unix_ns` since the Unix epoch, which only limits in calendar windows look at.
//
// Errors: those of `callgate_admit`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_admit_at(const struct callgate_gate *gate,
                                  const struct callgate_call *call,
                                  uint64_t now_ns,
                                  uint64_t unix_ns,
                                  struct callgate_permit *permit,
                                  struct callgate_decision *decision);

// Decides `count` calls, one after the other at one time, in one crossing. `permits` may be NULL;
// else it has room for `count`, as `decisions` has. Where one of the calls can't be decided, none
// is. With a count of 0, only the gate is looked at.
//
// Errors: those of `callgate_admit`.
callgate_status callgate_admit_many(const struct callgate_gate *gate,
                                    const struct callgate_call *calls,
                                    size_t count,
                                    struct callgate_permit *permits,
                                    struct callgate_decision *decisions);

// As `callgate_admit_many`, at a time that the caller takes.
//
// Errors: those of `callgate_admit_at`.
callgate_status callgate_admit_many_at(const struct callgate_gate *gate,
                                       const struct callgate_call *calls,
                                       size_t count,
                                       uint64_t now_ns,
                                       uint64_t unix_ns,
                                       struct callgate_permit *permits,
                                       struct callgate_decision *decisions);

// What `callgate_admit` would say to the call, limit by limit in the policy's order. Changes
// nothing. `decisions` has room for `CALLGATE_MAX_RULES`; their number goes to `count`.
//
// Errors: those of `callgate_admit`.
callgate_status callgate_peek(const struct callgate_gate *gate,
                              const struct callgate_call *call,
                              struct callgate_decision *decisions,
                              size_t *count);

// As `callgate_peek`, at a time that the caller takes.
//
// Errors: those of `callgate_admit_at`.
callgate_status callgate_peek_at(const struct callgate_gate *gate,
                                 const struct callgate_call *call,
                                 uint64_t now_ns,
                                 uint64_t unix_ns,
                                 struct callgate_decision *decisions,
                                 size_t *count);

// Ends an admitted call: gives back its place, tells breakers how it went, and replaces its reserve
// in quotas by the units that it `used`; of an abandoned call with `used` 0 the reserve stays. Of a
// call that was cancelled, every charge is given back as far as time has not done so already, but
// not to a rate limit that was reconfigured since.
//
// Any thread may settle; the second to do so is told `CALLGATE_ALREADY_SETTLED`, as is one who
// settles the empty permit of a refused call. `CALLGATE_LAPSED` says that the call's place had been
// taken for lost: see `lease_ns`.
//
// Where the system's clock can't be read, the time at which the call was charged stands for the
// present.
//
// Errors: `CALLGATE_UNKNOWN_PERMIT`, `CALLGATE_UNKNOWN_OUTCOME`; the permit is then as before.
callgate_status callgate_settle(const struct callgate_gate *gate,
                                struct callgate_permit *permit,
                                uint32_t outcome,
                                uint64_t used);

// As `callgate_settle`, at a time that the caller takes.
//
// Errors: those of `callgate_settle`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_settle_at(const struct callgate_gate *gate,
                                   struct callgate_permit *permit,
                                   uint32_t outcome,
                                   uint64_t used,
                                   uint64_t now_ns,
                                   uint64_t unix_ns);

// Changes a limit for all callers at once. Every caller keeps its debt, but never more than the
// new limit can express; nobody gets tokens by it, except those by which a burst is larger. More
// calls in flight than a new limit allows end as they would have; an open breaker stays open until
// it was to be; a caller's window stays what it is. A limit keeps its kind, and a concurrency limit
// its lease. Not by two threads at once.
//
// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_RESERVED_NOT_ZERO`, `CALLGATE_CLOCK_FAILED`, and the
// `CALLGATE_CONFIG_*`; the limit is then as before.
callgate_status callgate_reconfigure(const struct callgate_gate *gate,
                                     uint32_t limit,
                                     const struct callgate_limit *to);

// As `callgate_reconfigure`, at a time that the caller takes.
//
// Errors: those of `callgate_reconfigure`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_reconfigure_at(const struct callgate_gate *gate,
                                        uint32_t limit,
                                        const struct callgate_limit *to,
                                        uint64_t now_ns,
                                        uint64_t unix_ns);

// Tells a quota what its ledger knows to have been used, by the system's clock: once for each caller
// and window, after a restart. The entry is the one that the limit keeps for `caller` and `tool`
// under `scope`, one of the `CALLGATE_SCOPE_*`; a key that the scope does not need may be NULL.
//
// Returns `CALLGATE_OK` where it was told, `CALLGATE_ALREADY_SEEDED` where it had been, and
// `CALLGATE_TABLE_FULL` where there is no place for the caller's state.
//
// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_NOT_A_QUOTA`, `CALLGATE_CONFIG_SCOPE`,
// `CALLGATE_MISSING_CALLER`, `CALLGATE_MISSING_TOOL`, `CALLGATE_CLOCK_FAILED`.
callgate_status callgate_seed(const struct callgate_gate *gate,
                              uint32_t limit,
                              uint32_t scope,
                              const struct callgate_key *caller,
                              const struct callgate_key *tool,
                              uint64_t used);

// As `callgate_seed`, at a time that the caller takes.
//
// Errors: those of `callgate_seed`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_seed_at(const struct callgate_gate *gate,
                                 uint32_t limit,
                                 uint32_t scope,
                                 const struct callgate_key *caller,
                                 const struct callgate_key *tool,
                                 uint64_t used,
                                 uint64_t now_ns,
                                 uint64_t unix_ns);

// Sets the window of a quota whose `period_s` is 0, in seconds since the Unix epoch: for hosts that
// know time zones and daylight saving. From any thread at any time, before the window begins or
// after; one that begins earlier than one that was set is ignored.
//
// Where nobody has set the next one when a window ends, windows of the same length follow it; one
// that is set ahead is preceded by such; days in UTC are taken until the first is set. A caller who
// was admitted stays in the window of that time until it ends.
//
// Errors: `CALLGATE_UNKNOWN_LIMIT`, `CALLGATE_NOT_A_QUOTA` (also where the quota has a period of
// its own), `CALLGATE_BAD_WINDOW`.
callgate_status callgate_window_set(const struct callgate_gate *gate,
                                    uint32_t limit,
                                    uint64_t start_unix_s,
                                    uint64_t end_unix_s);

// What the slots of the gate's table hold now. Walks all of them: for metrics, not for every call.
//
// Errors: `CALLGATE_CLOCK_FAILED`.
callgate_status callgate_stats_get(const struct callgate_gate *gate, struct callgate_stats *stats);

// As `callgate_stats_get`, at a time that the caller takes.
//
// Errors: `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_stats_get_at(const struct callgate_gate *gate,
                                      uint64_t now_ns,
                                      uint64_t unix_ns,
                                      struct callgate_stats *stats);

// What was decided under a policy since the gate was made.
//
// Errors: `CALLGATE_UNKNOWN_POLICY`.
callgate_status callgate_decisions_get(const struct callgate_gate *gate,
                                       uint32_t policy,
                                       struct callgate_decisions *decisions);

// Who is in flight now under a concurrency limit, over all its states, and what its breakers have
// done. Walks the whole table: for metrics, not for every call.
//
// Errors: `CALLGATE_UNKNOWN_LIMIT`, also where it is no concurrency limit; `CALLGATE_CLOCK_FAILED`.
callgate_status callgate_guards_get(const struct callgate_gate *gate,
                                    uint32_t limit,
                                    struct callgate_guards *guards);

// As `callgate_guards_get`, at a time that the caller takes.
//
// Errors: those of `callgate_guards_get`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_guards_get_at(const struct callgate_gate *gate,
                                       uint32_t limit,
                                       uint64_t now_ns,
                                       uint64_t unix_ns,
                                       struct callgate_guards *guards);

// Writes the gate's metrics as OpenMetrics text, ended by a NUL: decisions by policy, limit and
// reason; places in flight and breakers by concurrency limit; slots of the table by what they
// hold. Walks the table: for scrapes, not for every call.
//
// `policies` and `limits` are their names, UTF-8 and ended by a NUL, by index: as many as the gate
// has. Where either is NULL, or one of its names is not UTF-8, indices stand for them.
//
// `needed` is told how many bytes the text takes, the NUL included, also where the buffer is too
// small: then `CALLGATE_BUFFER_TOO_SMALL` is returned, and what is in the buffer means nothing.
// `buffer` may be NULL where `size` is 0. Numbers grow: leave some room.
//
// Errors: `CALLGATE_BUFFER_TOO_SMALL`, `CALLGATE_CLOCK_FAILED`.
callgate_status callgate_metrics(const struct callgate_gate *gate,
                                 const char *const *policies,
                                 const char *const *limits,
                                 char *buffer,
                                 size_t size,
                                 size_t *needed);

// As `callgate_metrics`, at a time that the caller takes.
//
// Errors: those of `callgate_metrics`, and `CALLGATE_TIME_OUT_OF_RANGE`.
callgate_status callgate_metrics_at(const struct callgate_gate *gate,
                                    const char *const *policies,
                                    const char *const *limits,
                                    char *buffer,
                                    size_t size,
                                    size_t *needed,
                                    uint64_t now_ns,
                                    uint64_t unix_ns);

// A sentence that says what was wrong and what is allowed; never NULL, valid for ever. Any number
// may be asked for.
const char *callgate_strerror(int32_t status);

// The name of the field that a status blames, as in the structs of this header; NULL where it
// blames none. Valid for ever.
const char *callgate_error_field(int32_t status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CALLGATE_H */


