package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"callgate.dev/callgate"
)

const usedKey = "callgate/used"

// usedBy is what is settled for a call that is answered so.
func usedBy(t *testing.T, options MeterOptions, body string, answer http.HandlerFunc) []uint64 {
	t.Helper()
	m := meter(t, nil, Options{MeterOptions: options})
	seen := watchSettlements(m.meter)
	m.app.answer = answer
	m.post(body)
	_, used := seen.get()
	return used
}

func reporting(units ...uint64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, each := range units {
			ReportUsage(r.Context(), each)
		}
		respond(w, 200)
	}
}

func TestAToolReportsWhatItUsed(t *testing.T) {
	equal(t, "reports add up", usedBy(t, MeterOptions{}, call("a"), reporting(2, 3)), []uint64{5})
	equal(t, "in place of the reserve", usedBy(t, MeterOptions{Reserve: 9}, call("a"), reporting(0)), []uint64{0})
	equal(t, "nothing said", usedBy(t, MeterOptions{Reserve: 9}, call("a"), reporting()), []uint64{9})
	equal(t, "a reserve for each", usedBy(t, MeterOptions{Reserve: 9}, batch(call("a"), call("b")), reporting()), []uint64{18})
	equal(t, "as many as can be", usedBy(t, MeterOptions{}, call("a"), reporting(math.MaxUint64, 7)), []uint64{math.MaxUint64})
}

func TestOutsideOfACallNothingIsNoted(t *testing.T) {
	equal(t, "report", ReportUsage(t.Context(), 1), false)
	equal(t, "usage", Usage(t.Context()), uint64(0))
}

func TestWhatIsReportedAfterTheCallIsOverChangesNothing(t *testing.T) {
	var late context.Context
	used := usedBy(t, MeterOptions{}, call("a"), func(w http.ResponseWriter, r *http.Request) {
		late = r.Context()
		equal(t, "report", ReportUsage(late, 2), true)
		equal(t, "so far", Usage(late), uint64(2))
		respond(w, 200)
	})
	equal(t, "report", ReportUsage(late, 1_000), false)
	equal(t, "used", used, []uint64{2})
}

func TestNoUnitIsLostThatGoroutinesReportAtOnce(t *testing.T) {
	used := usedBy(t, MeterOptions{}, call("a"), func(w http.ResponseWriter, r *http.Request) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 1_000 {
					ReportUsage(r.Context(), 1)
				}
			})
		}
		all.Wait()
		respond(w, 200)
	})
	equal(t, "used", used, []uint64{8_000})
}

func TestTheUnitsAreNotedOnEveryGateThatTheCallPassedAndOnceOnEach(t *testing.T) {
	inner := meter(t, nil, Options{})
	inner.app.answer = reporting(5)
	var all []*settlements
	var next http.Handler = inner
	all = append(all, watchSettlements(inner.meter))
	for _, gate := range []*callgate.Gate{inner.Gate(), plainGate(t)} {
		outer, err := Protect(next, gate, Options{APIKeys: NoAPIKeys})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, watchSettlements(outer.meter))
		next = outer
	}
	next.ServeHTTP(&discarded{}, postRequest(call("a")))
	for n, want := range [][]uint64{{}, {5}, {5}} {
		_, used := all[n].get()
		equal(t, fmt.Sprint("middleware ", n), used, want)
	}
}

// discarded is a response that nobody reads.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}
func (*discarded) Write(p []byte) (int, error) { return len(p), nil }
func (*discarded) WriteHeader(int)             {}

// --- what results state ------------------------------------------------------------------------

func result(meta string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"content":[],"_meta":` + meta + `}}`
}

func stating(kind string, parts ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ReportUsage(r.Context(), 77)
		w.Header().Set("Content-Type", kind)
		for _, part := range parts {
			_, _ = io.WriteString(w, part)
		}
	}
}

func TestAResultStatesWhatItUsedInPlaceOfTheTool(t *testing.T) {
	options := MeterOptions{UsageMeta: usedKey}
	four := result(`{"callgate/used":4}`)
	for name, answer := range map[string]http.HandlerFunc{
		"json":             stating("application/json; charset=utf-8", four),
		"json in parts":    stating("application/json", four[:20], four[20:60], four[60:]),
		"event stream":     stating("text/event-stream", "event: message\r\ndata: "+four[:30], four[30:]+"\r\n\r\n"),
		"of many events":   stating("text/event-stream", "data: {}\n\nid: 1\ndata:"+four+"\n\n: _meta\n\ndata: _meta\n\n"),
		"blanks around it": stating("application/json", " \n", four, "\n"),
	} {
		equal(t, name, usedBy(t, options, call("a"), answer), []uint64{4})
	}
	several := stating("application/json", "["+four+","+result("{}")+","+result(`{"callgate/used":5}`)+"]")
	equal(t, "a batch adds up", usedBy(t, options, batch(repeat(3, call("a"))...), several), []uint64{9})
	equal(t, "not asked for", usedBy(t, MeterOptions{}, call("a"), stating("application/json", four)), []uint64{77})
	equal(t, "another type", usedBy(t, options, call("a"), stating("text/plain", four)), []uint64{77})
}

func TestWhatAResultStatesCountsOnceWhoeverHasReadIt(t *testing.T) {
	m := meter(t, nil, Options{MeterOptions: MeterOptions{UsageMeta: usedKey}})
	inner := m.inside()
	seen := watchSettlements(m.meter)
	m.app.answer = func(w http.ResponseWriter, r *http.Request) {
		running := begin(t, inner, r.Context(), r.Header)
		running.State(4)
		running.Settle(callgate.Success)
		stating("application/json", result(`{"callgate/used":4}`))(w, r)
	}
	m.post(call("a"))
	_, used := seen.get()
	equal(t, "used", used, []uint64{4})
}

func TestWhatIsNoNumberOfUnitsIsNotTaken(t *testing.T) {
	for _, meta := range []string{"null", "[]", "{}", `{"callgate/used":-1}`, `{"callgate/used":"9"}`,
		`{"callgate/used":1.5}`, `{"callgate/used":true}`, `{"callgate/used":null}`, "7"} {
		used := usedBy(t, MeterOptions{UsageMeta: usedKey}, call("a"), stating("application/json", result(meta)))
		equal(t, meta, used, []uint64{77})
	}
	large := result(`{"callgate/used":1` + strings.Repeat("0", 30) + "}")
	used := usedBy(t, MeterOptions{UsageMeta: usedKey}, call("a"), stating("application/json", large))
	equal(t, "large", used, []uint64{math.MaxUint64})
	for value, want := range map[any]uint64{1: 1, int64(2): 2, uint8(3): 3, 4.0: 4, json.Number("5"): 5, uint64(math.MaxUint64): math.MaxUint64} {
		units, isStated := UnitsOf(value)
		equal(t, "of a program", isStated, true)
		equal(t, "of a program", units, want)
	}
	for _, value := range []any{nil, -1, 1.5, "9", true, json.Number("-1"), json.Number("1.0"), math.NaN(), math.Inf(1), 1e300} {
		if _, isStated := UnitsOf(value); isStated {
			t.Error(value)
		}
	}
}

func TestAResponseThatIsTooLargeIsPassedOnUnread(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} {
		reader := &responseReader{key: usedKey}
		reader.start(http.Header{"Content-Type": {kind}})
		for range 3 {
			reader.feed(make([]byte, maxReadBytes/2))
		}
		if len(reader.pending) > maxReadBytes {
			t.Error("kept", len(reader.pending))
		}
		reader.feed([]byte("\ndata:" + result(`{"callgate/used":9}`) + "\n"))
		_, isStated := reader.end()
		equal(t, kind, isStated, false)
	}
}

func FuzzAResponseOfAnyKindIsPassedOn(f *testing.F) {
	f.Add([]byte(result(`{"callgate/used":9}`)), true)
	f.Add([]byte(`["_meta"`), false)
	f.Fuzz(func(_ *testing.T, text []byte, isStream bool) {
		reader := &responseReader{key: usedKey, isReadable: true, isStream: isStream}
		reader.feed(text)
		reader.end()
	})
}

// --- quotas ------------------------------------------------------------------------------------

func TestAQuotaRunsOutByWhatCallsReportAndReturnsAtMidnight(t *testing.T) {
	gate := mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{"tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour}},
		Policies: map[string]callgate.Policy{
			Authenticated: {byCaller("tokens")}, Anonymous: {shared("tokens")}},
	})
	m := meter(t, gate, Options{MeterOptions: MeterOptions{Caller: as("ann")}})
	m.clock.unixNs = uint64(20_000*24*time.Hour/1000*1000 + 24*time.Hour - 90*time.Second)
	m.app.answer = reporting(600)
	// The second overdraws, and the overdraft is what refuses the third.
	equal(t, "statuses", m.statuses(call("a"), call("a")), []int{200, 200})
	answer := m.post(call("a"))
	equal(t, "status", answer.Code, 429)
	equal(t, "retry-after", answer.Header().Get("Retry-After"), "90")
	wait := int64(90_000)
	equal(t, "data", answer.json().Error.Data, &RefusalData{"quota", "tokens", &wait})
	m.clock.advance(90 * time.Second)
	equal(t, "after midnight", m.post(call("a")).Code, 200)
}

func seededGate(t *testing.T) *callgate.Gate {
	return mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{
			"open":   callgate.Off{},
			"tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour, MustSeed: true},
			"server": callgate.ConcurrencyLimit{MaxInFlight: 2, Lease: time.Hour},
		},
		Policies: map[string]callgate.Policy{Authenticated: {byCaller("tokens"), shared("server")}, Anonymous: {shared("open")}},
	})
}

func TestAQuotaThatNobodyHasToldAboutIsA503OrAsksALedger(t *testing.T) {
	m := meter(t, seededGate(t), Options{MeterOptions: MeterOptions{Caller: as("ann")}})
	answer := m.post(call("a"))
	equal(t, "status", answer.Code, 503)
	equal(t, "retry-after", answer.Header().Get("Retry-After"), "1")
	equal(t, "reason", answer.json().Error.Data.Reason, "unseeded")
	gate := seededGate(t)
	var asked []string
	seeder, err := callgate.NewSeeder(gate, "tokens", func(_ context.Context, caller string) (uint64, error) {
		asked = append(asked, caller)
		if caller == "ben" {
			return 1_000, nil
		}
		return 0, nil
	}, callgate.SeederConfig{})
	if err != nil {
		t.Fatal(err)
	}
	m = meter(t, gate, Options{MeterOptions: MeterOptions{Caller: byHeader, Seeder: seeder}})
	for _, each := range []struct {
		caller string
		status int
	}{{"ann", 200}, {"ann", 200}, {"ben", 429}} {
		equal(t, each.caller, m.post(call("a"), "Caller", each.caller).Code, each.status)
	}
	equal(t, "asked", asked, []string{"ann", "ben"})
}

func TestAnEstimateAboveWhatIsLeftIsRefused(t *testing.T) {
	quotas := func() *callgate.Gate {
		return mustGate(t, callgate.Config{
			Limits:   map[string]callgate.Limit{"tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour}},
			Policies: map[string]callgate.Policy{Authenticated: {byCaller("tokens")}, Anonymous: {shared("tokens")}},
		})
	}
	m := meter(t, quotas(), Options{MeterOptions: MeterOptions{Reserve: 400}})
	equal(t, "statuses", m.statuses(repeat(3, call("a"))...), []int{200, 200, 429})
	m = meter(t, quotas(), Options{MeterOptions: MeterOptions{Reserve: 1_001}})
	answer := m.post(call("a"))
	equal(t, "reason", answer.json().Error.Data.Reason, "never")
	if !strings.Contains(answer.json().Error.Message, "sets aside more") {
		t.Error(answer.Body)
	}
}

func TestOfABatchOverSeveralPoliciesTheFirstWithAQuotaPays(t *testing.T) {
	gate := mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{"rate": hourly(9), "tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour}},
		Policies: map[string]callgate.Policy{
			Authenticated: {byCaller("tokens")}, Anonymous: {shared("rate")}, "costly": {byCaller("tokens")}, "free": {shared("rate")}},
	})
	m := meter(t, gate, Options{MeterOptions: MeterOptions{Caller: as("ann"), Reserve: 3,
		Tools: map[string]PolicyChoice{"f": forAll("free"), "c": forAll("costly")}}})
	seen := watchSettlements(m.meter)
	m.app.answer = reporting(100)
	m.post(batch(call("f"), call("c"), call("a")))
	_, used := seen.get()
	equal(t, "used", used, []uint64{0, 100, 0})
}
