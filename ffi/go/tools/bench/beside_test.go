package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"callgate.dev/callgate"
	"golang.org/x/time/rate"
)

// sliceSize is short enough that many slices are not interrupted, also on a machine that is shared, and
// long enough that two goroutines meet.
const sliceSize = 20_000

// BenchmarkBeside: both by turns, a short slice each, so that whatever else the machine does meets both
// alike. Of each the lower quartile of its slices is told, and what one is of the other.
func BenchmarkBeside(b *testing.B) {
	const count = 10_000
	names := names(count)
	for _, goroutines := range []int{1, 2} {
		gate, limiters, mutex := newGate(b, count), map[string]*rate.Limiter{}, new(sync.Mutex)
		keys := make([]callgate.Key, count)
		for n, name := range names {
			keys[n], _ = gate.Key(name)
			limiters[name] = rate.NewLimiter(perSecond, burst)
		}
		byKey := func() func(int32) bool {
			d, call := new(callgate.Decision), new(callgate.Call)
			return func(caller int32) bool {
				call.CallerKey = keys[caller]
				return gate.TryAdmit(d, "all", call) == nil && d.Admitted
			}
		}
		byName := func() func(int32) bool {
			d, call := new(callgate.Decision), new(callgate.Call)
			return func(caller int32) bool {
				call.Caller = names[caller]
				return gate.TryAdmit(d, "all", call) == nil && d.Admitted
			}
		}
		peer := func() func(int32) bool {
			return func(caller int32) bool {
				mutex.Lock()
				limiter := limiters[names[caller]]
				mutex.Unlock()
				return limiter.Allow()
			}
		}
		b.Run(fmt.Sprintf("goroutines=%d/callers=%d", goroutines, count), func(b *testing.B) {
			callers := order(count)
			var times [3][]float64
			b.ResetTimer()
			for n := 0; n < b.N; n += 3 * sliceSize {
				for which, decider := range []func() func(int32) bool{byKey, byName, peer} {
					times[which] = append(times[which], slice(goroutines, callers, decider))
				}
			}
			var quartiles [3]float64
			for which := range times {
				slices.Sort(times[which])
				quartiles[which] = times[which][len(times[which])/4]
			}
			b.ReportMetric(quartiles[0], "by-key-ns")
			b.ReportMetric(quartiles[1], "by-name-ns")
			b.ReportMetric(quartiles[2], "peer-ns")
			b.ReportMetric(quartiles[0]/quartiles[2], "by-key/peer")
			b.ReportMetric(quartiles[1]/quartiles[2], "by-name/peer")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// slice has goroutines decide for a while, and returns what a decision took of the time on the clock.
func slice(goroutines int, callers []int32, decider func() func(int32) bool) float64 {
	var ready, all sync.WaitGroup
	begin := make(chan struct{})
	for range goroutines {
		ready.Add(1)
		decide, start := decider(), rand.IntN(len(callers))
		all.Go(func() {
			ready.Done()
			<-begin
			for n := range sliceSize {
				if !decide(callers[(start+n)&(1<<16-1)]) {
					panic("refused")
				}
			}
		})
	}
	ready.Wait()
	began := time.Now()
	close(begin)
	all.Wait()
	return float64(time.Since(began)) / float64(sliceSize*goroutines)
}
