package callgate

// Scope says whose state a limit keeps.
type Scope uint8

const (
	// ScopeCaller keeps one state for each caller.
	ScopeCaller Scope = iota + 1
	// ScopeTool keeps one state for each tool.
	ScopeTool
	// ScopeCallerTool keeps one state for each pair of caller and tool.
	ScopeCallerTool
	// ScopeShared keeps one state for all calls.
	ScopeShared
)

// Reason says why a call is refused.
type Reason uint8

const (
	// ReasonNone is that of a call that is admitted.
	ReasonNone Reason = iota
	// ReasonRate: a rate limit has too few tokens left.
	ReasonRate
	// ReasonConcurrency: too many calls are in flight.
	ReasonConcurrency
	// ReasonBreakerOpen: a breaker is open.
	ReasonBreakerOpen
	// ReasonQuota: a quota is used up.
	ReasonQuota
	// ReasonUnseeded: a quota waits to be told what was used before.
	ReasonUnseeded
	// ReasonTableFull: there is no place for the state of a new caller.
	ReasonTableFull
	// ReasonNever: the cost is above what the limit can ever hold.
	ReasonNever
)

// Outcome says what became of a call.
type Outcome uint8

const (
	// Success: the call ran and succeeded.
	Success Outcome = iota + 1
	// Failure: the call ran and failed.
	Failure
	// Abandoned: the call ran, but its client went away: neither a success nor a failure to the
	// breaker, and paid for.
	Abandoned
	// Cancelled: the call never ran, so that what it was charged is given back.
	Cancelled
)

// Settled says what a settlement comes to.
type Settled uint8

const (
	// SettledNow: the call is settled.
	SettledNow Settled = iota + 1
	// AlreadySettled: it was settled before, or it was refused; nothing was done.
	AlreadySettled
	// Lapsed: it is settled after its lease, when its place had been taken for lost. Of that
	// limit nothing was changed.
	Lapsed
)

var (
	scopeNames   = [...]string{"", "caller", "tool", "caller_tool", "shared"}
	reasonNames  = [...]string{"", "rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never"}
	outcomeNames = [...]string{"", "success", "failure", "abandoned", "cancelled"}
	settledNames = [...]string{"", "ok", "already_settled", "lapsed"}
)

// String is "caller", "tool", "caller_tool", "shared", or "" of no scope.
func (s Scope) String() string { return word(scopeNames[:], uint8(s)) }

// String is "rate", "concurrency", "breaker_open", "quota", "unseeded", "table_full", "never", or ""
// of ReasonNone.
func (r Reason) String() string { return word(reasonNames[:], uint8(r)) }

// String is "success", "failure", "abandoned", "cancelled", or "" of no outcome.
func (o Outcome) String() string { return word(outcomeNames[:], uint8(o)) }

// String is "ok", "already_settled", "lapsed", or "" where nothing was settled.
func (s Settled) String() string { return word(settledNames[:], uint8(s)) }

func word(words []string, n uint8) string {
	if int(n) < len(words) {
		return words[n]
	}
	return ""
}
