package mcp

import (
	"log/slog"

	"callgate.dev/callgate"
)

// OnError says what a failure of the limiter itself does to a call.
type OnError uint8

const (
	// OnErrorAdmit lets the call run: the limiter is never the outage.
	OnErrorAdmit OnError = iota
	// OnErrorRefuse answers 503, or the JSON-RPC error -32603.
	OnErrorRefuse
)

// RefuseWith says how a middleware of an SDK's refuses a call.
type RefuseWith uint8

const (
	// RefuseWithError answers with a JSON-RPC error.
	RefuseWithError RefuseWith = iota
	// RefuseWithResult answers with a tool result of isError, whose text a model reads.
	RefuseWithResult
)

// MeterOptions are what every middleware takes, whatever it stands in front of. The zero value is right
// for a gate of [GateFromEnv].
type MeterOptions struct {
	// Caller says who calls. By default it is the user of an API key (see [APIKeys]), what
	// [WithCaller] has noted, or the SDK's verified token (see package gosdk). On stdio there is
	// neither: such a caller is anonymous.
	Caller CallerFunc
	// Tools has, by tool, the policy that replaces the one of the caller's class for it:
	//
	//	{"search": {Policy: "expensive"}}
	//
	// A batch is admitted under all the policies that it needs, or refused whole.
	Tools map[string]PolicyChoice
	// Methods is the same for methods besides tools/call, which cost nothing otherwise:
	//
	//	{"tasks/get": {Policy: "polling"}}
	Methods map[string]PolicyChoice
	// Continuations is the same for calls that go on with one of several rounds (they carry
	// inputResponses, which any client can send). By default they cost like any call.
	Continuations *PolicyChoice
	// Reserve is how many units a call sets aside in the quotas of its policy; when it ends, what it
	// has used takes their place, see [ReportUsage].
	Reserve uint64
	// Seeder asks a ledger what a caller has used, when a quota of MustSeed wants to know; it is one
	// on the same gate. Not for callers that are given as a Key.
	Seeder *callgate.Seeder
	// UsageMeta is the key of a result's _meta under which it says how many units were used, such as
	// "callgate/used". That is taken in place of what the tool reported.
	UsageMeta string
	// OnError is what an internal error does to the call. It is counted in InternalErrors either way.
	OnError OnError
	// Clock tells the time, for tests; nil means the system's clocks.
	Clock func() callgate.Instant
	// Observe is called with an Observation after each decision.
	Observe func(Observation)
	// Logger is told of internal errors, once a minute at most; nil means slog.Default().
	Logger *slog.Logger
}

// Observation is one decision, for whoever measures: handed to the Observe hook once for each metered
// message.
type Observation struct {
	// Policy is the one that refused, or the last that was charged.
	Policy string
	// Cost is how many calls the message holds.
	Cost int
	// Decision is what was decided. It is settled elsewhere.
	Decision *callgate.Decision
	// GateNs is the time spent in callgate for the message (reading it, finding the caller,
	// deciding), in nanoseconds.
	GateNs int64
	// Source is what a caller function gets. It belongs in no metric's label.
	Source Source
}
