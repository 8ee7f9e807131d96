package callgate

import (
	"testing"
	"time"
)

// every kind of limit, a zone among them.
func fullGate(t testing.TB) *Gate {
	t.Helper()
	return newGate(t, Config{
		Limits: map[string]Limit{
			"rate":   RateLimit{1000, time.Second, 1000},
			"server": ConcurrencyLimit{MaxInFlight: 4095, Lease: time.Hour, RejectTrip: 3, Cooldown: time.Second},
			"tokens": Quota{Limit: 1 << 40, Location: zoneOf(t, "Europe/Berlin")},
			"off":    Off{},
		},
		Policies: map[string]Policy{
			"default": {{"rate", ScopeCaller}, {"off", ScopeShared}, {"tokens", ScopeCallerTool}, {"server", ScopeShared}},
			"rate":    {{"rate", ScopeCaller}},
		},
	})
}

func TestDecidingAndSettlingAllocateNothing(t *testing.T) {
	gate := fullGate(t)
	caller, _ := gate.Key("alice")
	tool, _ := gate.ToolKey("search")
	var d Decision
	calls, decisions := make([]Call, 64), make([]Decision, 64)
	for n := range calls {
		calls[n] = Call{Caller: "user:1001", Tool: "search"}
	}
	byKey, byName := Call{CallerKey: caller, ToolKey: tool, Reserve: 5}, Call{Caller: "user:1001", Tool: "search"}
	atOurs := Call{Caller: "user:1001", Tool: "search", At: At(5, 5)}
	greedy := Call{CallerKey: caller, ToolKey: tool, Cost: 1001}
	for name, run := range map[string]func() error{
		"prepared keys": func() error { return gate.TryAdmit(&d, "default", &byKey) },
		"names":         func() error { return gate.TryAdmit(&d, "default", &byName) },
		"a time":        func() error { return gate.TryAdmit(&d, "default", &atOurs) },
		"a refusal":     func() error { return gate.TryAdmit(&d, "rate", &greedy) },
		"settled": func() error {
			err := gate.TryAdmit(&d, "default", &byKey)
			d.Used(3)
			_, _ = d.Settle(Success)
			return err
		},
		"cancelled at a time": func() error {
			err := gate.TryAdmit(&d, "default", &atOurs)
			_, _ = d.Cancel(At(6, 6))
			return err
		},
		"a batch": func() error { return gate.TryAdmitMany(decisions, "default", calls) },
		"a key":   func() error { _, err := gate.Key("user:1001"); return err },
	} {
		if allocations := testing.AllocsPerRun(1000, func() {
			if err := run(); err != nil {
				t.Fatal(err)
			}
		}); allocations != 0 {
			t.Errorf("%s: %v allocations", name, allocations)
		}
	}
}
