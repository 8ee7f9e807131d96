package mcp

import (
	"context"
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"callgate.dev/callgate"
)

// Meter is one gate as a middleware uses it: it charges a call once, settles it once, and is never the
// outage. It is made by [NewMeter]. Every method may be called from any goroutine.
type Meter struct {
	gate      *callgate.Gate
	options   MeterOptions
	resolver  *resolver
	chooser   *chooser
	hasQuota  map[string]bool
	errors    atomic.Uint64
	nextLogNs atomic.Int64

	// Of the gate; a test may stand in for them.
	tryAdmit func(ctx context.Context, d *callgate.Decision, policy string, call *callgate.Call) error
	settleAt func(d *callgate.Decision, outcome callgate.Outcome, used uint64, at callgate.Instant) error
}

// NewMeter makes the meter of a middleware. A gate of nil is the process's gate from the environment,
// see [DefaultGate]. It needs a policy Anonymous, without any limit by caller, and Authenticated unless
// there is a Caller function; ForwardedBearer is used where it exists. Fails with a
// *callgate.ConfigError where that is not so, and where an option is out of its range.
func NewMeter(gate *callgate.Gate, options MeterOptions) (*Meter, error) {
	if options.OnError > OnErrorRefuse {
		return nil, optionError("on_error", " must be OnErrorAdmit or OnErrorRefuse, not %d", options.OnError)
	}
	if gate == nil {
		var err error
		if gate, err = DefaultGate(); err != nil {
			return nil, err
		}
	}
	policies := gate.Policies()
	resolver, err := newResolver(policies, options.Caller)
	if err != nil {
		return nil, err
	}
	chooser, err := newChooser(policies, &options)
	if err != nil {
		return nil, err
	}
	m := &Meter{gate: gate, options: options, resolver: resolver, chooser: chooser, hasQuota: map[string]bool{}}
	m.tryAdmit, m.settleAt = m.askGate, m.tellGate
	for name := range policies {
		for _, named := range m.policyLimits(name) {
			if _, isQuota := named.limit.(callgate.Quota); isQuota {
				m.hasQuota[name] = true
			}
		}
	}
	return m, nil
}

// Gate is the gate that decides.
func (m *Meter) Gate() *callgate.Gate { return m.gate }

// InternalErrors is how often the limiter itself has failed.
func (m *Meter) InternalErrors() uint64 { return m.errors.Load() }

// IsMetered tells whether calls of this method are charged: MeteredMethod, and those that have a policy
// of their own.
func (m *Meter) IsMetered(method string) bool { return m.chooser.methods[method] }

// verdict is the answer for one message, and the charge to settle when the call is over.
type verdict struct {
	*hold
	refused bool
	// policy is the one that refused, or the last one charged.
	policy string
	// cost is how many calls the decision is about.
	cost int
	// decision is nil where something else decided than the gate, or nothing was asked of it.
	decision *callgate.Decision
}

// decide charges one message of these entries, all of them or none. It fails and panics in no way of its
// own. spent is gate time already spent on the message, for the observation.
func (m *Meter) decide(ctx context.Context, entries []Entry, source Source, verified *Caller, spent time.Duration) (v *verdict) {
	started := time.Now()
	v = m.guarded(ctx, func() (*verdict, error) {
		caller, err := m.resolver.resolve(ctx, source, verified)
		if err != nil {
			return nil, err
		}
		return m.admit(ctx, caller, entries)
	})
	if m.options.Observe != nil && v.decision != nil {
		m.observe(Observation{v.policy, len(entries), v.decision, int64(spent + time.Since(started)), source})
	}
	return v
}

// guarded turns every way to fail into the verdict after an internal error. Where the context has ended
// it is a refusal, and no such error: nobody is there any more to read it, and a call that were admitted
// would run uncharged.
func (m *Meter) guarded(ctx context.Context, decide func() (*verdict, error)) (v *verdict) {
	defer func() {
		if fault := recover(); fault != nil {
			v = m.failed(panicked(fault))
		}
	}()
	v, err := decide()
	switch {
	case err == nil:
		return v
	case ctx.Err() != nil:
		return m.undecided(true)
	}
	return m.failed(err)
}

// failed is the verdict after an internal error: it is counted, and logged once in a while.
func (m *Meter) failed(err error) *verdict {
	m.countError(err)
	return m.undecided(m.options.OnError == OnErrorRefuse)
}

// undecided is a verdict that the gate has no part in.
func (m *Meter) undecided(refused bool) *verdict {
	return &verdict{hold: newCharge(m.settle, nil), refused: refused}
}

func (m *Meter) observe(seen Observation) {
	defer func() {
		if fault := recover(); fault != nil {
			m.countError(panicked(fault))
		}
	}()
	m.options.Observe(seen)
}

// admit has one admission for each policy and, where that keeps state by tool, for each tool: every
// limit is charged for its own calls, and a batch under one policy takes one place.
func (m *Meter) admit(ctx context.Context, caller Caller, entries []Entry) (*verdict, error) {
	v := &verdict{policy: caller.Policy}
	at := m.now()
	var shares []share
	isDone := false
	defer func() {
		if !isDone {
			m.takeBack(shares)
		}
	}()
	for _, part := range m.parts(caller, entries) {
		v.policy, v.cost, v.decision = part.policy, part.count, new(callgate.Decision)
		call := callOf(part, m.options.Reserve, at)
		if err := m.tryAdmit(ctx, v.decision, part.policy, &call); err != nil {
			return nil, err
		}
		if v.refused = !v.decision.Admitted; v.refused {
			m.takeBack(shares)
			shares = nil
			break
		}
		shares = append(shares, share{v.decision, call.Reserve, m.hasQuota[part.policy]})
	}
	isDone = true
	v.hold = newCharge(m.settle, shares)
	return v, nil
}

// part is what one admission is asked for.
type part struct {
	charged
	count int
}

// parts are in the order of their first entries.
func (m *Meter) parts(caller Caller, entries []Entry) []part {
	var parts []part
	index := map[charged]int{}
	for _, entry := range entries {
		what, isCharged := m.chooser.charged(entry, caller)
		if !isCharged {
			continue
		}
		n, isKnown := index[what]
		if !isKnown {
			n = len(parts)
			index[what] = n
			parts = append(parts, part{charged: what})
		}
		parts[n].count++
	}
	return parts
}

func (m *Meter) takeBack(shares []share) {
	for _, each := range shares {
		m.settle(each.permit, callgate.Cancelled, 0)
	}
}

func (m *Meter) settle(permit *callgate.Decision, outcome callgate.Outcome, used uint64) {
	if err := m.settleAt(permit, outcome, used, m.now()); err != nil {
		m.countError(err)
	}
}

func (m *Meter) askGate(ctx context.Context, d *callgate.Decision, policy string, call *callgate.Call) error {
	// A ledger can't be asked about a key.
	if m.options.Seeder != nil && call.CallerKey.IsZero() {
		return m.options.Seeder.TryAdmit(ctx, d, policy, call)
	}
	return m.gate.TryAdmit(d, policy, call)
}

func (m *Meter) tellGate(d *callgate.Decision, outcome callgate.Outcome, used uint64, at callgate.Instant) error {
	_, err := m.gate.Settle(d, outcome, used, at)
	return err
}

// callOf is the call to be decided for a part.
func callOf(p part, reserve uint64, at callgate.Instant) callgate.Call {
	high, all := bits.Mul64(reserve, uint64(p.count))
	if high != 0 {
		all = math.MaxUint64
	}
	call := callgate.Call{Caller: p.caller, CallerKey: p.key, Tool: p.tool, Cost: uint64(p.count), Reserve: all, At: at}
	if !p.key.IsZero() {
		call.Caller = ""
	}
	return call
}

// now is no instant where the engine is to read its own clocks.
func (m *Meter) now() callgate.Instant {
	if m.options.Clock == nil {
		return callgate.Instant{}
	}
	return m.options.Clock()
}

// namedLimit is a limit of a policy.
type namedLimit struct {
	name  string
	limit callgate.Limit
}

// policyLimits are the limits of a policy in order, as a refusal shows them.
func (m *Meter) policyLimits(policy string) []namedLimit {
	limits := m.gate.Limits()
	var named []namedLimit
	seen := map[string]bool{}
	for _, rule := range m.gate.Policies()[policy] {
		if !seen[rule.Limit] {
			seen[rule.Limit] = true
			named = append(named, namedLimit{rule.Limit, limits[rule.Limit]})
		}
	}
	return named
}
