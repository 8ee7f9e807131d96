package callgate

import (
	"testing"
	"time"
)

func change(t testing.TB, g *Gate, to Limit) {
	t.Helper()
	if err := g.Reconfigure("limit", to, At(0, 0)); err != nil {
		t.Fatal(err)
	}
}

func TestALowerLimitKeepsTheDebt(t *testing.T) {
	gate := rateOf(t, 1, 10)
	admitted(t, gate, 10, Call{Caller: "alice", At: At(0, 0)})
	change(t, gate, RateLimit{1, time.Second, 2})
	if n := admitted(t, gate, 5, Call{Caller: "alice", At: At(0, 0)}); n != 0 {
		t.Errorf("%d admitted", n)
	}
	if d := ask(t, gate, Call{Caller: "alice", At: At(second, 0)}); !d.Admitted {
		t.Error(d)
	}
	if found := gate.Limits()["limit"]; found != (RateLimit{1, time.Second, 2}) {
		t.Error(found)
	}
}

func TestAHigherLimitHandsOutNoBurst(t *testing.T) {
	gate := rateOf(t, 1, 10)
	admitted(t, gate, 10, Call{Caller: "alice", At: At(0, 0)})
	change(t, gate, RateLimit{1000, time.Second, 1000})
	if n := left(t, gate, "alice", At(0, 0)); n > 990 {
		t.Errorf("%d left", n)
	}
	if n := left(t, gate, "newcomer", At(0, 0)); n != 1000 {
		t.Errorf("%d left", n)
	}
}

func TestADebtDeeperThanTheNewLimitCanExpressBecomesAnEmptyBucket(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 10}, ScopeCaller)
	admitted(t, gate, 10, Call{Caller: "alice", At: At(0, 0)})
	change(t, gate, RateLimit{1, time.Second, 10})
	if d := ask(t, gate, Call{Caller: "alice", At: At(0, 0)}); d.RetryAfter != time.Second {
		t.Error(d)
	}
}

func TestALimitThatIsSwitchedOffAndOnAgainKeepsTheDebt(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 10}, ScopeCaller)
	call := Call{Caller: "alice", At: At(0, 0)}
	admitted(t, gate, 10, call)
	change(t, gate, Off{})
	if n := admitted(t, gate, 100, call); n != 100 {
		t.Errorf("%d admitted", n)
	}
	change(t, gate, RateLimit{1, time.Hour, 10})
	if n := admitted(t, gate, 5, call); n != 0 {
		t.Errorf("%d admitted", n)
	}
}

func TestAChargeFromBeforeTheChangeIsNotGivenBack(t *testing.T) {
	gate := rateOf(t, 1, 10)
	d := ask(t, gate, Call{Caller: "alice", Cost: 5, At: At(0, 0)})
	change(t, gate, RateLimit{1, time.Second, 10})
	if settled := settle(t, d, Cancelled); settled != SettledNow {
		t.Error(settled)
	}
	if n := left(t, gate, "alice", At(0, 0)); n != 5 {
		t.Errorf("%d left", n)
	}
}

func TestAChangeThatFailsChangesNothing(t *testing.T) {
	gate := gateOf(t, ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour}, ScopeShared)
	before := gate.Limits()["limit"]
	for _, bad := range []struct {
		to             Limit
		field, message string
	}{
		{ConcurrencyLimit{MaxInFlight: 0, Lease: time.Hour}, "max_in_flight", `limit "limit": max_in_flight must be 1 to 4095`},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: 2 * time.Hour}, "lease_ns", "what it was"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: -1}, "lease_ns", "above zero"},
		{RateLimit{1, time.Second, 1}, "kind", "kind must stay what it is, ConcurrencyLimit, or be Off; not RateLimit"},
		{Quota{Limit: 1, Per: time.Hour}, "kind", "not Quota"},
		{nil, "kind", "not <nil>"},
		{&ConcurrencyLimit{}, "kind", "not a pointer"},
	} {
		wantConfigError(t, gate.Reconfigure("limit", bad.to), bad.field, bad.message)
	}
	wantCallError(t, gate.Reconfigure("what", Off{}), "name", `limit "what" is unknown; this gate has "limit"`)
	wantCallError(t, gate.Reconfigure("limit", before, At(1<<61, 0)), "now_ns", "below 2^61")
	if found := gate.Limits()["limit"]; found != before {
		t.Error(found)
	}
	if err := gate.Reconfigure("limit", Off{}); err != nil {
		t.Error(err)
	}
	wantConfigError(t, gate.Reconfigure("limit", Quota{Limit: 1, Per: time.Hour}), "kind", "must stay what it is")
}

func TestALimitThatWasNeverOnMayBecomeAny(t *testing.T) {
	for _, to := range []Limit{RateLimit{1, time.Second, 1}, ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour}, Quota{Limit: 1, Per: time.Hour}} {
		gate := gateOf(t, Off{}, ScopeShared)
		change(t, gate, to)
		if d := ask(t, gate, Call{At: At(0, 0)}); d.Limit != 1 || gate.Limits()["limit"] != to {
			t.Error(to, d)
		}
	}
}

func TestBySystemsClockAChangeKeepsTheDebtToo(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 10}, ScopeCaller)
	ask(t, gate, Call{Caller: "alice", Cost: 10})
	if err := gate.Reconfigure("limit", RateLimit{1, time.Hour, 20}); err != nil {
		t.Fatal(err)
	}
	if n := left(t, gate, "alice", Instant{}); n != 10 {
		t.Errorf("%d left", n)
	}
}
