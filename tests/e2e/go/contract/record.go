package contract

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// Nobody is the name of callers without a valid token.
const Nobody = "-"

// Record is what ran and what was decided, by the name of the caller, for /stats.
type Record struct {
	mutex  sync.Mutex
	ran    map[string]int
	gateNs map[string][]int64
}

// newRecord is empty.
func newRecord() *Record {
	return &Record{ran: map[string]int{}, gateNs: map[string][]int64{}}
}

// Ran notes that a tool was started.
func (r *Record) Ran(name string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.ran[name]++
}

// Observe notes a decision about a caller; without a name, under its policy.
func (r *Record) Observe(name string, seen mcp.Observation) {
	if name == "" || name == Nobody {
		name = seen.Policy
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.gateNs[name] = append(r.gateNs[name], seen.GateNs)
}

func (s *Server) stats(w http.ResponseWriter, _ *http.Request) {
	decided, err := s.Gate.Stats()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	guards, err := s.Guarded.Gate.Guards("server", s.Guarded.Time.Now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	decisions := [][]any{}
	for counted, count := range decided.Decisions {
		decisions = append(decisions, []any{counted.Policy, orNull(counted.By), orNull(counted.Reason.String()), count})
	}
	s.Record.mutex.Lock()
	defer s.Record.mutex.Unlock()
	answer(w, map[string]any{
		"ran":       maps.Clone(s.Record.ran),
		"gate_ns":   s.Record.gateNs,
		"decisions": decisions,
		"live":      decided.Live,
		"in_flight": guards.InFlight,
		"waiting":   s.Guarded.waitingCount(),
	})
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// newGate is the gate of /mcp and /private/mcp.
func newGate() (*callgate.Gate, error) {
	return callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{
			"caller":    hourly(20),
			"anonymous": hourly(10),
			"forwarded": hourly(5),
		},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated:   {{Limit: "caller", Scope: callgate.ScopeCaller}},
			mcp.Anonymous:       {{Limit: "anonymous", Scope: callgate.ScopeShared}},
			mcp.ForwardedBearer: {{Limit: "forwarded", Scope: callgate.ScopeShared}, {Limit: "caller", Scope: callgate.ScopeCaller}},
		},
		Capacity: 1_000,
	})
}
