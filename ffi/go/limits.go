package callgate

import "time"

// Limit is one rule: a RateLimit, a ConcurrencyLimit, a Quota or Off.
type Limit interface {
	// kind is the limit's type, in the words of messages.
	kind() string
}

// RateLimit is a token bucket: Count tokens come back in each period, one by one, up to Burst.
//
//	callgate.RateLimit{Count: 30, Per: time.Second, Burst: 60}
//
// There is no rate of 0: to switch a limit off, say Off{}.
type RateLimit struct {
	// Count is how many tokens come back in each period: 1 or more.
	Count uint64
	// Per is the period: 1 ns or more.
	Per time.Duration
	// Burst is what a full bucket holds: 1 or more tokens. Filling it from empty, Burst * Per /
	// Count, must take at most 2^61 ns, 73 years.
	Burst uint64
}

// ConcurrencyLimit is so many calls at once, and a breaker that opens when too many are refused or
// fail. Over the limit a call is refused at once; nothing queues.
//
//	callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: 2 * time.Hour, RejectTrip: 5, Cooldown: 30 * time.Second}
type ConcurrencyLimit struct {
	// MaxInFlight is how many calls may run at once: 1 to 4095.
	MaxInFlight int
	// Lease: a call that is never settled gives its place back by itself, between one and two of
	// these later. 1 ms to 2^61 ns, longer than any call takes: one that is settled later is told
	// Lapsed. It can't be reconfigured.
	Lease time.Duration
	// RejectTrip: so many refusals in a row, with no call settled in between, open the breaker: 0
	// to 63. 0: refusals never do.
	RejectTrip int
	// FailureTrip: so many calls in a row that fail open the breaker: 0 to 63. 0: failures never do.
	FailureTrip int
	// Cooldown is for how long the breaker is open then: at least 1 ms where there is a trip, at
	// most 2^61 ns and 50,000 leases. Rounded up to whole milliseconds when the breaker opens.
	Cooldown time.Duration
	// HalfOpenProbes: after the cooldown so many calls at a time probe the way, 0 to 15. One that
	// succeeds closes the breaker, one that fails opens it anew. 0: the breaker is closed after the
	// cooldown.
	HalfOpenProbes int
}

// Quota is so many units in each window of the calendar, for costs that are known only afterwards.
//
//	callgate.Quota{Limit: 50_000, Per: 24 * time.Hour, Location: shanghai}
//
// A call says what it used by Permit.Used; that may be more than was left, and refuses the next call
// then. There is no quota of 0: to switch a limit off, say Off{}.
type Quota struct {
	// Limit is how many units there are in a window: 1 to 2^47.
	Limit uint64
	// Per is how long a window is: 1 to 2^33 whole seconds. With a Location it is 24 hours, or 0.
	Per time.Duration
	// Location: windows are the calendar days of that zone, also those of 23 and 25 hours.
	Location *time.Location
	// AnchorUnixS, without a Location: when one of the windows begins, in seconds since the Unix
	// epoch. 0: days begin at midnight in UTC.
	AnchorUnixS int64
	// MustSeed: calls are refused (ReasonUnseeded) until Gate.Seed has told, for the caller and the
	// window, what was used before.
	MustSeed bool
}

// Off is a limit that admits everything and keeps nothing: switched off, explicitly.
type Off struct{}

func (RateLimit) kind() string        { return "RateLimit" }
func (ConcurrencyLimit) kind() string { return "ConcurrencyLimit" }
func (Quota) kind() string            { return "Quota" }
func (Off) kind() string              { return "Off" }
