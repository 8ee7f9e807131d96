package metrics_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"callgate.dev/callgate"
	"callgate.dev/callgate/metrics"
)

func newGate(t *testing.T) *callgate.Gate {
	t.Helper()
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{
			"rate":          callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 2},
			"server":        callgate.ConcurrencyLimit{MaxInFlight: 2, Lease: time.Hour, RejectTrip: 2, Cooldown: time.Hour},
			"a \"b\"\\\nc":  callgate.ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour},
			"never touched": callgate.Quota{Limit: 1, Per: time.Hour},
		},
		Policies: map[string]callgate.Policy{
			"default": {{Limit: "server", Scope: callgate.ScopeShared}, {Limit: "rate", Scope: callgate.ScopeCaller}},
			"other":   {{Limit: "a \"b\"\\\nc", Scope: callgate.ScopeShared}, {Limit: "never touched", Scope: callgate.ScopeCaller}},
		},
		Capacity: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range [][2]string{{"default", "a"}, {"default", "a"}, {"default", "b"}, {"default", "b"}, {"other", "a"}, {"other", "b"}} {
		if err := gate.TryAdmit(new(callgate.Decision), each[0], &callgate.Call{Caller: each[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := gate.TryAdmit(new(callgate.Decision), "default", &callgate.Call{Caller: "a", Cost: 3}); err != nil {
		t.Fatal(err)
	}
	gate.CountInternalError()
	return gate
}

func textOf(t *testing.T, gate *callgate.Gate) string {
	t.Helper()
	var text bytes.Buffer
	if err := gate.Metrics(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestFamiliesAreWhatTheGateWrites(t *testing.T) {
	gate := newGate(t)
	families, err := metrics.Families(gate)
	if err != nil {
		t.Fatal(err)
	}
	if built, text := metrics.Text(families), textOf(t, gate); built != text {
		t.Errorf("built:\n%s\nwritten:\n%s", built, text)
	}
}

func get(handler http.Handler, method string) *httptest.ResponseRecorder {
	response := httptest.NewRecorder()
	handler.ServeHTTP(response, httptest.NewRequest(method, "/metrics", nil))
	return response
}

func TestTheHandlerServesTheText(t *testing.T) {
	gate := newGate(t)
	handler := metrics.Handler(gate)
	response := get(handler, "GET")
	if response.Code != 200 || response.Header().Get("Content-Type") != metrics.ContentType || response.Body.String() != textOf(t, gate) {
		t.Error(response)
	}
	if head := get(handler, "HEAD"); head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") == "0" {
		t.Error(head)
	}
	if post := get(handler, "POST"); post.Code != 405 || post.Header().Get("Allow") != "GET, HEAD" {
		t.Error(post)
	}
	_ = gate.Close()
	if closed := get(handler, "GET"); closed.Code != 503 || !strings.Contains(closed.Body.String(), "closed") {
		t.Error(closed)
	}
	if none := get(metrics.Handler(nil), "GET"); none.Code != 503 {
		t.Error(none)
	}
}

func TestSeveralGatesAreToldApart(t *testing.T) {
	first, second := newGate(t), newGate(t)
	second.CountInternalError()
	text := get(metrics.Handler(first, second), "GET").Body.String()
	for _, line := range []string{
		`callgate_decisions_total{gate="0",policy="default",limit="",reason="admitted"} 2`,
		`callgate_in_flight{gate="1",limit="server"} 2`,
		`callgate_internal_errors_total{gate="0"} 1`,
		`callgate_internal_errors_total{gate="1"} 2`,
		`callgate_table_slots{gate="1",state="claimed"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is not in\n%s", line, text)
		}
	}
	_ = second.Close()
	if closed := get(metrics.Handler(first, second), "GET"); closed.Code != 503 {
		t.Error(closed)
	}
}
