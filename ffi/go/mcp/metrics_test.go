package mcp

import (
	"net/http/httptest"
	"strings"
	"testing"

	"callgate.dev/callgate/metrics"
)

func TestMetricsTellWhatWasDecidedAndNeverWhoCalled(t *testing.T) {
	keys, err := NewAPIKeys(map[string]string{"k-1": "somebody-by-name"})
	if err != nil {
		t.Fatal(err)
	}
	m := meter(t, nil, Options{APIKeys: keys, MeterOptions: MeterOptions{Observe: func(Observation) { panic("no") }}})
	for range 4 {
		m.post(call("a-tool"), "X-API-Key", "k-1")
	}
	w := httptest.NewRecorder()
	metrics.Handler(m.Gate()).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`callgate_decisions_total{policy="authenticated",limit="",reason="admitted"} 3`,
		`callgate_decisions_total{policy="authenticated",limit="caller",reason="rate"} 1`,
		`callgate_internal_errors_total 4`,
	} {
		if !strings.Contains(w.Body.String(), line) {
			t.Errorf("%s is not in %s", line, w.Body)
		}
	}
	for _, secret := range []string{"somebody-by-name", "a-tool", "k-1"} {
		if strings.Contains(w.Body.String(), secret) {
			t.Error(secret)
		}
	}
}
