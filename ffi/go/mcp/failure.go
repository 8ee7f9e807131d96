package mcp

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"callgate.dev/callgate"
)

const logInterval = time.Minute

// countError counts a failure of the limiter itself, and logs one in a while.
func (m *Meter) countError(err error) {
	count := m.errors.Add(1)
	m.gate.CountInternalError()
	next, now := m.nextLogNs.Load(), time.Now().UnixNano()
	if now < next || !m.nextLogNs.CompareAndSwap(next, now+int64(logInterval)) {
		return
	}
	answer := "admitted"
	if m.options.OnError == OnErrorRefuse {
		answer = "refused"
	}
	logger := m.options.Logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.Error(fmt.Sprintf("the call limiter failed (%s); the call is %s; %d failures so far", nature(err), answer, count))
}

// nature is an error without its message: messages quote values, and values may be identities.
func nature(err error) string {
	var call *callgate.CallError
	var fault *panicError
	switch {
	case errors.Is(err, callgate.ErrClosed):
		return "the gate is closed"
	case errors.As(err, &call):
		return fmt.Sprintf("%T about %q", call, call.Field)
	case errors.As(err, &fault):
		return fmt.Sprintf("panic of %s at %s", fault.kind, fault.place)
	}
	return fmt.Sprintf("%T", err)
}

// panicError is a panic that was caught in what the limiter calls: a hook, a ledger.
type panicError struct {
	kind  string
	place string
}

func (p *panicError) Error() string { return "panic of " + p.kind + " at " + p.place }

// panicked is for the deferred function that has recovered.
func panicked(fault any) error {
	found := &panicError{kind: fmt.Sprintf("%T", fault), place: "unknown"}
	var callers [16]uintptr
	// Neither Callers, nor this function, nor the deferred one.
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if !strings.HasPrefix(frame.Function, "runtime.") {
			found.place = fmt.Sprintf("%s:%d", frame.File, frame.Line)
			return found
		}
		if !more {
			return found
		}
	}
}
