package callgate

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

func TestAFullBucketAdmitsItsBurstAndThenNamesTheExactWait(t *testing.T) {
	gate := rateOf(t, 10, 20)
	call := Call{Caller: "alice", At: At(5*second, 0)}
	if n := admitted(t, gate, 25, call); n != 20 {
		t.Errorf("%d of a burst of 20", n)
	}
	refused := ask(t, gate, call)
	if refused.Reason != ReasonRate || refused.By != "limit" || refused.RetryAfter != 100*time.Millisecond ||
		refused.Limit != 20 || refused.Remaining != 0 || refused.ResetAfter != 2*time.Second {
		t.Error(refused)
	}
	call.At = At(5*second+100_000_000-1, 0)
	if d := ask(t, gate, call); d.Admitted || d.RetryAfter != 1 {
		t.Error("a nanosecond too early:", d)
	}
	call.At = At(5*second+100_000_000, 0)
	if d := ask(t, gate, call); !d.Admitted || d.Reason != ReasonNone || d.RetryAfter != 0 || d.ResetAfter != 2*time.Second {
		t.Error("at the instant itself:", d)
	}
}

func TestACostIsTakenAtOnceAndNoCostTakesNothing(t *testing.T) {
	gate := rateOf(t, 1, 10)
	at := At(0, 0)
	if d := ask(t, gate, Call{Caller: "alice", Cost: 4, At: at}); d.Remaining != 6 {
		t.Error(d)
	}
	if d := ask(t, gate, Call{Caller: "alice", At: at}); d.Remaining != 5 {
		t.Error("a cost of 0 is 1:", d)
	}
	if d := ask(t, gate, Call{Caller: "alice", NoCost: true, At: at}); !d.Admitted || d.Remaining != 5 {
		t.Error(d)
	}
	if d := ask(t, gate, Call{Caller: "alice", Cost: 6, At: at}); d.Reason != ReasonRate || d.RetryAfter != time.Second {
		t.Error(d)
	}
	for _, cost := range []uint64{11, math.MaxUint64} {
		if d := ask(t, gate, Call{Caller: "alice", Cost: cost, At: at}); d.Reason != ReasonNever || d.RetryAfter != 0 {
			t.Error(cost, d)
		}
	}
	if n := left(t, gate, "alice", at); n != 5 {
		t.Errorf("%d left: a refusal charges nothing", n)
	}
	err := gate.TryAdmit(new(Decision), "default", &Call{Caller: "alice", Cost: 1, NoCost: true})
	wantCallError(t, err, "cost", "NoCost")
}

func TestAllOrNothing(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"a": RateLimit{1, time.Hour, 10}, "b": RateLimit{1, time.Hour, 2}},
		Policies: map[string]Policy{"default": {{"a", ScopeCaller}, {"b", ScopeShared}}},
	})
	at := At(0, 0)
	if d := ask(t, gate, Call{Caller: "alice", At: at}); d.By != "b" || d.Remaining != 1 {
		t.Error("the figures are those of the limit that has the least left:", d)
	}
	if d := ask(t, gate, Call{Caller: "bob", Cost: 2, At: at}); d.Admitted || d.By != "b" {
		t.Error(d)
	}
	reports, err := gate.Peek("default", Call{Caller: "bob", Cost: 2, At: at})
	if err != nil || len(reports) != 2 {
		t.Fatal(reports, err)
	}
	wanted := []Report{
		{LimitName: "a", Limit: 10, Remaining: 8, ResetAfter: 2 * time.Hour},
		{LimitName: "b", Reason: ReasonRate, RetryAfter: time.Hour, Limit: 2, Remaining: 1, ResetAfter: time.Hour},
	}
	if !slices.Equal(reports, wanted) {
		t.Errorf("%+v", reports)
	}
	if n := left(t, gate, "bob", at); n != 10 {
		t.Errorf("%d left of a: what the second limit refuses charges the first nothing", n)
	}
}

func TestALimitThatIsOffAdmitsEverything(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"off": Off{}, "on": RateLimit{1, time.Hour, 1}},
		Policies: map[string]Policy{"default": {{"off", ScopeShared}}, "both": {{"off", ScopeCaller}, {"on", ScopeCaller}}},
	})
	if d := ask(t, gate, Call{Cost: math.MaxUint64, Reserve: math.MaxUint64}); !d.Admitted || d.By != "" || d.Limit != math.MaxUint64 || d.Remaining != math.MaxUint64 {
		t.Error(d)
	}
	var d Decision
	for _, wanted := range []bool{true, false} {
		if err := gate.TryAdmit(&d, "both", &Call{Caller: "alice"}); err != nil || d.Admitted != wanted || d.By != "on" {
			t.Error(&d, err)
		}
	}
	reports, err := gate.Peek("default", Call{})
	if err != nil || reports[0].LimitName != "off" || reports[0].Limit != math.MaxUint64 {
		t.Error(reports, err)
	}
}

func TestWhereThereIsNoPlaceANewCallerIsRefusedAndItsWaitIsTrue(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"limit": RateLimit{1, time.Second, 1}},
		Policies: map[string]Policy{"default": {{"limit", ScopeCaller}}},
		Capacity: 50,
	})
	at, refused := At(0, 0), (*Decision)(nil)
	for n := range 50 {
		if !ask(t, gate, Call{Caller: fmt.Sprint(n), At: at}).Admitted {
			t.Fatalf("caller %d of a capacity of 50 is refused", n)
		}
	}
	caller := ""
	for n := 50; n < 1000 && refused == nil; n++ {
		caller = fmt.Sprint(n)
		if d := ask(t, gate, Call{Caller: caller, At: at}); !d.Admitted {
			refused = d
		}
	}
	if refused == nil || refused.Reason != ReasonTableFull || refused.By != "limit" || refused.RetryAfter != time.Second {
		t.Fatal(refused)
	}
	if d := ask(t, gate, Call{Caller: caller, At: At(second-1, 0)}); d.Reason != ReasonTableFull || d.RetryAfter != 1 {
		t.Error(d)
	}
	if d := ask(t, gate, Call{Caller: caller, At: At(second, 0)}); !d.Admitted {
		t.Error(d)
	}
}

func TestWithoutATimeTheSystemsClockDecides(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 1}, ScopeCaller)
	if !ask(t, gate, Call{Caller: "alice"}).Admitted {
		t.Error("the first is admitted")
	}
	d := ask(t, gate, Call{Caller: "alice"})
	if d.Admitted || d.RetryAfter <= 50*time.Minute || d.RetryAfter > time.Hour {
		t.Error(d)
	}
	fast := gateOf(t, RateLimit{1, time.Nanosecond, 1}, ScopeCaller)
	if n := admitted(t, fast, 100, Call{Caller: "alice"}); n < 90 {
		t.Errorf("%d of 100: time goes on", n)
	}
}
