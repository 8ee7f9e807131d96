package mcp

import (
	"net/http"
	"testing"
	"time"

	"callgate.dev/callgate"
)

func guardedGate(t testing.TB, places int) *callgate.Gate {
	return mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{
			"server": callgate.ConcurrencyLimit{MaxInFlight: places, Lease: time.Hour, RejectTrip: 3, Cooldown: 30 * time.Second}},
		Policies: map[string]callgate.Policy{Authenticated: {shared("server")}, Anonymous: {shared("server")}},
	})
}

func inFlight(t testing.TB, gate *callgate.Gate, clock *standingClock) uint64 {
	t.Helper()
	guards, err := gate.Guards("server", clock.instant())
	if err != nil {
		t.Fatal(err)
	}
	return guards.InFlight
}

func TestAPlaceIsHeldUntilTheResponseHasEndedAndNobodyQueues(t *testing.T) {
	m := meter(t, guardedGate(t, 1), Options{})
	started, goOn := make(chan struct{}), make(chan struct{})
	m.app.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		close(started)
		<-goOn
	}
	ended := make(chan int)
	go func() { ended <- m.post(call("a")).Code }()
	<-started
	busy := m.post(callWith("a", `"x"`, ""))
	equal(t, "status", busy.Code, 503)
	equal(t, "body", busy.Body.String(), `{"jsonrpc":"2.0","id":"x","error":{"code":-31004,"message":`+
		`"The server is busy: it runs 1 tool calls at once, and no more. Try again in a moment.",`+
		`"data":{"reason":"concurrency","limit":"server","retryAfterMs":null}}}`)
	equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(1))
	close(goOn)
	equal(t, "ended", <-ended, 200)
	equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(0))
}

func TestTheBreakerOpensAndClosesAgain(t *testing.T) {
	m := meter(t, guardedGate(t, 1), Options{})
	permit, err := m.Gate().Admit(Anonymous, callgate.Call{At: m.clock.instant()})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for range 4 {
		reasons = append(reasons, m.post(call("a")).json().Error.Data.Reason)
	}
	equal(t, "reasons", reasons, []string{"concurrency", "concurrency", "breaker_open", "breaker_open"})
	if _, err := permit.Settle(callgate.Success); err != nil {
		t.Fatal(err)
	}
	equal(t, "open", m.post(call("a")).Header().Get("Retry-After"), "30")
	m.clock.advance(30 * time.Second)
	equal(t, "closed", m.post(call("a")).Code, 200)
}

func TestABatchTakesOnePlace(t *testing.T) {
	m := meter(t, guardedGate(t, 1), Options{})
	m.app.answer = func(w http.ResponseWriter, _ *http.Request) {
		equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(1))
		respond(w, 200)
	}
	equal(t, "status", m.post(batch(repeat(9, call("a"))...)).Code, 200)
}

func TestEveryWayOutGivesThePlaceBack(t *testing.T) {
	ways := map[string]http.HandlerFunc{
		"return":         func(w http.ResponseWriter, _ *http.Request) { respond(w, 200) },
		"nothing at all": func(http.ResponseWriter, *http.Request) {},
		"error":          func(w http.ResponseWriter, _ *http.Request) { respond(w, 500) },
		"panic":          func(http.ResponseWriter, *http.Request) { panic("broken") },
		"abort":          func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"part of a response": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("part"))
			panic("broken")
		},
	}
	for name, way := range ways {
		m := meter(t, guardedGate(t, 2), Options{})
		m.app.answer = way
		func() {
			defer func() { _ = recover() }()
			m.post(call("a"))
		}()
		equal(t, name, inFlight(t, m.Gate(), m.clock), uint64(0))
		equal(t, name, m.app.ran(), 1)
	}
}
