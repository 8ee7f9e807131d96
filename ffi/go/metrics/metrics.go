// Package metrics serves the metrics of gates over HTTP, as OpenMetrics text.
//
//	http.Handle("GET /metrics", metrics.Handler(gate))
//
// Package prometheus hands the same to client_golang. No label ever holds an identity: labels are the
// names of policies and limits, reasons, and states of the table.
package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"callgate.dev/callgate"
)

// ContentType is that of OpenMetrics text.
const ContentType = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// Kind is "counter" or "gauge".
type Kind string

// The kinds of metrics.
const (
	Counter Kind = "counter"
	Gauge   Kind = "gauge"
)

// Family is one metric: its name (a counter's without "_total"), and its samples.
type Family struct {
	Name    string
	Kind    Kind
	Help    string
	Labels  []string // the names of the labels that every sample has
	Samples []Sample
}

// Sample is one number of a metric, and the values of its labels.
type Sample struct {
	Values []string
	Value  uint64
}

// Families is the metrics of the gates, those that Gate.Metrics writes, in its order. Where there are
// several gates, the label "gate" is their place. Where one of them fails, as where it is closed, there
// are no samples of it.
func Families(gates ...*callgate.Gate) ([]Family, error) {
	families := []Family{
		{Name: "callgate_decisions", Kind: Counter, Help: "Calls decided, by policy, limit and reason.", Labels: []string{"policy", "limit", "reason"}},
		{Name: "callgate_in_flight", Kind: Gauge, Help: "Calls that hold a place.", Labels: []string{"limit"}},
		{Name: "callgate_breaker_open", Kind: Gauge, Help: "Breakers that are open.", Labels: []string{"limit"}},
		{Name: "callgate_breaker_half_open", Kind: Gauge, Help: "Breakers that are half-open.", Labels: []string{"limit"}},
		{Name: "callgate_breaker_trips", Kind: Counter, Help: "How often a breaker opened.", Labels: []string{"limit"}},
		{Name: "callgate_permits_lapsed", Kind: Counter, Help: "Permits settled after their lease.", Labels: []string{"limit"}},
		{Name: "callgate_table_slots", Kind: Gauge, Help: "Slots of the table, by what they hold.", Labels: []string{"state"}},
		{Name: "callgate_internal_errors", Kind: Counter, Help: "Failures of the limiter itself."},
	}
	for n := range families {
		if len(gates) > 1 {
			families[n].Labels = append([]string{"gate"}, families[n].Labels...)
		}
	}
	for place, gate := range gates {
		var common []string
		if len(gates) > 1 {
			common = []string{strconv.Itoa(place)}
		}
		if err := addGate(families, gate, common); err != nil {
			return families, err
		}
	}
	return families, nil
}

func addGate(families []Family, gate *callgate.Gate, common []string) error {
	stats, err := gate.Stats()
	if err != nil {
		return err
	}
	guards, err := gate.AllGuards()
	if err != nil {
		return err
	}
	add := func(family int, value uint64, values ...string) {
		of := &families[family]
		of.Samples = append(of.Samples, Sample{Values: slices.Concat(common, values), Value: value})
	}
	for counted, value := range ordered(gate, stats.Decisions) {
		reason := counted.Reason.String()
		if counted.Reason == callgate.ReasonNone {
			reason = "admitted"
		}
		add(0, value, counted.Policy, counted.By, reason)
	}
	for _, limit := range slices.Sorted(maps.Keys(guards)) {
		g := guards[limit]
		for n, value := range []uint64{g.InFlight, g.Open, g.HalfOpen, g.Trips, g.Lapsed} {
			add(1+n, value, limit)
		}
	}
	add(6, stats.Live, "live")
	add(6, stats.AtRest, "at_rest")
	add(6, stats.Claimed, "claimed")
	add(6, stats.Empty, "empty")
	add(7, gate.InternalErrors())
	return nil
}

// ordered goes through decisions by policy: the admitted, then the refused in the order of its rules.
func ordered(gate *callgate.Gate, decisions map[callgate.Counted]uint64) func(func(callgate.Counted, uint64) bool) {
	policies := gate.Policies()
	rank := func(c callgate.Counted) int {
		return slices.IndexFunc(policies[c.Policy], func(rule callgate.Rule) bool { return rule.Limit == c.By })
	}
	keys := slices.SortedFunc(maps.Keys(decisions), func(a, b callgate.Counted) int {
		if a.Policy != b.Policy {
			return strings.Compare(a.Policy, b.Policy)
		}
		if rank(a) != rank(b) {
			return rank(a) - rank(b)
		}
		return int(a.Reason) - int(b.Reason)
	})
	return func(yield func(callgate.Counted, uint64) bool) {
		for _, key := range keys {
			if !yield(key, decisions[key]) {
				return
			}
		}
	}
}

// Text is the metrics as OpenMetrics text.
func Text(families []Family) string {
	var text strings.Builder
	for _, family := range families {
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", family.Name, family.Help, family.Name, family.Kind)
		suffix := ""
		if family.Kind == Counter {
			suffix = "_total"
		}
		for _, sample := range family.Samples {
			fmt.Fprintf(&text, "%s%s%s %d\n", family.Name, suffix, labels(family.Labels, sample.Values), sample.Value)
		}
	}
	text.WriteString("# EOF\n")
	return text.String()
}

var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labels(names, values []string) string {
	if len(names) == 0 {
		return ""
	}
	pairs := make([]string, len(names))
	for n, name := range names {
		pairs[n] = fmt.Sprintf(`%s="%s"`, name, escapes.Replace(values[n]))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Handler serves the metrics of the gates on GET and HEAD; other methods get 405. A gate that is closed
// makes it 503.
func Handler(gates ...*callgate.Gate) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		text, err := textOf(gates)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", ContentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(text)
		}
	})
}

func textOf(gates []*callgate.Gate) ([]byte, error) {
	if len(gates) == 1 {
		var text bytes.Buffer
		err := gates[0].Metrics(&text)
		return text.Bytes(), err
	}
	families, err := Families(gates...)
	if err != nil {
		return nil, err
	}
	return []byte(Text(families)), nil
}
