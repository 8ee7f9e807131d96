package callgate

import (
	"bytes"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What Go's runtime does to a thread, it may do in the middle of a decision: interrupt it to have its
// stack looked at or its goroutine preempted, collect garbage, and move the stack as soon as it is back.
func TestTheRuntimeMayCollectGrowStacksAndProfileWhileCallsAreDecided(t *testing.T) {
	const goroutines, decisions = 4, 50_000
	gate := gateOf(t, RateLimit{1, time.Hour, goroutines * decisions / 2}, ScopeCaller)
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		t.Fatal(err)
	}
	var done atomic.Bool
	var collecting, deciding sync.WaitGroup
	collecting.Go(func() {
		for !done.Load() {
			runtime.GC()
		}
	})
	var count atomic.Int64
	for range goroutines {
		deciding.Go(func() {
			for n := range decisions {
				if admittedAt(t, gate, n%200) {
					count.Add(1)
				}
			}
		})
	}
	deciding.Wait()
	done.Store(true)
	collecting.Wait()
	pprof.StopCPUProfile()
	if count.Load() != goroutines*decisions/2 {
		t.Errorf("%d admitted of a burst of %d", count.Load(), goroutines*decisions/2)
	}
	if profile.Len() == 0 {
		t.Error("no profile")
	}
}

// admittedAt decides at a depth of the stack.
//
//go:noinline
func admittedAt(t *testing.T, gate *Gate, depth int) bool {
	if depth > 0 {
		return admittedAt(t, gate, depth-1)
	}
	return ask(t, gate, Call{Caller: "alice", At: At(0, 0)}).Admitted
}

func TestIdentitiesOfAnyLengthAreOneCallerEach(t *testing.T) {
	gate := rateOf(t, 1, 1)
	for _, length := range []int{1, hashedDirectly - 1, hashedDirectly, hashedDirectly + 1, 100_000} {
		caller := strings.Repeat("a", length)
		key, err := gate.Key(caller)
		if err != nil {
			t.Fatal(err)
		}
		if d := ask(t, gate, Call{Caller: caller, At: At(0, 0)}); !d.Admitted {
			t.Error(length, d)
		}
		if d := ask(t, gate, Call{CallerKey: key, At: At(0, 0)}); d.Admitted || d.Reason != ReasonRate {
			t.Error(length, d)
		}
	}
}
