package mcp

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"callgate.dev/callgate"
)

// standingClock stands still until a test moves it.
type standingClock struct {
	mutex       sync.Mutex
	now, unixNs uint64
}

func newClock() *standingClock {
	return &standingClock{now: uint64(time.Second), unixNs: uint64(20_000 * 24 * time.Hour / 100 * 100)}
}

func (c *standingClock) instant() callgate.Instant {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return callgate.At(c.now, c.unixNs)
}

func (c *standingClock) advance(by time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now += uint64(by)
	c.unixNs += uint64(by)
}

// hourly gives one call an hour back, so that no test depends on how fast it runs.
func hourly(burst uint64) callgate.Limit {
	return callgate.RateLimit{Count: 1, Per: time.Hour, Burst: burst}
}

func shared(limit string) callgate.Rule {
	return callgate.Rule{Limit: limit, Scope: callgate.ScopeShared}
}

func byCaller(limit string) callgate.Rule {
	return callgate.Rule{Limit: limit, Scope: callgate.ScopeCaller}
}

func byTool(limit string) callgate.Rule {
	return callgate.Rule{Limit: limit, Scope: callgate.ScopeTool}
}

func mustGate(t testing.TB, config callgate.Config) *callgate.Gate {
	t.Helper()
	if config.Capacity == 0 {
		config.Capacity = 1_000
	}
	gate, err := callgate.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// plainGate has a burst of 3 for each caller and for the anonymous, and of 4 for unverified bearers.
func plainGate(t testing.TB) *callgate.Gate {
	t.Helper()
	return mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{"caller": hourly(3), "anonymous": hourly(3), "forwarded": hourly(4)},
		Policies: map[string]callgate.Policy{
			Authenticated:   {byCaller("caller")},
			Anonymous:       {shared("anonymous")},
			ForwardedBearer: {shared("forwarded"), byCaller("caller")},
		},
	})
}

// app is a handler behind the middleware, and what reaches it.
type app struct {
	mutex    sync.Mutex
	bodies   []string
	requests []*http.Request
	answer   http.HandlerFunc
}

func (a *app) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	a.mutex.Lock()
	a.bodies = append(a.bodies, body.String())
	a.requests = append(a.requests, r)
	a.mutex.Unlock()
	if a.answer != nil {
		a.answer(w, r)
		return
	}
	respond(w, http.StatusOK)
}

func (a *app) ran() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return len(a.bodies)
}

func respond(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte("{}"))
}

// metered is an app behind the middleware.
type metered struct {
	*Handler
	t     testing.TB
	app   *app
	clock *standingClock
}

func meter(t testing.TB, gate *callgate.Gate, options Options) *metered {
	t.Helper()
	if gate == nil {
		gate = plainGate(t)
	}
	m := &metered{t: t, app: &app{}, clock: newClock()}
	if options.APIKeys == nil {
		options.APIKeys = NoAPIKeys
	}
	if options.Clock == nil {
		options.Clock = m.clock.instant
	}
	handler, err := Protect(m.app, gate, options)
	if err != nil {
		t.Fatal(err)
	}
	m.Handler = handler
	return m
}

// answered is a response, read to its end.
type answered struct {
	*httptest.ResponseRecorder
	t testing.TB
}

func (a *answered) json() (body struct {
	ID    json.RawMessage
	Error struct {
		Code    int
		Message string
		Data    *RefusalData
	}
}) {
	a.t.Helper()
	if err := json.Unmarshal(a.Body.Bytes(), &body); err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
	return body
}

func (m *metered) send(r *http.Request) *answered {
	m.t.Helper()
	recorder := httptest.NewRecorder()
	m.ServeHTTP(recorder, r)
	return &answered{recorder, m.t}
}

// post sends a body as JSON; header fields are name, value, name, value.
func (m *metered) post(body string, header ...string) *answered {
	m.t.Helper()
	return m.send(postRequest(body, header...))
}

func postRequest(body string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	return r
}

func (m *metered) statuses(bodies ...string) []int {
	m.t.Helper()
	var statuses []int
	for _, body := range bodies {
		statuses = append(statuses, m.post(body).Code)
	}
	return statuses
}

// charged is how many tokens were taken so far from the first limit of a policy.
func (m *metered) charged(policy, caller string) uint64 {
	m.t.Helper()
	return charges(m.t, m.Gate(), m.clock, policy, caller)
}

func charges(t testing.TB, gate *callgate.Gate, clock *standingClock, policy, caller string) uint64 {
	t.Helper()
	reports, err := gate.Peek(policy, callgate.Call{Caller: caller, NoCost: true, At: clock.instant()})
	if err != nil {
		t.Fatal(err)
	}
	return reports[0].Limit - reports[0].Remaining
}

// drain takes all there is.
func (m *metered) drain(policy, caller string) {
	m.t.Helper()
	for {
		var d callgate.Decision
		if err := m.Gate().TryAdmit(&d, policy, &callgate.Call{Caller: caller, At: m.clock.instant()}); err != nil {
			m.t.Fatal(err)
		}
		if !d.Admitted {
			return
		}
	}
}

func (m *metered) live() uint64 {
	m.t.Helper()
	stats, err := m.Gate().Stats(m.clock.instant())
	if err != nil {
		m.t.Fatal(err)
	}
	return stats.Live
}

// settlements notes how permits are settled.
type settlements struct {
	mutex    sync.Mutex
	outcomes []string
	used     []uint64
}

func watchSettlements(m *Meter) *settlements {
	seen := &settlements{}
	settle := m.settleAt
	m.settleAt = func(d *callgate.Decision, outcome callgate.Outcome, used uint64, at callgate.Instant) error {
		seen.mutex.Lock()
		defer seen.mutex.Unlock()
		seen.outcomes = append(seen.outcomes, outcome.String())
		seen.used = append(seen.used, used)
		return settle(d, outcome, used, at)
	}
	return seen
}

func (s *settlements) get() ([]string, []uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string{}, s.outcomes...), append([]uint64{}, s.used...)
}

func call(tool string) string { return callWith(tool, `1`, "") }

func callWith(tool, id, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}` + params + `}}`
}

func batch(calls ...string) string { return "[" + strings.Join(calls, ",") + "]" }

func repeat(n int, text string) []string {
	var all []string
	for range n {
		all = append(all, text)
	}
	return all
}

// logged has slog.Default write to the buffer while the test runs.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &log
}

func warnings(log *bytes.Buffer) int { return strings.Count(log.String(), "level=WARN") }

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}
