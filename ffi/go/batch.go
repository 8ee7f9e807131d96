package callgate

// #include "crossing.h"
import "C"

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// batch is room for calls in the engine's form.
type batch struct {
	calls     []engineCall
	permits   []enginePermit
	decisions []engineDecision
	names     []engineNames
	bytes     []byte
}

// TryAdmitMany decides calls one after the other at one time, in one crossing into the engine:
// decisions[n] is of calls[n], each charged as TryAdmit would. Where one of them can't be decided,
// none is. The calls must have the same time.
func (g *Gate) TryAdmitMany(decisions []Decision, policy string, calls []Call) error {
	if err := g.usable(); err != nil {
		return err
	}
	if len(decisions) != len(calls) {
		return &CallError{Field: "decisions", Message: fmt.Sprintf(
			"decisions must be as many as calls, %d, not %d", len(calls), len(decisions))}
	}
	if len(calls) == 0 {
		return nil
	}
	b := g.batches.take()
	defer g.batches.put(b)
	b.resize(len(calls))
	for n := range calls {
		if err := b.add(g, n, policy, calls); err != nil {
			return err
		}
	}
	at := calls[0].At.engine()
	status := C.crossing_admit_many(&g.handle, &b.calls[0], C.size_t(len(calls)),
		charsOf(b.bytes), &b.names[0], &at, &b.permits[0], &b.decisions[0])
	runtime.KeepAlive(g)
	if status != C.CALLGATE_OK {
		return g.undecided(status, policy)
	}
	for n := range decisions {
		d := &decisions[n]
		d.permit = b.permits[n]
		d.take(g, &b.decisions[n])
		d.used, d.at = calls[n].Reserve, calls[n].At
	}
	return nil
}

// spareBatches keeps batches to be used again, so that deciding many calls allocates nothing once there
// were as many before, by as many goroutines. (A sync.Pool forgets them when garbage is collected.)
type spareBatches [8]atomic.Pointer[batch]

func (s *spareBatches) take() *batch {
	for n := range s {
		if b := s[n].Swap(nil); b != nil {
			return b
		}
	}
	return new(batch)
}

func (s *spareBatches) put(b *batch) {
	for n := range s {
		if s[n].CompareAndSwap(nil, b) {
			return
		}
	}
}

func (b *batch) resize(count int) {
	if cap(b.calls) < count {
		b.calls = make([]engineCall, count)
		b.permits = make([]enginePermit, count)
		b.decisions = make([]engineDecision, count)
		b.names = make([]engineNames, count)
	}
	b.calls, b.permits = b.calls[:count], b.permits[:count]
	b.decisions, b.names = b.decisions[:count], b.names[:count]
	b.bytes = append(b.bytes[:0], 0) // so that there is an address even without identities
}

func (b *batch) add(g *Gate, n int, policy string, calls []Call) error {
	call := &calls[n]
	if call.At != calls[0].At {
		return &CallError{Field: "now_ns", Message: "now_ns must be the same of all calls of a batch, as unix_ns must"}
	}
	b.calls[n] = engineCall{}
	if err := g.prepare(&b.calls[n], policy, call); err != nil {
		return err
	}
	names := &b.names[n]
	names.caller_start, names.caller_size = C.uint64_t(len(b.bytes)), C.uint64_t(len(call.Caller))
	b.bytes = append(b.bytes, call.Caller...)
	names.tool_start, names.tool_size = C.uint64_t(len(b.bytes)), C.uint64_t(len(call.Tool))
	b.bytes = append(b.bytes, call.Tool...)
	return nil
}
