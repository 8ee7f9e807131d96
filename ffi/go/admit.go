package callgate

// #include "crossing.h"
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"callgate.dev/callgate/internal/direct"
)

// Call is a call to be decided.
type Call struct {
	// Caller is who calls: 1 or more bytes, or "" where nobody is known, which is an error where a
	// limit of the policy is kept by caller.
	Caller string
	// Tool is what is called, likewise.
	Tool string
	// CallerKey takes the place of Caller where the key was made beforehand.
	CallerKey Key
	// ToolKey takes the place of Tool where the key was made beforehand.
	ToolKey Key
	// Cost is how many tokens to take from each rate limit of the policy: 1 for a call, n for a batch
	// of n. 0 is 1; see NoCost.
	Cost uint64
	// NoCost is a cost of 0: it asks whether there is any debt to wait for, and takes nothing.
	NoCost bool
	// Reserve is how many units to set aside in each quota of the policy.
	Reserve uint64
	// At is the time, where it is not the system's.
	At Instant
}

// Admit decides one call under a policy. Where it may not run, the error is a *Refused; where it can't
// be decided, a *CallError, and nothing is charged.
//
//	permit, err := gate.Admit("authenticated", callgate.Call{Caller: "user:1001"})
//	if err != nil {
//		return err
//	}
//	defer permit.Settle(callgate.Success)
//
// A permit that is never settled gives its place back between one and two leases later.
func (g *Gate) Admit(policy string, call Call) (*Permit, error) {
	permit := new(Permit)
	if err := g.TryAdmit(&permit.Decision, policy, &call); err != nil {
		return nil, err
	}
	return permit.orRefused()
}

// AdmitContext is Admit for a call that ends with its context: once that is done, a call that was not
// settled is settled as Abandoned. Where the context is done already, its error is returned, and
// nothing is charged.
func (g *Gate) AdmitContext(ctx context.Context, policy string, call Call) (*Permit, error) {
	if ctx == nil {
		return nil, &CallError{Field: "ctx", Message: "ctx must be a context, not nil"}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	permit, err := g.Admit(policy, call)
	if err != nil {
		return nil, err
	}
	permit.settleWhenDone(ctx)
	return permit, nil
}

func (p *Permit) orRefused() (*Permit, error) {
	if !p.Admitted {
		return nil, &Refused{Decision: &p.Decision}
	}
	return p, nil
}

// TryAdmit decides one call under a policy, without allocating: the decision is yours. A refusal is no
// error; the error is a *CallError where the call can't be decided, and nothing is charged then.
//
//	var d callgate.Decision
//	err := gate.TryAdmit(&d, "authenticated", &callgate.Call{CallerKey: key})
//
// A decision may be used again once its call is settled.
func (g *Gate) TryAdmit(d *Decision, policy string, call *Call) error {
	if err := g.usable(); err != nil {
		return err
	}
	if d == nil || call == nil {
		return missingArgument(d == nil)
	}
	var a engineAdmission
	if err := g.prepare(&a.call, policy, call); err != nil {
		return err
	}
	// The one crossing.
	var status engineStatus
	if direct.IsBuilt && len(call.Caller)+len(call.Tool) == 0 && call.At.IsZero() {
		a.gate, a.permit = &g.handle, &d.permit
		status = engineStatus(direct.Call(admitDirect, unsafe.Pointer(&a)))
	} else {
		status = g.admitUnusual(&a, call, &d.permit)
	}
	runtime.KeepAlive(g)
	if status != C.CALLGATE_OK {
		return g.undecided(status, policy)
	}
	d.take(g, &a.decision)
	d.used, d.at = call.Reserve, call.At
	return nil
}

// admitUnusual is for calls whose identities are text, or whose time is the caller's.
func (g *Gate) admitUnusual(a *engineAdmission, call *Call, permit *enginePermit) engineStatus {
	caller, callerSize := bytesOf(call.Caller)
	tool, toolSize := bytesOf(call.Tool)
	if direct.IsBuilt && callerSize+toolSize <= hashedDirectly {
		var u C.crossing_unusual
		a.gate, a.permit = &g.handle, permit
		u.of, u.caller, u.caller_size, u.tool, u.tool_size = a, caller, callerSize, tool, toolSize
		call.At.put(&u.at)
		return engineStatus(direct.Call(admitUnusualDirect, unsafe.Pointer(&u)))
	}
	at := call.At.engine()
	return C.crossing_admit(&g.handle, &a.call, caller, callerSize, tool, toolSize, &at, permit, &a.decision)
}

// hashedDirectly: with so many bytes of identities a direct call is still over in microseconds.
const hashedDirectly = 1024

// prepare makes a call as the engine takes it, but for its identities and its time, and sees to the
// windows of that time.
func (g *Gate) prepare(c *engineCall, policy string, call *Call) error {
	index, ok := g.indexOfPolicy(policy)
	if !ok {
		return &CallError{Field: "policy", Message: fmt.Sprintf(
			"policy %q is unknown: this gate has %s", policy, listed(g.policyNames))}
	}
	c.struct_size = C.uint32_t(unsafe.Sizeof(*c))
	c.policy = C.uint32_t(index)
	c.cost, c.reserve = C.uint64_t(call.Cost), C.uint64_t(call.Reserve)
	if call.Cost == 0 && !call.NoCost {
		c.cost = 1
	}
	if call.NoCost && call.Cost != 0 {
		return &CallError{Field: "cost", Message: "cost must be 0 where NoCost says so"}
	}
	if !call.CallerKey.put(&c.caller, g.keysOf(false), call.Caller) || !call.ToolKey.put(&c.tool, g.keysOf(true), call.Tool) {
		return g.misplaced(call.Caller, call.CallerKey, call.Tool, call.ToolKey)
	}
	if calendar := g.calendar.Load(); calendar != nil {
		return g.followZones(calendar, call.At)
	}
	return nil
}

func (g *Gate) indexOfPolicy(name string) (uint32, bool) {
	// Mostly the name is the very string that the gate was made with.
	for n := range g.firstPolicies {
		if isVery(g.firstPolicies[n], name) {
			return uint32(n), true
		}
	}
	index, ok := g.policyIndex[name]
	return index, ok
}

func isVery(a, b string) bool {
	return len(a) == len(b) && unsafe.StringData(a) == unsafe.StringData(b)
}

func (g *Gate) undecided(status engineStatus, policy string) error {
	if status == C.CALLGATE_MISSING_CALLER || status == C.CALLGATE_MISSING_TOOL {
		field := fieldOf(status)
		return &CallError{Field: field, Message: fmt.Sprintf(
			"%s is missing, but a limit of the policy %q is kept by %s: it must have 1 or more bytes", field, policy, field)}
	}
	return callError(status)
}

func missingArgument(isDecision bool) error {
	if isDecision {
		return &CallError{Field: "decision", Message: "decision must be a place for the decision, not nil"}
	}
	return &CallError{Field: "call", Message: "call must be a call, not nil"}
}
