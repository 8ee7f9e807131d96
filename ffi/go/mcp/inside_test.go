package mcp

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"callgate.dev/callgate"
)

// inside is a meter around the handlers of a server that is behind m.
func (m *metered) inside() *Meter {
	m.t.Helper()
	inner, err := NewMeter(m.Gate(), MeterOptions{Clock: m.clock.instant})
	if err != nil {
		m.t.Fatal(err)
	}
	inner.ExpectHandlers()
	return inner
}

// begin starts a call inside, as a middleware of an SDK's does that knows the header alone, or the
// context alone.
func begin(t testing.TB, inner *Meter, ctx context.Context, header http.Header) *Running {
	t.Helper()
	running, refused := inner.Begin(ctx, Source{Header: header}, nil, Entry{Tool: "a"}, 0)
	if refused != nil {
		t.Fatal(refused)
	}
	return running
}

func TestAHandlerThatOutlivesItsClientKeepsThePlaceUntilItEnds(t *testing.T) {
	m := meter(t, guardedGate(t, 3), Options{})
	inner := m.inside()
	seen := watchSettlements(m.meter)
	var running *Running
	m.app.answer = func(w http.ResponseWriter, r *http.Request) {
		running = begin(t, inner, t.Context(), r.Header)
		respond(w, 200)
	}
	m.post(call("a"))
	equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(1))
	ReportUsage(running.Context(), 5)
	running.Settle(callgate.Failure)
	running.Settle(callgate.Success)
	equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(0))
	outcomes, used := seen.get()
	equal(t, "the worst counts, once", outcomes, []string{"failure"})
	equal(t, "used", used, []uint64{5})
}

func TestAHandlerThatComesAfterTheEndOfItsChargeIsDecidedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, guardedGate(t, 1), Options{})
		inner := m.inside()
		seen := watchSettlements(inner)
		var header http.Header
		ctx, leave := context.WithCancel(t.Context())
		m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
			header = r.Header
			leave()
		}
		m.send(postRequest(batch(call("a"), call("b"))).WithContext(ctx))
		equal(t, "its client has left", inFlight(t, m.Gate(), m.clock), uint64(0))
		running := begin(t, inner, t.Context(), header)
		equal(t, "while it runs", inFlight(t, m.Gate(), m.clock), uint64(1))
		equal(t, "reported", ReportUsage(running.Context(), 5), true)
		if _, refused := inner.Begin(t.Context(), Source{Header: header}, nil, Entry{}, 0); refused == nil {
			t.Error("there is one place, and two run")
		}
		running.Settle(callgate.Success)
		equal(t, "afterwards", inFlight(t, m.Gate(), m.clock), uint64(0))
		outcomes, used := seen.get()
		equal(t, "outcomes", outcomes, []string{"success"})
		equal(t, "used", used, []uint64{5})
		time.Sleep(2 * handOverTime)
	})
}

func TestAPlaceIsHeldUntilAllWhoRunTheCallHaveEndedAndTheWorstCounts(t *testing.T) {
	m := meter(t, guardedGate(t, 3), Options{})
	inner := m.inside()
	seen := watchSettlements(m.meter)
	m.app.answer = func(w http.ResponseWriter, r *http.Request) {
		running := begin(t, inner, r.Context(), r.Header)
		running.Settle(callgate.Failure)
		running.Settle(callgate.Success)
		equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(1))
		respond(w, 200)
	}
	m.post(call("a"))
	equal(t, "in flight", inFlight(t, m.Gate(), m.clock), uint64(0))
	outcomes, _ := seen.get()
	equal(t, "outcomes", outcomes, []string{"failure"})
}

func TestAReceiptIsGoodForTheCallsThatWerePaidAndNoMore(t *testing.T) {
	m := meter(t, nil, Options{})
	inner := m.inside()
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
		for range 3 {
			begin(t, inner, r.Context(), nil).Settle(callgate.Success)
		}
		if _, refused := inner.Begin(r.Context(), Source{}, nil, Entry{}, 0); refused == nil {
			t.Error("a fourth call is let through")
		}
	}
	m.post(batch(call("a"), call("b")))
	equal(t, "charged", m.charged(Anonymous, ""), uint64(3))
}

func TestARequestIsKnownByItsHeaderAndAContextIsThatOfAnother(t *testing.T) {
	m := meter(t, nil, Options{MeterOptions: MeterOptions{}, Verified: func(r *http.Request) *Caller {
		return &Caller{Identity: r.Header.Get("User")}
	}})
	inner := m.inside()
	var opener context.Context
	var names []string
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
		if opener == nil {
			opener = r.Context() // of the session, in which the official SDK runs everything
		}
		running := begin(t, inner, opener, r.Header)
		caller, _ := CallerOf(running.Context())
		names = append(names, caller.Identity)
		running.Settle(callgate.Success)
	}
	for _, user := range []string{"ann", "ann", "ann", "ben"} {
		m.post(call("a"), "User", user)
	}
	equal(t, "names", names, []string{"ann", "ann", "ann", "ben"})
	equal(t, "ann", m.charged(Authenticated, "ann"), uint64(3))
	equal(t, "ben", m.charged(Authenticated, "ben"), uint64(1))
}

func TestNobodyPaysWithANoteThatIsMadeUpOrOver(t *testing.T) {
	m := meter(t, nil, Options{})
	inner := m.inside()
	var old http.Header
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
		old = r.Header.Clone()
		begin(t, inner, r.Context(), r.Header).Settle(callgate.Success)
	}
	m.post(call("a"), noteHeader, "made-up")
	if got := old.Get(noteHeader); got == "" || got == "made-up" {
		t.Error(got)
	}
	for _, header := range []http.Header{old, {noteHeader: {"made-up"}}, {}} {
		begin(t, inner, t.Context(), header).Settle(callgate.Success)
		m.clock.advance(time.Hour)
	}
	equal(t, "left behind", leftBehind(), 0)
	m.drain(Anonymous, "")
	running, refused := inner.Begin(t.Context(), Source{Header: old}, nil, Entry{}, 0)
	if refused == nil {
		t.Error("let through")
	}
	running.Settle(callgate.Success)
}

func TestAToolReportsToEveryGateThatItsCallHasPassed(t *testing.T) {
	m := meter(t, nil, Options{})
	other, err := NewMeter(plainGate(t), MeterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	outside, inside := watchSettlements(m.meter), watchSettlements(other)
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
		running := begin(t, other, t.Context(), r.Header)
		ReportUsage(running.Context(), 5)
		running.Settle(callgate.Success)
	}
	m.post(call("a"))
	for _, seen := range []*settlements{outside, inside} {
		_, used := seen.get()
		equal(t, "used", used, []uint64{5})
	}
}

func TestACallDoesNotPayWithTheReceiptOfAnotherRequest(t *testing.T) {
	m := meter(t, nil, Options{})
	var opener context.Context
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) { opener = r.Context() }
	m.post(call("a"))
	begin(t, m.inside(), opener, http.Header{}).Settle(callgate.Success)
	equal(t, "charged", m.charged(Anonymous, ""), uint64(2))
}

func leftBehind() (count int) {
	notes.Range(func(_, _ any) bool { count++; return true })
	return count
}

func TestAnAnswerOf202WaitsForItsHandler(t *testing.T) {
	accept := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, guardedGate(t, 3), Options{})
		inner := m.inside()
		var header http.Header
		m.app.answer = func(w http.ResponseWriter, r *http.Request) {
			header = r.Header
			accept(w, r)
		}
		m.post(call("a"))
		equal(t, "until it comes", inFlight(t, m.Gate(), m.clock), uint64(1))
		running := begin(t, inner, t.Context(), header)
		time.Sleep(2 * handOverTime)
		equal(t, "while it runs", inFlight(t, m.Gate(), m.clock), uint64(1))
		running.Settle(callgate.Success)
		equal(t, "afterwards", inFlight(t, m.Gate(), m.clock), uint64(0))
		m.post(call("a"))
		time.Sleep(handOverTime - time.Nanosecond)
		equal(t, "for one that never comes", inFlight(t, m.Gate(), m.clock), uint64(1))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		equal(t, "not for long", inFlight(t, m.Gate(), m.clock), uint64(0))
		equal(t, "left behind", leftBehind(), 0)
		for _, notification := range []string{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}`, callWith("a", "null", "")} {
			m.post(notification)
			equal(t, "a notification", inFlight(t, m.Gate(), m.clock), uint64(0))
		}
		for _, id := range []string{"1", `""`, "{}", "true", "false", "[1]", "1e999"} {
			m.post(callWith("a", id, ""))
			equal(t, id, inFlight(t, m.Gate(), m.clock), uint64(1))
			time.Sleep(2 * handOverTime)
		}
		m.post(batch(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, callWith("a", "null", ""), call("a")))
		equal(t, "a batch", inFlight(t, m.Gate(), m.clock), uint64(1))
		time.Sleep(2 * handOverTime)
	})
	m := meter(t, guardedGate(t, 3), Options{})
	m.app.answer = accept
	m.post(call("a"))
	equal(t, "without a handler to expect", inFlight(t, m.Gate(), m.clock), uint64(0))
}

func TestAnAnswerOf202WaitsBrieflyWhereAHandlerMayNeverCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := meter(t, guardedGate(t, 1), Options{})
		inner := m.inside()
		inner.ExpectSomeHandlers()
		var header http.Header
		m.app.answer = func(w http.ResponseWriter, r *http.Request) {
			header = r.Header
			w.WriteHeader(http.StatusAccepted)
		}
		m.post(call("a"))
		time.Sleep(briefHandOverTime - time.Nanosecond)
		equal(t, "until then", inFlight(t, m.Gate(), m.clock), uint64(1))
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		equal(t, "then", inFlight(t, m.Gate(), m.clock), uint64(0))
		running := begin(t, inner, t.Context(), header)
		equal(t, "a late one takes a place of its own", inFlight(t, m.Gate(), m.clock), uint64(1))
		running.Settle(callgate.Success)
		m.post(call("a"))
		running = begin(t, inner, t.Context(), header)
		time.Sleep(2 * briefHandOverTime)
		equal(t, "one in time keeps it", inFlight(t, m.Gate(), m.clock), uint64(1))
		running.Settle(callgate.Success)
		equal(t, "afterwards", inFlight(t, m.Gate(), m.clock), uint64(0))
		time.Sleep(2 * handOverTime)
	})
}

func TestACallThatTheServerMakesItselfIsPartOfItsOwn(t *testing.T) {
	m := meter(t, nil, Options{})
	inner := m.inside()
	other, err := NewMeter(plainGate(t), MeterOptions{Clock: m.clock.instant})
	if err != nil {
		t.Fatal(err)
	}
	outer := begin(t, inner, t.Context(), nil)
	for range 5 {
		begin(t, inner, begin(t, other, outer.Context(), nil).Context(), nil).Settle(callgate.Failure)
		equal(t, "another gate's", charges(t, other.Gate(), m.clock, Anonymous, ""), uint64(1))
		m.clock.advance(time.Hour)
	}
	equal(t, "charged", m.charged(Anonymous, ""), uint64(0))
	m.clock.advance(-time.Hour * 5)
	outer.Settle(callgate.Success)
	begin(t, inner, outer.Context(), nil)
	equal(t, "what is left running calls for its own account", m.charged(Anonymous, ""), uint64(2))
}

func TestTheOutcomeInsideIsThatOfTheHandler(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, each := range []struct {
		ctx                    context.Context
		err                    error
		isError, isClientFault bool
		want                   string
	}{
		{t.Context(), nil, false, false, "success"},
		{t.Context(), nil, true, false, "failure"},
		{t.Context(), context.Canceled, false, false, "failure"},
		{t.Context(), context.Canceled, false, true, "abandoned"},
		{ended, nil, false, false, "success"},
		{ended, nil, true, false, "abandoned"},
		{ended, context.Canceled, false, false, "abandoned"},
	} {
		equal(t, "outcome", OutcomeOf(each.ctx, each.err, each.isError, each.isClientFault).String(), each.want)
	}
}
