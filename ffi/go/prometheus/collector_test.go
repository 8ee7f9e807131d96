package prometheus_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"callgate.dev/callgate"
	callgateprometheus "callgate.dev/callgate/prometheus"
)

func newGate(t *testing.T) *callgate.Gate {
	t.Helper()
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{
			"rate":      callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 2},
			"server":    callgate.ConcurrencyLimit{MaxInFlight: 2, Lease: time.Hour},
			"a \"b\"\\": callgate.ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour},
		},
		Policies: map[string]callgate.Policy{
			"default": {{Limit: "rate", Scope: callgate.ScopeCaller}, {Limit: "server", Scope: callgate.ScopeShared}}, "other": {{Limit: "a \"b\"\\", Scope: callgate.ScopeShared}},
		},
		Capacity: 16,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, caller := range []string{"a", "a", "a", "b"} {
		if err := gate.TryAdmit(new(callgate.Decision), "default", &callgate.Call{Caller: caller}); err != nil {
			t.Fatal(err)
		}
	}
	gate.CountInternalError()
	return gate
}

// samples are the lines of a text that tell a number, without those of promhttp itself.
func samples(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "callgate_") {
			found = append(found, strings.TrimSuffix(strings.TrimSpace(line), ".0"))
		}
	}
	slices.Sort(found)
	return found
}

func scrape(t *testing.T, registry *prometheus.Registry, accept string) (int, string) {
	t.Helper()
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	response := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(response, request)
	return response.Code, response.Body.String()
}

// sorted has the labels of each line in the order of their names, as client_golang has them.
func sorted(lines []string) []string {
	for n, line := range lines {
		start, end := strings.Index(line, "{"), strings.LastIndex(line, "}")
		if start < 0 {
			continue
		}
		labels := strings.Split(line[start+1:end], ",")
		slices.Sort(labels)
		lines[n] = line[:start+1] + strings.Join(labels, ",") + line[end:]
	}
	slices.Sort(lines)
	return lines
}

func TestTheCollectorTellsTheSameAsTheText(t *testing.T) {
	gate := newGate(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(callgateprometheus.NewCollector(gate))
	var text bytes.Buffer
	if err := gate.Metrics(&text); err != nil {
		t.Fatal(err)
	}
	wanted := sorted(samples(text.String()))
	for _, accept := range []string{"text/plain", "application/openmetrics-text; version=1.0.0"} {
		code, scraped := scrape(t, registry, accept)
		if found := samples(scraped); code != 200 || !slices.Equal(found, wanted) {
			t.Errorf("%d, scraped:\n%s\ntext:\n%s", code, strings.Join(found, "\n"), strings.Join(wanted, "\n"))
		}
	}
	if len(wanted) < 15 {
		t.Error("too few samples to be true:", wanted)
	}
}

func TestSeveralGatesAreToldApart(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(callgateprometheus.NewCollector(newGate(t), newGate(t)))
	code, scraped := scrape(t, registry, "text/plain")
	for _, line := range []string{`callgate_in_flight{gate="0",limit="server"} 2`, `callgate_internal_errors_total{gate="1"} 1`} {
		if code != 200 || !strings.Contains(scraped, line+"\n") {
			t.Errorf("%d: %s is not in\n%s", code, line, scraped)
		}
	}
}

func TestACollectorIsRegisteredOnce(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(callgateprometheus.NewCollector(newGate(t)))
	if err := registry.Register(callgateprometheus.NewCollector(newGate(t))); err == nil {
		t.Error("two gates without a label to tell them apart")
	}
}

func TestAGateThatIsClosedIsAnErrorOfTheScrape(t *testing.T) {
	gate := newGate(t)
	_ = gate.Close()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(callgateprometheus.NewCollector(gate))
	if code, scraped := scrape(t, registry, "text/plain"); code != 500 || !strings.Contains(scraped, "closed") {
		t.Error(code, scraped)
	}
	var none *callgateprometheus.Collector
	none.Collect(nil)
	none.Describe(nil)
}
