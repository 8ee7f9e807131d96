package callgate

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestABatchDecidesAsOneCallAfterTheOther(t *testing.T) {
	many, single := rateOf(t, 1, 5), rateOf(t, 1, 5)
	bob, err := many.Key("bob")
	if err != nil {
		t.Fatal(err)
	}
	calls := []Call{
		{Caller: "alice", Cost: 2}, {CallerKey: bob}, {Caller: "alice", Cost: 3}, {Caller: "alice"}, {Caller: "alice", NoCost: true},
		{Caller: "alice", Cost: 6}, {Caller: "carol", Tool: "search", Cost: 5}, {CallerKey: bob, Cost: 4},
	}
	for n := range calls {
		calls[n].At = At(7*second, 0)
	}
	decisions := make([]Decision, len(calls))
	if err := many.TryAdmitMany(decisions, "default", calls); err != nil {
		t.Fatal(err)
	}
	for n, call := range calls {
		if call.CallerKey == bob {
			call.CallerKey, call.Caller = Key{}, "bob"
		}
		one, of := ask(t, single, call), &decisions[n]
		if one.String() != of.String() || one.RetryAfter != of.RetryAfter || one.ResetAfter != of.ResetAfter {
			t.Errorf("%d: %v, %v", n, one, of)
		}
	}
	for n := range decisions {
		if settled := settle(t, &decisions[n], Cancelled); (settled == SettledNow) != decisions[n].Admitted {
			t.Error(n, settled)
		}
	}
	if n := left(t, many, "alice", At(7*second, 0)); n != 5 {
		t.Errorf("%d left", n)
	}
}

func TestABatchOfWhichOneCallCanNotBeDecidedChargesNothing(t *testing.T) {
	gate := rateOf(t, 1, 5)
	at := At(0, 0)
	calls := []Call{{Caller: "alice", At: at}, {At: at}}
	wantCallError(t, gate.TryAdmitMany(make([]Decision, 2), "default", calls), "caller", "caller is missing")
	calls[1] = Call{Caller: "bob", At: At(1, 0)}
	wantCallError(t, gate.TryAdmitMany(make([]Decision, 2), "default", calls), "now_ns", "the same of all calls")
	wantCallError(t, gate.TryAdmitMany(make([]Decision, 1), "default", calls), "decisions", "as many as calls, 2, not 1")
	wantCallError(t, gate.TryAdmitMany(nil, "default", calls), "decisions", "as many as calls, 2, not 0")
	if n := left(t, gate, "alice", at); n != 5 {
		t.Errorf("%d left", n)
	}
	if err := gate.TryAdmitMany(nil, "default", nil); err != nil {
		t.Error(err)
	}
}

func TestBatchesOfEverySizeFromManyGoroutines(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"limit": RateLimit{1, time.Hour, 300}},
		Policies: map[string]Policy{"default": {{"limit", ScopeCaller}}},
	})
	var all sync.WaitGroup
	admitted := make([]int, 8)
	for worker := range admitted {
		all.Go(func() {
			for size := range 100 {
				calls, decisions := make([]Call, size), make([]Decision, size)
				for n := range calls {
					calls[n] = Call{Caller: fmt.Sprint("caller ", n), At: At(0, 0)}
				}
				if err := gate.TryAdmitMany(decisions, "default", calls); err != nil {
					t.Error(err)
				}
				for n := range decisions {
					if decisions[n].Admitted {
						admitted[worker]++
					}
				}
			}
		})
	}
	all.Wait()
	sum, wanted := 0, 0
	for _, count := range admitted {
		sum += count
	}
	for n := range 99 {
		wanted += min(300, 8*(99-n))
	}
	if sum != wanted {
		t.Errorf("%d admitted, wanted %d", sum, wanted)
	}
}
