package callgate

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOverTheLimitACallIsRefusedAtOnceAndTakesNoPlace(t *testing.T) {
	gate := placesOf(t, 2)
	first := ask(t, gate, Call{Cost: 5})
	if first.Remaining != 1 || first.Limit != 2 || first.ResetAfter != 0 {
		t.Error("a batch takes one place:", first)
	}
	ask(t, gate, Call{})
	for range 10 {
		if d := ask(t, gate, Call{}); d.Reason != ReasonConcurrency || d.RetryAfter != 0 || d.Remaining != 0 {
			t.Error(d)
		}
	}
	settle(t, first, Success)
	if d := ask(t, gate, Call{}); !d.Admitted {
		t.Error(d)
	}
}

func TestRefusalsInARowOpenTheBreakerAndTimeClosesIt(t *testing.T) {
	gate := gateOf(t, ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour, RejectTrip: 3, Cooldown: 30 * time.Second}, ScopeShared)
	at := At(0, 0)
	d := ask(t, gate, Call{At: at})
	for n, wanted := range []Reason{ReasonConcurrency, ReasonConcurrency, ReasonBreakerOpen, ReasonBreakerOpen} {
		if d := ask(t, gate, Call{At: at}); d.Reason != wanted {
			t.Error(n, d)
		}
	}
	settle(t, d, Success)
	if d := ask(t, gate, Call{At: At(10*second, 0)}); d.Reason != ReasonBreakerOpen || d.RetryAfter != 20*time.Second {
		t.Error(d)
	}
	guards, err := gate.Guards("limit", At(10*second, 0))
	if err != nil || guards != (Guards{Open: 1, Trips: 1}) {
		t.Errorf("%+v, %v", guards, err)
	}
	if d := ask(t, gate, Call{At: At(30*second, 0)}); !d.Admitted {
		t.Error(d)
	}
}

func TestFailuresOpenTheBreakerAndAProbeThatSucceedsClosesIt(t *testing.T) {
	gate := gateOf(t, ConcurrencyLimit{MaxInFlight: 5, Lease: time.Hour, FailureTrip: 2, Cooldown: time.Second, HalfOpenProbes: 1}, ScopeShared)
	at := At(0, 0)
	for _, outcome := range []Outcome{Failure, Success, Failure, Cancelled, Abandoned} {
		settle(t, ask(t, gate, Call{At: at}), outcome)
	}
	if d := ask(t, gate, Call{At: at}); !d.Admitted {
		t.Error("one failure in a row is not two:", d)
	} else {
		settle(t, d, Failure)
	}
	if d := ask(t, gate, Call{At: at}); d.Reason != ReasonBreakerOpen || d.RetryAfter != time.Second {
		t.Error(d)
	}
	probe := ask(t, gate, Call{At: At(second, 0)})
	if d := ask(t, gate, Call{At: At(second, 0)}); !probe.Admitted || d.Reason != ReasonBreakerOpen || d.RetryAfter != 0 {
		t.Error("one probe at a time:", probe, d)
	}
	settle(t, probe, Success)
	if n := admitted(t, gate, 6, Call{At: At(second, 0)}); n != 5 {
		t.Errorf("%d of 5 places", n)
	}
}

func TestAPlaceThatNobodyGivesBackIsFreeAfterOneToTwoLeases(t *testing.T) {
	gate := gateOf(t, ConcurrencyLimit{MaxInFlight: 1, Lease: time.Minute}, ScopeShared)
	d := ask(t, gate, Call{At: At(30*second, 0)})
	if refused := ask(t, gate, Call{At: At(119*second, 0)}); refused.Reason != ReasonConcurrency {
		t.Error(refused)
	}
	if again := ask(t, gate, Call{At: At(120*second, 0)}); !again.Admitted {
		t.Error(again)
	}
	if settled := settle(t, d, Success, At(120*second, 0)); settled != Lapsed {
		t.Error(settled)
	}
	if settled := settle(t, d, Success, At(120*second, 0)); settled != AlreadySettled {
		t.Error(settled)
	}
	if guards, err := gate.Guards("limit", At(120*second, 0)); err != nil || guards != (Guards{InFlight: 1, Lapsed: 1}) {
		t.Errorf("%+v, %v", guards, err)
	}
}

func TestGoroutinesNeverHoldMoreThanAllPlaces(t *testing.T) {
	gate := placesOf(t, 3)
	var held, most, ran atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				permit, err := gate.Admit("default", Call{})
				if err != nil {
					continue
				}
				if now := held.Add(1); now > 3 {
					most.Store(now)
				}
				ran.Add(1)
				held.Add(-1)
				if settled, err := permit.Settle(Success); settled != SettledNow || err != nil {
					t.Error(settled, err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() != 0 || ran.Load() == 0 || inFlight(t, gate) != 0 {
		t.Errorf("%d at once, %d ran, %d in flight", most.Load(), ran.Load(), inFlight(t, gate))
	}
}

func TestALowerLimitLetsThoseInFlightEnd(t *testing.T) {
	gate := placesOf(t, 3)
	ds := []*Decision{ask(t, gate, Call{}), ask(t, gate, Call{}), ask(t, gate, Call{})}
	if err := gate.Reconfigure("limit", ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	for n, d := range ds {
		if refused := ask(t, gate, Call{}); refused.Admitted {
			t.Errorf("admitted while %d are in flight", 3-n)
		}
		settle(t, d, Success)
	}
	if d := ask(t, gate, Call{}); !d.Admitted {
		t.Error(d)
	}
}

func TestGoroutinesHammeringOneKeyAdmitExactlyItsBurst(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 1000}, ScopeCaller)
	var count atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			var d Decision
			for range 1000 {
				if err := gate.TryAdmit(&d, "default", &Call{Caller: "alice", At: At(0, 0)}); err != nil {
					t.Error(err)
				}
				if d.Admitted {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	if count.Load() != 1000 {
		t.Errorf("%d of a burst of 1000", count.Load())
	}
}
