package callgate

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones also where the system has none
)

const second = uint64(time.Second)

func newGate(t testing.TB, config Config) *Gate {
	t.Helper()
	gate, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// gateOf is a gate of one limit, "limit", under one policy, "default".
func gateOf(t testing.TB, limit Limit, scope Scope) *Gate {
	t.Helper()
	return newGate(t, Config{
		Limits:   map[string]Limit{"limit": limit},
		Policies: map[string]Policy{"default": {{"limit", scope}}},
		Capacity: 100,
	})
}

func rateOf(t testing.TB, count, burst uint64) *Gate {
	t.Helper()
	return gateOf(t, RateLimit{Count: count, Per: time.Second, Burst: burst}, ScopeCaller)
}

func ask(t testing.TB, g *Gate, call Call) *Decision {
	t.Helper()
	d := new(Decision)
	if err := g.TryAdmit(d, "default", &call); err != nil {
		t.Fatal(err)
	}
	return d
}

// admitted is how many of so many calls are admitted.
func admitted(t testing.TB, g *Gate, attempts int, call Call) int {
	t.Helper()
	count := 0
	for range attempts {
		if ask(t, g, call).Admitted {
			count++
		}
	}
	return count
}

// left is what is left of the caller's state of the first limit of "default".
func left(t testing.TB, g *Gate, caller string, at Instant) uint64 {
	t.Helper()
	reports, err := g.Peek("default", Call{Caller: caller, NoCost: true, At: at})
	if err != nil {
		t.Fatal(err)
	}
	return reports[0].Remaining
}

func settle(t testing.TB, d *Decision, outcome Outcome, at ...Instant) Settled {
	t.Helper()
	settled, err := d.Settle(outcome, at...)
	if err != nil {
		t.Fatal(err)
	}
	return settled
}

func wantConfigError(t testing.TB, err error, field, message string) {
	t.Helper()
	var wrong *ConfigError
	if !errors.As(err, &wrong) {
		t.Errorf("%v is no ConfigError; wanted one of %q", err, field)
		return
	}
	if wrong.Field != field || !strings.Contains(err.Error(), message) {
		t.Errorf("field %q, %q; wanted %q, %q", wrong.Field, err, field, message)
	}
}

func wantCallError(t testing.TB, err error, field, message string) {
	t.Helper()
	var wrong *CallError
	if !errors.As(err, &wrong) {
		t.Errorf("%v is no CallError; wanted one of %q", err, field)
		return
	}
	if wrong.Field != field || !strings.Contains(err.Error(), message) {
		t.Errorf("field %q, %q; wanted %q, %q", wrong.Field, err, field, message)
	}
}
