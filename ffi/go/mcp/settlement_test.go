package mcp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"callgate.dev/callgate"
)

// settledAs is how a call is settled that the app answers so.
func settledAs(t *testing.T, answer http.HandlerFunc, isLeaving bool) []string {
	t.Helper()
	m := meter(t, nil, Options{})
	seen := watchSettlements(m.meter)
	ctx, leave := context.WithCancel(t.Context())
	m.app.answer = func(w http.ResponseWriter, r *http.Request) {
		if isLeaving {
			leave()
		}
		answer(w, r)
	}
	func() {
		defer leave()
		defer func() { _ = recover() }()
		m.send(postRequest(call("work")).WithContext(ctx))
	}()
	outcomes, _ := seen.get()
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
	return outcomes
}

func TestACallThatIsAnsweredIsSettledByItsStatus(t *testing.T) {
	for status, outcome := range map[int]string{200: "success", 202: "success", 400: "success", 404: "success",
		500: "failure", 503: "failure"} {
		answer := func(w http.ResponseWriter, _ *http.Request) { respond(w, status) }
		equal(t, outcome, settledAs(t, answer, false), []string{outcome})
	}
	twice := func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200)
		w.WriteHeader(500)
	}
	equal(t, "the first counts", settledAs(t, twice, false), []string{"success"})
	none := func(http.ResponseWriter, *http.Request) {}
	equal(t, "net/http answers 200", settledAs(t, none, false), []string{"success"})
}

func TestAPanicIsAFailureAndGoesOn(t *testing.T) {
	for _, fault := range []any{"broken", http.ErrAbortHandler, errors.New("broken")} {
		m := meter(t, nil, Options{})
		seen := watchSettlements(m.meter)
		m.app.answer = func(http.ResponseWriter, *http.Request) { panic(fault) }
		func() {
			defer func() {
				if found := recover(); found != fault {
					t.Error(found)
				}
			}()
			m.post(call("work"))
		}()
		outcomes, _ := seen.get()
		equal(t, "outcomes", outcomes, []string{"failure"})
		equal(t, "internal errors", m.InternalErrors(), uint64(0))
	}
}

func TestAClientThatLeavesHasAbandonedTheCall(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"and is not answered":  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"and is answered":      func(w http.ResponseWriter, _ *http.Request) { respond(w, 200) },
		"and there is a panic": func(http.ResponseWriter, *http.Request) { panic("nobody is there") },
		"and it is a 500":      func(w http.ResponseWriter, _ *http.Request) { respond(w, 500) },
	} {
		equal(t, name, settledAs(t, answer, true), []string{"abandoned"})
	}
}

func TestWhatCannotBeWrittenForAnotherReasonIsNoClientThatLeft(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("{}")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Error(err)
		}
	}
	equal(t, "outcome", settledOnASocket(t, answer), []string{"success"})
	early := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		respond(w, 500)
	}
	equal(t, "informational", settledOnASocket(t, early), []string{"failure"})
}

func settledOnASocket(t *testing.T, answer http.HandlerFunc) []string {
	t.Helper()
	m := meter(t, nil, Options{})
	seen := watchSettlements(m.meter)
	m.app.answer = answer
	server := serve(t, m)
	response, err := http.Post(server.URL, "application/json", strings.NewReader(call("work")))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	server.Close()
	outcomes, _ := seen.get()
	return outcomes
}

func TestARefusedCallLeavesNothingToSettle(t *testing.T) {
	m := meter(t, nil, Options{})
	seen := watchSettlements(m.meter)
	m.drain(Anonymous, "")
	m.post(call("work"))
	outcomes, _ := seen.get()
	equal(t, "outcomes", outcomes, []string{})
}

// --- when the limiter itself fails -------------------------------------------------------------

func failing(t *testing.T, options Options) *metered {
	t.Helper()
	m := meter(t, nil, options)
	m.meter.tryAdmit = func(context.Context, *callgate.Decision, string, *callgate.Call) error {
		panic(errors.New("user:1001"))
	}
	return m
}

func TestAnInternalErrorAdmitsAndIsCounted(t *testing.T) {
	m := failing(t, Options{})
	for n := range 3 {
		equal(t, "status", m.post(call("work")).Code, 200)
		equal(t, "counted", m.InternalErrors(), uint64(n+1))
		equal(t, "counted at the gate", m.Gate().InternalErrors(), uint64(n+1))
	}
	equal(t, "ran", m.app.ran(), 3)
}

func TestAnInternalErrorRefusesWhereThatIsConfigured(t *testing.T) {
	m := failing(t, Options{MeterOptions: MeterOptions{OnError: OnErrorRefuse}})
	answer := m.post(callWith("work", "9", ""))
	equal(t, "status", answer.Code, 503)
	equal(t, "body", answer.Body.String(), `{"jsonrpc":"2.0","id":9,"error":{"code":-32603,`+
		`"message":"The call limiter failed, and this server refuses calls then."}}`)
	equal(t, "ran", m.app.ran(), 0)
	closed := meter(t, nil, Options{})
	_ = closed.Gate().Close()
	equal(t, "a closed gate", closed.post(call("work")).Code, 200)
	equal(t, "a closed gate", closed.InternalErrors(), uint64(1))
}

func TestAnInternalErrorIsLoggedOnceInAWhileWithoutIdentities(t *testing.T) {
	log := logged(t)
	m := failing(t, Options{})
	for range 5 {
		m.post(call("work"))
	}
	equal(t, "lines", strings.Count(log.String(), "\n"), 1)
	for what, isTold := range map[string]bool{"panic of *errors.errorString at": true, "settlement_test.go:": true, "1001": false} {
		if strings.Contains(log.String(), what) != isTold {
			t.Error(what, log)
		}
	}
}

// usedUp has a quota of which a ledger says that nothing is left.
func usedUp(t *testing.T) (*callgate.Gate, MeterOptions) {
	t.Helper()
	gate := mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{
			"tokens": callgate.Quota{Limit: 10, Per: 24 * time.Hour, MustSeed: true}, "everybody": hourly(9)},
		Policies: map[string]callgate.Policy{Authenticated: {byCaller("tokens")}, Anonymous: {shared("everybody")}},
	})
	load := func(context.Context, string) (uint64, error) { return 10, nil }
	seeder, err := callgate.NewSeeder(gate, "tokens", load, callgate.SeederConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ann := func(context.Context, Source) (Caller, error) { return Caller{Identity: "ann"}, nil }
	return gate, MeterOptions{Seeder: seeder, Caller: ann}
}

func TestAClientThatLeavesBeforeTheDecisionIsNoFailureOfTheLimiterAndIsNotServed(t *testing.T) {
	timedOut := func(ctx context.Context, _ Source) (Caller, error) {
		ctx, end := context.WithTimeout(ctx, 0)
		defer end()
		return Caller{}, ctx.Err()
	}
	gate, seeded := usedUp(t)
	for name, options := range map[string]MeterOptions{"the seeder": seeded, "the function": {Caller: timedOut}} {
		m := meter(t, gate, Options{MeterOptions: options})
		left, leave := context.WithCancel(t.Context())
		leave()
		m.send(postRequest(call("work")).WithContext(left))
		_, refused := m.meter.Begin(left, Source{}, nil, Entry{}, 0)
		equal(t, name+" refused", refused != nil, true)
		equal(t, name+" ran", m.app.ran(), 0)
		equal(t, name+" counted", m.InternalErrors(), uint64(0))
	}
	m := meter(t, nil, Options{MeterOptions: MeterOptions{Caller: timedOut}})
	equal(t, "while the client waits", m.post(call("work")).Code, 200)
	equal(t, "while the client waits", m.InternalErrors(), uint64(1))
}

func TestASettlementThatFailsDoesNotReachTheClient(t *testing.T) {
	m := meter(t, nil, Options{})
	m.meter.settleAt = func(*callgate.Decision, callgate.Outcome, uint64, callgate.Instant) error {
		return errors.New("no")
	}
	equal(t, "status", m.post(call("work")).Code, 200)
	equal(t, "counted", m.InternalErrors(), uint64(1))
}

func TestAnObserverThatFailsChangesNothing(t *testing.T) {
	m := meter(t, nil, Options{MeterOptions: MeterOptions{Observe: func(Observation) { panic("no") }}})
	equal(t, "status", m.post(call("work")).Code, 200)
	equal(t, "counted", m.InternalErrors(), uint64(1))
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
}

func TestEachDecisionIsObservedOnce(t *testing.T) {
	type told struct {
		Policy   string
		Cost     int
		Admitted bool
		Path     string
	}
	var seen []told
	m := meter(t, nil, Options{MeterOptions: MeterOptions{Observe: func(o Observation) {
		if o.GateNs <= 0 {
			t.Error(o.GateNs)
		}
		seen = append(seen, told{o.Policy, o.Cost, o.Decision.Admitted, o.Source.Request.URL.Path})
	}}})
	two := batch(repeat(2, call("work"))...)
	m.statuses(two, two, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	equal(t, "seen", seen, []told{{Anonymous, 2, true, "/mcp"}, {Anonymous, 2, false, "/mcp"}})
}

func TestCallsAdmittedBeforeAnInternalErrorAreTakenBack(t *testing.T) {
	gate := mustGate(t, callgate.Config{
		Limits:   map[string]callgate.Limit{"tool": hourly(5)},
		Policies: map[string]callgate.Policy{Anonymous: {byTool("tool")}, Authenticated: {byTool("tool")}},
	})
	m := meter(t, gate, Options{})
	m.meter.tryAdmit = func(ctx context.Context, d *callgate.Decision, policy string, call *callgate.Call) error {
		if call.Tool == "b" {
			panic("no")
		}
		return m.meter.askGate(ctx, d, policy, call)
	}
	seen := watchSettlements(m.meter)
	equal(t, "status", m.post(batch(call("a"), call("b"))).Code, 200)
	outcomes, _ := seen.get()
	equal(t, "outcomes", outcomes, []string{"cancelled"})
	reports, err := gate.Peek(Anonymous, callgate.Call{Tool: "a", NoCost: true, At: m.clock.instant()})
	if err != nil || reports[0].Remaining != 5 {
		t.Error(reports, err)
	}
}
