package callgate

// #include "crossing.h"
import "C"

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"time"
)

// Report is what one limit of a policy would say to a call.
type Report struct {
	// LimitName is the limit's name.
	LimitName string
	// Reason is why it would refuse; ReasonNone where it would admit.
	Reason Reason
	// RetryAfter: it would admit in so long; 0 where it does, and where no time can be known.
	RetryAfter time.Duration
	// Limit is what the limit holds when nobody has charged it: tokens, places or units; 2^64-1 where
	// it is off.
	Limit uint64
	// Remaining is what is left of that: before the call where it would be refused, after it where it
	// would be admitted.
	Remaining uint64
	// ResetAfter: all of it is back in so long; 0 of a concurrency limit, whose places come back when
	// calls end.
	ResetAfter time.Duration
}

// Guards is what a concurrency limit looks like now, over all its states (one for each caller, say),
// and what was counted since the gate was made.
type Guards struct {
	// InFlight is how many calls hold a place.
	InFlight uint64
	// Open is how many breakers are open.
	Open uint64
	// HalfOpen is how many breakers are half-open.
	HalfOpen uint64
	// Trips is how often a breaker opened.
	Trips uint64
	// Lapsed is how many permits were settled after their lease.
	Lapsed uint64
}

// Counted is whose decisions a count in Stats is of.
type Counted struct {
	// Policy is the policy's name.
	Policy string
	// By is the name of the limit that refused; "" of those that were admitted.
	By string
	// Reason is why; ReasonNone of those that were admitted.
	Reason Reason
}

// Stats is what a gate's table holds now, and what was decided since the gate was made.
type Stats struct {
	// Slots is all slots of the table.
	Slots uint64
	// Live is how many have a state that is not at rest.
	Live uint64
	// AtRest is how many have a state at rest, free for anybody.
	AtRest uint64
	// Claimed is how many a thread is about to use.
	Claimed uint64
	// Empty is how many hold nothing.
	Empty uint64
	// Decisions is how many calls were decided so. Of each policy the admitted are there, of refusals
	// those that happened.
	Decisions map[Counted]uint64
}

// Peek is what each limit of the policy would say to the call, in order. It changes nothing.
func (g *Gate) Peek(policy string, call Call) ([]Report, error) {
	if err := g.usable(); err != nil {
		return nil, err
	}
	var c engineCall
	if err := g.prepare(&c, policy, &call); err != nil {
		return nil, err
	}
	caller, callerSize := bytesOf(call.Caller)
	tool, toolSize := bytesOf(call.Tool)
	at := call.At.engine()
	var found [rulesMax]engineDecision
	var count C.size_t
	status := C.crossing_peek(&g.handle, &c, caller, callerSize, tool, toolSize, &at, &found[0], &count)
	runtime.KeepAlive(g)
	if status != C.CALLGATE_OK {
		return nil, g.undecided(status, policy)
	}
	reports := make([]Report, 0, count)
	for n, rule := range g.policies[policy][:count] {
		f := &found[n]
		reports = append(reports, Report{LimitName: rule.Limit, Reason: Reason(f.reason),
			RetryAfter: duration(uint64(f.retry_after_ns)), Limit: uint64(f.limit),
			Remaining: uint64(f.remaining), ResetAfter: duration(uint64(f.reset_after_ns))})
	}
	return reports, nil
}

// Guards tells of a concurrency limit and its breakers: for metrics, since it walks the table. It
// fails with a *CallError where there is no such limit, or it is none of that kind.
func (g *Gate) Guards(limit string, at ...Instant) (Guards, error) {
	if err := g.usable(); err != nil {
		return Guards{}, err
	}
	index, err := g.indexOfLimit("limit", limit, ConcurrencyLimit{}.kind())
	if err != nil {
		return Guards{}, err
	}
	var found C.callgate_guards
	var status engineStatus
	if when := instantOf(at); when.isGiven {
		status = C.callgate_guards_get_at(&g.handle, C.uint32_t(index), C.uint64_t(when.nowNs), C.uint64_t(when.unixNs), &found)
	} else {
		status = C.callgate_guards_get(&g.handle, C.uint32_t(index), &found)
	}
	runtime.KeepAlive(g)
	if status != C.CALLGATE_OK {
		return Guards{}, callError(status)
	}
	return Guards{InFlight: uint64(found.in_flight), Open: uint64(found.open), HalfOpen: uint64(found.half_open),
		Trips: uint64(found.trips), Lapsed: uint64(found.lapsed)}, nil
}

// AllGuards is the same of all concurrency limits, by name, also of those that are switched off.
func (g *Gate) AllGuards(at ...Instant) (map[string]Guards, error) {
	if err := g.usable(); err != nil {
		return nil, err
	}
	all := map[string]Guards{}
	for _, name := range g.namesOf(ConcurrencyLimit{}.kind()) {
		guards, err := g.Guards(name, at...)
		if err != nil {
			return nil, err
		}
		all[name] = guards
	}
	return all, nil
}

// Stats tells what the table holds and what was decided: for metrics, since it walks the table.
func (g *Gate) Stats(at ...Instant) (Stats, error) {
	if err := g.usable(); err != nil {
		return Stats{}, err
	}
	var found C.callgate_stats
	var status engineStatus
	if when := instantOf(at); when.isGiven {
		status = C.callgate_stats_get_at(&g.handle, C.uint64_t(when.nowNs), C.uint64_t(when.unixNs), &found)
	} else {
		status = C.callgate_stats_get(&g.handle, &found)
	}
	if status != C.CALLGATE_OK {
		return Stats{}, callError(status)
	}
	decisions, err := g.decisions()
	return Stats{Slots: uint64(found.slots), Live: uint64(found.live), AtRest: uint64(found.at_rest),
		Claimed: uint64(found.claimed), Empty: uint64(found.empty), Decisions: decisions}, err
}

func (g *Gate) decisions() (map[Counted]uint64, error) {
	decisions := map[Counted]uint64{}
	for n, policy := range g.policyNames {
		var found C.callgate_decisions
		status := C.callgate_decisions_get(&g.handle, C.uint32_t(n), &found)
		runtime.KeepAlive(g)
		if status != C.CALLGATE_OK {
			return nil, callError(status)
		}
		decisions[Counted{Policy: policy}] = uint64(found.admitted)
		for r, rule := range g.policies[policy] {
			for reason, count := range found.refused[r] {
				if count != 0 {
					decisions[Counted{Policy: policy, By: rule.Limit, Reason: Reason(reason)}] += uint64(count)
				}
			}
		}
	}
	return decisions, nil
}

// metricsEnd ends an OpenMetrics text.
const metricsEnd = "# EOF\n"

// Metrics writes all of that as OpenMetrics text, which ends with "# EOF". No label holds an identity.
// Package callgate.dev/callgate/metrics serves it over HTTP.
func (g *Gate) Metrics(w io.Writer, at ...Instant) error {
	if err := g.usable(); err != nil {
		return err
	}
	if w == nil {
		return &CallError{Field: "w", Message: "w must be a writer, not nil"}
	}
	text, err := g.metricsText(instantOf(at))
	if err != nil {
		return err
	}
	text = bytes.TrimSuffix(text, []byte(metricsEnd))
	text = fmt.Appendf(text, "# HELP callgate_internal_errors Failures of the limiter itself.\n"+
		"# TYPE callgate_internal_errors counter\ncallgate_internal_errors_total %d\n%s", g.InternalErrors(), metricsEnd)
	_, err = w.Write(text)
	return err
}

func (g *Gate) metricsText(at Instant) ([]byte, error) {
	policies, limits := joined(g.policyNames), joined(g.limitNames)
	when := at.engine()
	needed := C.size_t(4096)
	for {
		buffer := make([]byte, needed+256) // numbers grow from one attempt to the next
		status := C.crossing_metrics(&g.handle, charsOf(policies), C.uint32_t(len(g.policyNames)), charsOf(limits),
			C.uint32_t(len(g.limitNames)), &when, charsOf(buffer), C.size_t(len(buffer)), &needed)
		runtime.KeepAlive(g)
		if status == C.CALLGATE_OK {
			return buffer[:needed-1], nil
		}
		if status != C.CALLGATE_BUFFER_TOO_SMALL {
			return nil, callError(status)
		}
	}
}

// joined is names one after the other, each ended by a NUL.
func joined(names []string) []byte {
	var all []byte
	for _, name := range names {
		all = append(append(all, name...), 0)
	}
	return all
}
