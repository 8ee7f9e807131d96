package mcp

import (
	"context"
	"sync/atomic"

	"callgate.dev/callgate"
)

// Running is one call that a server runs under a gate. It is made by [Meter.Begin].
type Running struct {
	hold *hold
	ctx  context.Context
	mark *mark
}

// mark is on the calls that a charged call makes within the server, which are not the client's.
type mark struct {
	gate   *callgate.Gate
	outer  *mark
	isOver atomic.Bool
}

type markKey struct{}

func markOf(ctx context.Context) *mark {
	found, _ := ctx.Value(markKey{}).(*mark)
	return found
}

// ExpectHandlers says that this meter is around the handlers of a server: a request that is answered
// before its calls run is then not over before they have.
func (m *Meter) ExpectHandlers() { expectHandlers(m.gate) }

// ExpectSomeHandlers is ExpectHandlers for an SDK that does not ask its middleware about every call, such
// as one of an unknown tool: such a request is then over a moment later.
func (m *Meter) ExpectSomeHandlers() { expectSomeHandlers(m.gate) }

// Begin charges one call inside a server, or refuses it: what the middlewares of the SDKs share, and
// those of other SDKs may use. errorCode is the JSON-RPC code of a refusal, [DefaultErrorCode] for 0.
//
//	running, refused := meter.Begin(ctx, mcp.Source{Message: request}, verified, entry, 0)
//	if refused != nil {
//		return refused
//	}
//	outcome := callgate.Failure // where the handler panics
//	defer func() { running.Settle(outcome) }()
//	result, err := handler(running.Context(), request)
//
// verified is the caller that the SDK's authentication knows, or nil. A call that the server makes in
// the course of one that it was charged for costs nothing, and so does one that an outer middleware on
// the same gate has charged: it keeps that one's places until it has ended, too. Where the client left
// before it began, those are free already, and it is decided anew.
func (m *Meter) Begin(ctx context.Context, source Source, verified *Caller, entry Entry, errorCode int) (*Running, *JSONRPCError) {
	if entry.Method == "" {
		entry.Method = MeteredMethod
	}
	for outer := markOf(ctx); outer != nil; outer = outer.outer {
		if outer.gate == m.gate && !outer.isOver.Load() {
			return &Running{ctx: ctx}, nil
		}
	}
	known := noteOfMessage(ctx, source.Header)
	if known.caller != nil {
		verified = known.caller
	}
	taken := known.takeReceipt(m.gate)
	if taken == nil {
		v := m.decide(ctx, []Entry{entry}, source, verified, 0)
		if v.refused {
			return nil, v.jsonRPCError(errorCode)
		}
		taken = v.hold
	}
	running := &Running{hold: taken, mark: &mark{gate: m.gate, outer: markOf(ctx)}}
	running.ctx = context.WithValue(withNote(ctx, &note{caller: verified, receipts: known.receipts}), markKey{}, running.mark)
	for _, paid := range known.receipts {
		running.ctx = withUsage(running.ctx, &paid.charge.usage)
	}
	running.ctx = withUsage(running.ctx, &taken.charge.usage)
	return running, nil
}

func (v *verdict) jsonRPCError(code int) *JSONRPCError {
	if v.decision == nil {
		return unavailable
	}
	return refusalError(v.decision, v.cost, orDefault(code))
}

func orDefault(code int) int {
	if code == 0 {
		return DefaultErrorCode
	}
	return code
}

// Context is that of the handler: in it, [ReportUsage] and [CallerOf] know of the call.
func (r *Running) Context() context.Context { return r.ctx }

// State takes what the call's result states that it has used, see MeterOptions.UsageMeta.
func (r *Running) State(units uint64) {
	if r.hold != nil {
		r.hold.charge.usage.state(units)
	}
}

// Settle ends the call. The first time counts, and that of a refused call does nothing; so it is safe to
// defer.
func (r *Running) Settle(outcome callgate.Outcome) {
	if r != nil && r.hold != nil {
		// What the call leaves behind keeps its context, and calls for its own account.
		r.mark.isOver.Store(true)
		r.hold.settle(outcome)
	}
}

// OutcomeOf is what became of a call inside a server. isError: its result says that the tool failed.
// isClientFault: the error is one of the client's, such as bad arguments or an unknown tool. That says
// nothing about the server's health, and no caller should be able to open its breaker with it. Such a
// call stays charged, as does one that is cancelled.
func OutcomeOf(ctx context.Context, err error, isError, isClientFault bool) callgate.Outcome {
	switch {
	case err == nil && !isError:
		return callgate.Success
	case isClientFault, ctx.Err() != nil:
		return callgate.Abandoned
	}
	return callgate.Failure
}

// UsageMeta is the key of a result's _meta that is read, or empty.
func (m *Meter) UsageMeta() string { return m.options.UsageMeta }
