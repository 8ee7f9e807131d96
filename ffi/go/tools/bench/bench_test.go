// Package bench measures what a decision costs from Go, beside what most Go servers do today: a map of
// golang.org/x/time/rate limiters under a mutex, one for each caller.
//
//	go test -bench . ./bench
package bench

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"callgate.dev/callgate"
	"golang.org/x/time/rate"
)

// A rate that admits all, of callers who come in random order.
const perSecond, burst = 1_000_000_000, 1_000_000_000

var counts = []int{1, 100, 10_000, 1_000_000}

func names(count int) []string {
	names := make([]string, count)
	for n := range names {
		names[n] = fmt.Sprintf("user:%07d", n)
	}
	return names
}

// order is a random order in which callers come, prepared so that drawing one costs nothing.
func order(count int) []int32 {
	order := make([]int32, 1<<16)
	for n := range order {
		order[n] = int32(rand.IntN(count))
	}
	return order
}

func newGate(b *testing.B, capacity int) *callgate.Gate {
	b.Helper()
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{"caller": callgate.RateLimit{Count: perSecond, Per: time.Second, Burst: burst}},
		Policies: map[string]callgate.Policy{"all": {{Limit: "caller", Scope: callgate.ScopeCaller}}},
		Capacity: max(capacity, 64),
	})
	if err != nil {
		b.Fatal(err)
	}
	return gate
}

// run has each goroutine of the benchmark decide about callers in random order.
func run(b *testing.B, count, goroutines int, decider func() func(caller int32) bool) {
	b.Helper()
	callers := order(count)
	var all sync.WaitGroup
	b.ResetTimer()
	before := processorTime(b)
	for range goroutines {
		decide := decider()
		start := rand.IntN(len(callers))
		all.Go(func() {
			for n := range b.N / goroutines {
				if !decide(callers[(start+n)&(1<<16-1)]) {
					panic("refused")
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processorTime is what this process has had of the processors: on a machine that others use, too, it
// says more than the time on the clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func forEach(b *testing.B, measure func(b *testing.B, count, goroutines int)) {
	for _, goroutines := range []int{1, 2} {
		for _, count := range counts {
			b.Run(fmt.Sprintf("goroutines=%d/callers=%d", goroutines, count), func(b *testing.B) {
				measure(b, count, goroutines)
			})
		}
	}
}

// BenchmarkKeys: TryAdmit with keys that were made beforehand.
func BenchmarkKeys(b *testing.B) {
	forEach(b, func(b *testing.B, count, goroutines int) {
		gate := newGate(b, count)
		keys := make([]callgate.Key, count)
		for n, name := range names(count) {
			keys[n], _ = gate.Key(name)
		}
		run(b, count, goroutines, func() func(int32) bool {
			var d callgate.Decision
			var call callgate.Call
			return func(caller int32) bool {
				call.CallerKey = keys[caller]
				return gate.TryAdmit(&d, "all", &call) == nil && d.Admitted
			}
		})
	})
}

// BenchmarkNames: TryAdmit with the caller's name.
func BenchmarkNames(b *testing.B) {
	forEach(b, func(b *testing.B, count, goroutines int) {
		gate, names := newGate(b, count), names(count)
		run(b, count, goroutines, func() func(int32) bool {
			var d callgate.Decision
			var call callgate.Call
			return func(caller int32) bool {
				call.Caller = names[caller]
				return gate.TryAdmit(&d, "all", &call) == nil && d.Admitted
			}
		})
	})
}

// BenchmarkAdmit: Admit with the caller's name, which allocates the permit.
func BenchmarkAdmit(b *testing.B) {
	forEach(b, func(b *testing.B, count, goroutines int) {
		gate, names := newGate(b, count), names(count)
		run(b, count, goroutines, func() func(int32) bool {
			return func(caller int32) bool {
				_, err := gate.Admit("all", callgate.Call{Caller: names[caller]})
				return err == nil
			}
		})
	})
}

// BenchmarkMany: TryAdmitMany of 64 calls with prepared keys; what one of them costs.
func BenchmarkMany(b *testing.B) {
	const size = 64
	gate, callers := newGate(b, 10_000), order(10_000)
	keys := make([]callgate.Key, 10_000)
	for n, name := range names(10_000) {
		keys[n], _ = gate.Key(name)
	}
	decisions, calls := make([]callgate.Decision, size), make([]callgate.Call, size)
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		for c := range calls {
			calls[c].CallerKey = keys[callers[(n+c)&(1<<16-1)]]
		}
		if err := gate.TryAdmitMany(decisions, "all", calls); err != nil || !decisions[size-1].Admitted {
			b.Fatal("refused")
		}
	}
}

// BenchmarkMutexMap: the peer.
func BenchmarkMutexMap(b *testing.B) {
	forEach(b, func(b *testing.B, count, goroutines int) {
		var mutex sync.Mutex
		limiters := make(map[string]*rate.Limiter, count)
		names := names(count)
		for _, name := range names {
			limiters[name] = rate.NewLimiter(perSecond, burst)
		}
		run(b, count, goroutines, func() func(int32) bool {
			return func(caller int32) bool {
				mutex.Lock()
				limiter := limiters[names[caller]]
				mutex.Unlock()
				return limiter.Allow()
			}
		})
	})
}
