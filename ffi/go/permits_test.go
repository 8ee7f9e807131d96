package callgate

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"
)

func TestACallThatRanIsPaidForAndACancelledOneIsGivenBack(t *testing.T) {
	for outcome, wanted := range map[Outcome]uint64{Success: 7, Failure: 7, Abandoned: 7, Cancelled: 10} {
		gate := rateOf(t, 1, 10)
		d := ask(t, gate, Call{Caller: "alice", Cost: 3, At: At(0, 0)})
		if settled := settle(t, d, outcome); settled != SettledNow {
			t.Error(outcome, settled)
		}
		if n := left(t, gate, "alice", At(0, 0)); n != wanted {
			t.Errorf("%v: %d left", outcome, n)
		}
	}
}

func TestACancellationGivesBackNoMoreThanTimeHasLeft(t *testing.T) {
	gate := rateOf(t, 1, 10)
	d := ask(t, gate, Call{Caller: "alice", Cost: 3, At: At(0, 0)})
	ask(t, gate, Call{Caller: "alice", Cost: 7, At: At(0, 0)})
	if settled, err := d.Cancel(At(2*second, 0)); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	if n := left(t, gate, "alice", At(2*second, 0)); n != 3 {
		t.Errorf("%d left: 2 by time and 1 given back", n)
	}
}

func TestASecondSettlementDoesNothingAndSaysSo(t *testing.T) {
	gate := rateOf(t, 1, 10)
	permit, err := gate.Admit("default", Call{Caller: "alice", Cost: 3, At: At(0, 0)})
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := permit.Settle(Success); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	for range 3 {
		if settled, err := permit.Cancel(); settled != AlreadySettled || err != nil {
			t.Error(settled, err)
		}
	}
	if n := left(t, gate, "alice", At(0, 0)); n != 7 {
		t.Errorf("%d left", n)
	}
}

func TestARefusedCallHasNothingToSettle(t *testing.T) {
	gate := rateOf(t, 1, 1)
	ask(t, gate, Call{Caller: "alice"})
	refused := ask(t, gate, Call{Caller: "alice"})
	if settled := settle(t, refused, Cancelled); settled != AlreadySettled {
		t.Error(settled)
	}
	if settled, err := gate.Settle(refused, Success, 5); settled != AlreadySettled || err != nil {
		t.Error(settled, err)
	}
}

func TestOfManyGoroutinesOneSettles(t *testing.T) {
	gate := rateOf(t, 1, 10)
	for range 200 {
		at := At(0, 0)
		d := ask(t, gate, Call{Caller: "alice", Cost: 5, At: at})
		var all sync.WaitGroup
		var mutex sync.Mutex
		now := 0
		for range 8 {
			all.Go(func() {
				d.Used(1)
				if settled, err := d.Cancel(at); err != nil {
					t.Error(err)
				} else if settled == SettledNow {
					mutex.Lock()
					now++
					mutex.Unlock()
				}
			})
		}
		all.Wait()
		if now != 1 || left(t, gate, "alice", at) != 10 {
			t.Fatalf("%d settled, %d left", now, left(t, gate, "alice", at))
		}
	}
}

func TestACallOfAnInstantOfOnesOwnIsSettledThenWhereNoOtherIsGiven(t *testing.T) {
	at := At(second, 0)
	for name, settle := range map[string]func(*Gate, *Decision) (Settled, error){
		"by its decision": func(_ *Gate, d *Decision) (Settled, error) { return d.Settle(Success) },
		"by its gate":     func(g *Gate, d *Decision) (Settled, error) { return g.Settle(d, Success, 0) },
	} {
		gate := gateOf(t, ConcurrencyLimit{MaxInFlight: 1, Lease: time.Millisecond}, ScopeShared)
		if settled, err := settle(gate, ask(t, gate, Call{At: at})); settled != SettledNow || err != nil {
			t.Error(name, settled, err)
		}
		if guards, err := gate.Guards("limit", at); err != nil || guards.InFlight != 0 {
			t.Error(name, guards, err)
		}
	}
}

func TestAPermitOfAnotherGateIsAnErrorAndStaysUnsettled(t *testing.T) {
	gate, another := rateOf(t, 1, 10), rateOf(t, 1, 10)
	d := ask(t, gate, Call{Caller: "alice", Cost: 3, At: At(0, 0)})
	_, err := another.Settle(d, Cancelled, 0, At(0, 0))
	wantCallError(t, err, "permit", "the permit is one of another gate")
	_, err = gate.Settle(nil, Success, 0)
	wantCallError(t, err, "permit", "not nil")
	if settled := settle(t, d, Cancelled); settled != SettledNow {
		t.Error(settled)
	}
}

func TestABadSettlementIsAnErrorAndLeavesThePermitAsItWas(t *testing.T) {
	gate := rateOf(t, 1, 10)
	d := ask(t, gate, Call{Caller: "alice", Cost: 3, At: At(0, 0)})
	refused := ask(t, gate, Call{Caller: "alice", Cost: 10, At: At(0, 0)})
	for _, outcome := range []Outcome{0, 5, 255} {
		_, err := d.Settle(outcome)
		wantCallError(t, err, "outcome", "outcome must be one of Success, Failure, Abandoned, Cancelled, not")
		_, err = refused.Settle(outcome)
		wantCallError(t, err, "outcome", "outcome must be one of")
	}
	_, err := d.Settle(Success, At(1<<61, 0))
	wantCallError(t, err, "now_ns", "below 2^61")
	if settled := settle(t, d, Cancelled); settled != SettledNow || left(t, gate, "alice", At(0, 0)) != 10 {
		t.Error(settled)
	}
}

func TestBySystemsClockACallIsSettledToo(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 10}, ScopeCaller)
	permit, err := gate.Admit("default", Call{Caller: "alice", Cost: 4})
	if err != nil {
		t.Fatal(err)
	}
	if permit.Remaining != 6 || !permit.Admitted {
		t.Error(permit)
	}
	if settled, err := permit.Cancel(); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	if n := left(t, gate, "alice", Instant{}); n != 10 {
		t.Errorf("%d left", n)
	}
}

func inFlight(t testing.TB, g *Gate, at ...Instant) uint64 {
	t.Helper()
	guards, err := g.Guards("limit", at...)
	if err != nil {
		t.Fatal(err)
	}
	return guards.InFlight
}

func placesOf(t testing.TB, places int) *Gate {
	t.Helper()
	return gateOf(t, ConcurrencyLimit{MaxInFlight: places, Lease: time.Hour}, ScopeShared)
}

// eventually waits for what another goroutine is about to do.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never:", what)
		}
	}
}

func TestTheEndOfItsContextGivesAPlaceBack(t *testing.T) {
	gate := placesOf(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	permit, err := gate.AdmitContext(ctx, "default", Call{})
	if err != nil || inFlight(t, gate) != 1 {
		t.Fatal(err)
	}
	cancel()
	eventually(t, "the place is given back", func() bool { return inFlight(t, gate) == 0 })
	if settled, err := permit.Settle(Success); settled != AlreadySettled || err != nil {
		t.Error(settled, err)
	}
}

func TestAnAbandonedCallPaysWhatItReservedOrSaid(t *testing.T) {
	gate := gateOf(t, Quota{Limit: 100, Per: 24 * time.Hour}, ScopeCaller)
	at := At(0, 0)
	for _, wanted := range []uint64{60, 53} {
		ctx, cancel := context.WithCancel(t.Context())
		permit, err := gate.AdmitContext(ctx, "default", Call{Caller: "alice", Reserve: 40, At: at})
		if err != nil {
			t.Fatal(err)
		}
		if wanted == 53 {
			permit.Used(7)
		}
		cancel()
		eventually(t, "it is settled", func() bool { return left(t, gate, "alice", at) == wanted })
	}
}

func TestASettledCallIsLeftAloneByTheEndOfItsContext(t *testing.T) {
	gate := placesOf(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	permit, err := gate.AdmitContext(ctx, "default", Call{})
	if err != nil {
		t.Fatal(err)
	}
	if settled, err := permit.Settle(Success); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	if permit.stop() {
		t.Error("the context still held the permit")
	}
	cancel()
	if n := inFlight(t, gate); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestABadSettlementKeepsTheContextInCharge(t *testing.T) {
	gate := placesOf(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	permit, err := gate.AdmitContext(ctx, "default", Call{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := permit.Settle(0); err == nil {
		t.Error("an outcome of 0 is none")
	}
	cancel()
	eventually(t, "the place is given back", func() bool { return inFlight(t, gate) == 0 })
}

func TestAContextThatIsDoneIsChargedNothing(t *testing.T) {
	gate := placesOf(t, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client is gone")
	cancel(gone)
	if _, err := gate.AdmitContext(ctx, "default", Call{}); !errors.Is(err, gone) {
		t.Error(err)
	}
	_, err := gate.AdmitContext(nilContext, "default", Call{})
	wantCallError(t, err, "ctx", "not nil")
	if n := inFlight(t, gate); n != 0 {
		t.Errorf("%d in flight", n)
	}
	if _, err := gate.AdmitContext(t.Context(), "default", Call{}); err != nil {
		t.Fatal(err)
	}
	var refused *Refused
	if _, err := gate.AdmitContext(t.Context(), "default", Call{}); !errors.As(err, &refused) || refused.Reason() != ReasonConcurrency {
		t.Error(err)
	}
}

var nilContext context.Context

func TestThousandsOfContextsThatEndInTheMiddleLeaveNothingInFlight(t *testing.T) {
	gate := placesOf(t, 16)
	var all sync.WaitGroup
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			permit, err := gate.AdmitContext(ctx, "default", Call{})
			if err == nil && permit.Remaining%2 == 0 {
				_, _ = permit.Settle(Success)
			}
		})
		all.Go(cancel)
	}
	all.Wait()
	eventually(t, "nothing is in flight", func() bool { return inFlight(t, gate) == 0 })
}

func TestADecisionIsUsedAgain(t *testing.T) {
	gate := gateOf(t, Quota{Limit: 100, Per: 24 * time.Hour}, ScopeCaller)
	var d Decision
	for n := range uint64(10) {
		if err := gate.TryAdmit(&d, "default", &Call{Caller: "alice", Reserve: 5, At: At(0, 0)}); err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 {
			d.Used(1)
		}
		settle(t, &d, Success)
	}
	if n := left(t, gate, "alice", At(0, 0)); n != 100-5*1-5*5 {
		t.Errorf("%d left: what one call said is not what the next one used", n)
	}
}

func TestUsedMayBeAnything(t *testing.T) {
	gate := gateOf(t, Quota{Limit: 100, Per: 24 * time.Hour}, ScopeCaller)
	d := ask(t, gate, Call{Caller: "alice", At: At(0, 0)})
	d.Used(math.MaxUint64)
	settle(t, d, Success)
	if refused := ask(t, gate, Call{Caller: "alice", At: At(0, 0)}); refused.Reason != ReasonQuota {
		t.Error(refused)
	}
}
