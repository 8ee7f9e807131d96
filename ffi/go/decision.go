package callgate

// #include "crossing.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"callgate.dev/callgate/internal/direct"
)

// Decision is what was decided about a call, and what an admitted call holds until it is settled.
// Where it is refused, the figures are those of the limit that refused; where it is admitted, those
// of the rate limit or quota of the policy that has the least left (of the concurrency limit with the
// fewest places left, where there is no other kind).
//
// It is not to be copied, since a copy would be settled anew; go vet says where it is.
type Decision struct {
	_ noCopy

	// Admitted tells whether the call may run.
	Admitted bool
	// Reason says why it may not; ReasonNone where it may.
	Reason Reason
	// By is the name of the limit that refused, or that the figures are of; "" where every limit of
	// the policy is off.
	By string
	// RetryAfter: the limit that refused would admit the call in exactly so long, nobody else having
	// charged; those behind it in the policy were not asked. 0 where it is admitted, and where no time
	// can be known.
	RetryAfter time.Duration
	// Limit is what the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where
	// all are off.
	Limit uint64
	// Remaining is what is left of that.
	Remaining uint64
	// ResetAfter: all of it is back in so long; 0 of a concurrency limit, whose places come back when
	// calls end.
	ResetAfter time.Duration

	gate   *Gate // nil where nothing was decided
	permit enginePermit
	used   uint64 // atomic, once the call is decided
	at     Instant
}

// Permit is an admitted call, from Gate.Admit or Gate.AdmitContext.
type Permit struct {
	Decision
	stop func() bool // no longer settle it when its context ends
}

// noCopy has go vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// take reads what the engine decided.
func (d *Decision) take(g *Gate, found *engineDecision) {
	d.Admitted = found.admitted != 0
	d.Reason = Reason(found.reason)
	d.By = ""
	if by := uint32(found.by); by < uint32(len(g.limitNames)) {
		d.By = g.limitNames[by]
	}
	d.RetryAfter = duration(uint64(found.retry_after_ns))
	d.Limit = uint64(found.limit)
	d.Remaining = uint64(found.remaining)
	d.ResetAfter = duration(uint64(found.reset_after_ns))
	d.gate = g
}

// Used says, before the call is settled, how many units it uses up of its quotas: in place of what was
// reserved, and of what was said before. Where a call never says it, its reserve is taken for what it
// used.
func (d *Decision) Used(units uint64) {
	if d != nil {
		atomic.StoreUint64(&d.used, units)
	}
}

// Settle ends an admitted call. Any goroutine may; a second time it does nothing, and says
// AlreadySettled, as it does of a refused call. So it is safe to defer:
//
//	defer permit.Settle(callgate.Success)
//
// Where the call was admitted at an instant of yours and none is given here, that one is taken.
func (d *Decision) Settle(outcome Outcome, at ...Instant) (Settled, error) {
	if d == nil || d.gate == nil {
		return AlreadySettled, checkOutcome(outcome)
	}
	return d.gate.settle(d, outcome, atomic.LoadUint64(&d.used), instantOf(at))
}

// Cancel settles the call as Cancelled: it never ran, and is given back what it was charged, as far as
// time has not done so.
func (d *Decision) Cancel(at ...Instant) (Settled, error) {
	return d.Settle(Cancelled, at...)
}

// String is for people to read.
func (d *Decision) String() string {
	switch {
	case d == nil:
		return "<callgate.Decision, none>"
	case d.Admitted:
		return fmt.Sprintf("<callgate.Decision admitted, %q: %d of %d left>", d.By, d.Remaining, d.Limit)
	}
	return fmt.Sprintf("<callgate.Decision refused by %q: %s, retry after %s>", d.By, d.Reason, d.RetryAfter)
}

// Used is Decision.Used.
func (p *Permit) Used(units uint64) {
	if p != nil {
		p.Decision.Used(units)
	}
}

// Settle is Decision.Settle; the end of the context, if there was one, no longer settles the call.
func (p *Permit) Settle(outcome Outcome, at ...Instant) (Settled, error) {
	if p == nil {
		return AlreadySettled, checkOutcome(outcome)
	}
	settled, err := p.Decision.Settle(outcome, at...)
	if err == nil && p.stop != nil {
		p.stop()
	}
	return settled, err
}

// Cancel is Decision.Cancel; the end of the context, if there was one, no longer settles the call.
func (p *Permit) Cancel(at ...Instant) (Settled, error) {
	return p.Settle(Cancelled, at...)
}

// String is for people to read.
func (p *Permit) String() string {
	if p == nil {
		return "<callgate.Permit, none>"
	}
	return p.Decision.String()
}

// Settle ends an admitted call, and says what it used of its quotas: as Decision.Used and
// Decision.Settle do. It fails with a *CallError where the decision is one of another gate.
//
// used is the units to charge to quotas in place of what was reserved; of an abandoned call with 0 the
// reserve stays.
func (g *Gate) Settle(d *Decision, outcome Outcome, used uint64, at ...Instant) (Settled, error) {
	if err := g.usable(); err != nil {
		return 0, err
	}
	if d == nil {
		return 0, &CallError{Field: "permit", Message: "permit must be a decision of this gate, not nil"}
	}
	if d.gate == nil {
		return AlreadySettled, checkOutcome(outcome)
	}
	return g.settle(d, outcome, used, instantOf(at))
}

func (g *Gate) settle(d *Decision, outcome Outcome, used uint64, at Instant) (Settled, error) {
	if err := g.usable(); err != nil {
		return 0, err
	}
	if d.gate != g {
		return 0, &CallError{Field: "permit", Message: "the permit is one of another gate"}
	}
	if at.IsZero() {
		at = d.at
	}
	var status engineStatus
	if direct.IsBuilt {
		var s C.crossing_settlement
		s.gate, s.permit, s.used, s.outcome = &g.handle, &d.permit, C.uint64_t(used), C.uint32_t(outcome)
		at.put(&s.at)
		status = engineStatus(direct.Call(settleDirect, unsafe.Pointer(&s)))
	} else {
		when := at.engine()
		status = C.crossing_settle(&g.handle, &d.permit, C.uint32_t(outcome), C.uint64_t(used), &when)
	}
	runtime.KeepAlive(g)
	switch status {
	case C.CALLGATE_OK:
		return SettledNow, nil
	case C.CALLGATE_ALREADY_SETTLED:
		return AlreadySettled, nil
	case C.CALLGATE_LAPSED:
		return Lapsed, nil
	case C.CALLGATE_UNKNOWN_OUTCOME:
		return 0, checkOutcome(outcome)
	}
	return 0, callError(status)
}

func checkOutcome(outcome Outcome) error {
	if outcome >= Success && outcome <= Cancelled {
		return nil
	}
	return &CallError{Field: "outcome", Message: fmt.Sprintf(
		"outcome must be one of Success, Failure, Abandoned, Cancelled, not %d", outcome)}
}

// settleWhenDone gives the call's place back when its context ends.
func (p *Permit) settleWhenDone(ctx context.Context) {
	p.stop = context.AfterFunc(ctx, func() { _, _ = p.Decision.Settle(Abandoned) })
}
