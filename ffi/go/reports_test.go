package callgate

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
)

func textOf(t testing.TB, g *Gate, at ...Instant) string {
	t.Helper()
	var text bytes.Buffer
	if err := g.Metrics(&text, at...); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestStatsCountDecisionsByPolicyLimitAndReason(t *testing.T) {
	gate := newGate(t, Config{
		Limits: map[string]Limit{"rate": RateLimit{1, time.Hour, 2}, "server": ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour}},
		Policies: map[string]Policy{
			"default": {{"rate", ScopeCaller}, {"rate", ScopeShared}}, "other": {{"server", ScopeShared}},
		},
		Capacity: 16,
	})
	at := At(0, 0)
	decide := func(policy, caller string, cost uint64) {
		if err := gate.TryAdmit(new(Decision), policy, &Call{Caller: caller, Cost: cost, At: at}); err != nil {
			t.Fatal(err)
		}
	}
	for _, caller := range []string{"a", "a", "a", "b", "c"} {
		decide("default", caller, 1)
	}
	decide("default", "d", 3)
	decide("other", "a", 1)
	decide("other", "a", 1)
	stats, err := gate.Stats(at)
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[Counted]uint64{
		{Policy: "default"}: 2, {"default", "rate", ReasonRate}: 3, {"default", "rate", ReasonNever}: 1,
		{Policy: "other"}: 1, {"other", "server", ReasonConcurrency}: 1,
	}
	if !maps.Equal(stats.Decisions, wanted) {
		t.Error(stats.Decisions)
	}
	if stats.Live != 3 || stats.Slots != stats.Live+stats.AtRest+stats.Claimed+stats.Empty || stats.Slots < 16 {
		t.Errorf("%+v", stats)
	}
	later, err := gate.Stats(At(2*3600*second, 0))
	if err != nil || later.Live != 0 || later.AtRest < 3 {
		t.Errorf("%+v, %v", later, err)
	}
	_, err = gate.Stats(At(1<<61, 0))
	wantCallError(t, err, "now_ns", "below 2^61")
}

func TestMetricsAreOpenMetricsTextAndHoldNoIdentity(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"a \"quoted\"\nname": RateLimit{1, time.Hour, 1}, "server": ConcurrencyLimit{MaxInFlight: 2, Lease: time.Hour}},
		Policies: map[string]Policy{"põlicy": {{"a \"quoted\"\nname", ScopeCaller}, {"server", ScopeShared}}},
		Capacity: 16,
	})
	at := At(0, 0)
	for range 3 {
		if err := gate.TryAdmit(new(Decision), "põlicy", &Call{Caller: "secret-caller", Tool: "secret-tool", At: at}); err != nil {
			t.Fatal(err)
		}
	}
	gate.CountInternalError()
	text := textOf(t, gate, at)
	for _, line := range []string{
		"# TYPE callgate_decisions counter\n",
		`callgate_decisions_total{policy="põlicy",limit="",reason="admitted"} 1` + "\n",
		`callgate_decisions_total{policy="põlicy",limit="a \"quoted\"\nname",reason="rate"} 2` + "\n",
		`callgate_in_flight{limit="server"} 1` + "\n",
		`callgate_breaker_open{limit="server"} 0` + "\n",
		`callgate_table_slots{state="live"} 2` + "\n",
		"callgate_internal_errors_total 1\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
	if strings.Contains(text, "secret") || !strings.HasSuffix(text, "\n# EOF\n") || strings.Count(text, "# EOF") != 1 {
		t.Error(text)
	}
	if now := textOf(t, gate); strings.Count(now, "\n") != strings.Count(text, "\n") {
		t.Error("by the system's clock it is the same text:", now)
	}
	wantCallError(t, gate.Metrics(nil), "w", "not nil")
	broken := errors.New("broken")
	if err := gate.Metrics(failing{broken}); !errors.Is(err, broken) {
		t.Error(err)
	}
	wantCallError(t, gate.Metrics(&bytes.Buffer{}, At(1<<61, 0)), "now_ns", "below 2^61")
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestTextOfAnyLengthIsToldWhole(t *testing.T) {
	config := Config{Limits: map[string]Limit{}, Policies: map[string]Policy{}, Capacity: 1}
	for n := range 64 {
		name := fmt.Sprint(n, strings.Repeat("x", 1000))
		config.Limits[name] = ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour}
		config.Policies[name] = Policy{{name, ScopeShared}}
	}
	gate := newGate(t, config)
	text := textOf(t, gate)
	if len(text) < 64*1000*6 || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("%d bytes", len(text))
	}
	for n := range 64 {
		if !strings.Contains(text, fmt.Sprintf(`callgate_in_flight{limit="%d`, n)) {
			t.Errorf("%d is missing", n)
		}
	}
}

func TestAGuardThatIsSwitchedOffIsStillToldOf(t *testing.T) {
	gate := placesOf(t, 1)
	d := ask(t, gate, Call{})
	if err := gate.Reconfigure("limit", Off{}); err != nil {
		t.Fatal(err)
	}
	all, err := gate.AllGuards()
	if err != nil || len(all) != 1 || all["limit"].InFlight != 1 {
		t.Error(all, err)
	}
	settle(t, d, Success)
	if n := inFlight(t, gate); n != 0 {
		t.Errorf("%d in flight", n)
	}
	_, err = gate.Guards("what")
	wantCallError(t, err, "limit", `limit "what" is unknown; this gate has "limit"`)
	_, err = rateOf(t, 1, 1).Guards("limit")
	wantCallError(t, err, "limit", `"limit" is no ConcurrencyLimit; of these this gate has none`)
}
