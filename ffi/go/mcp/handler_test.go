package mcp

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"callgate.dev/callgate"
)

func TestEverythingButToolCallsPassesADrainedGate(t *testing.T) {
	m := meter(t, nil, Options{})
	m.drain(Anonymous, "")
	passing := []string{}
	for _, method := range []string{"initialize", "ping", "tools/list", "resources/read", "server/discover",
		"subscriptions/listen", "notifications/initialized", "notifications/cancelled"} {
		passing = append(passing, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method))
	}
	passing = append(passing, `{"jsonrpc":"2.0","id":1,"result":{}}`, "[]", "null")
	for _, body := range passing {
		equal(t, body, m.post(body).Code, 200)
	}
	equal(t, "bodies", m.app.bodies, passing)
	for _, method := range []string{"GET", "DELETE", "OPTIONS", "HEAD", "PUT"} {
		r := postRequest(call("work"))
		r.Method = method
		equal(t, method, m.send(r).Code, 200)
	}
	post := postRequest(call("work"))
	post.Method = "post"
	equal(t, "however it is spelled", m.send(post).Code, 429)
}

func TestAnAdmittedCallReachesTheServerByteForByte(t *testing.T) {
	m := meter(t, nil, Options{})
	body := " \r\n" + call("work") + "\n "
	m.post(body, "X-Other", "kept")
	equal(t, "body", m.app.bodies, []string{body})
	equal(t, "header", m.app.requests[0].Header.Get("X-Other"), "kept")
}

func TestAChunkedBodyIsCountedAndArrivesWhole(t *testing.T) {
	m := meter(t, nil, Options{})
	m.app.answer = nil
	r := postRequest("")
	r.Body = io.NopCloser(iotest.OneByteReader(strings.NewReader(call("work"))))
	r.ContentLength = -1
	equal(t, "status", m.send(r).Code, 200)
	equal(t, "body", m.app.bodies, []string{call("work")})
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
}

func TestADrainedGateRefusesBeforeTheServerSeesTheCall(t *testing.T) {
	m := meter(t, nil, Options{})
	m.drain(Anonymous, "")
	answer := m.post(callWith("work", `"x"`, ""))
	equal(t, "status", answer.Code, 429)
	equal(t, "id", string(answer.json().ID), `"x"`)
	equal(t, "retry-after", answer.Header().Get("Retry-After"), "3600")
	equal(t, "ratelimit", answer.Header().Get("RateLimit"), `"anonymous";r=0;t=3600`)
	equal(t, "ratelimit-policy", answer.Header().Get("RateLimit-Policy"), `"anonymous";q=3;w=10800`)
	equal(t, "ran", m.app.ran(), 0)
	m.clock.advance(time.Hour)
	equal(t, "at the very instant", m.post(call("work")).Code, 200)
	other := meter(t, nil, Options{ErrorCode: -32099})
	other.drain(Anonymous, "")
	equal(t, "code", other.post(call("work")).json().Error.Code, -32099)
}

func TestABatchIsChargedInFullOrNotAtAll(t *testing.T) {
	m := meter(t, nil, Options{})
	two := batch(repeat(2, call("work"))...)
	equal(t, "statuses", m.statuses(two, two, call("work"), call("work")), []int{200, 429, 200, 429})
	large := m.post(batch(repeat(25, call("work"))...))
	equal(t, "reason", large.json().Error.Data.Reason, "never")
	equal(t, "retry-after", large.Header().Get("Retry-After"), "")
	if strings.Contains(large.Body.String(), `"id"`) {
		t.Error("a batch has an id")
	}
	equal(t, "ran", m.app.ran(), 2)
}

func TestALargerBodyIsRefusedWith413(t *testing.T) {
	body := call("work")
	m := meter(t, nil, Options{MaxBodyBytes: int64(len(body))})
	equal(t, "exactly the bound", m.post(body).Code, 200)
	answer := m.post(body + " ")
	equal(t, "one more", answer.Code, 413)
	equal(t, "body", answer.Body.String(), fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":-32600,`+
		`"message":"Invalid request: the body is larger than %d bytes"}}`, len(body)))
	unread := iotest.ErrReader(io.ErrUnexpectedEOF)
	declared := postRequest("", "Expect", "100-continue")
	declared.Body, declared.ContentLength = io.NopCloser(unread), int64(len(body))+1
	equal(t, "says it is larger", m.send(declared).Code, 413)
	endless := postRequest("")
	endless.Body, endless.ContentLength = io.NopCloser(zeros{}), -1
	equal(t, "endless", m.send(endless).Code, 413)
	equal(t, "ran", m.app.ran(), 1)
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
}

func TestTheBoundOfABodyMayBeAsLargeAsANumberCanBe(t *testing.T) {
	for _, most := range []int64{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64/2 + 1} {
		m := meter(t, nil, Options{MaxBodyBytes: most})
		equal(t, "status", m.post(call("work")).Code, 200)
		equal(t, "body", m.app.bodies, []string{call("work")})
		equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
		rest := strings.NewReader("the rest")
		discardRest(&http.Request{Body: io.NopCloser(rest), ContentLength: -1}, most)
		equal(t, "left unread", rest.Len(), 0)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestAClientThatLeavesWhileSendingIsNotCharged(t *testing.T) {
	m := meter(t, nil, Options{})
	r := postRequest("")
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader(call("work")), iotest.ErrReader(io.ErrUnexpectedEOF)))
	equal(t, "status", m.send(r).Code, 400)
	equal(t, "ran", m.app.ran(), 0)
	equal(t, "live", m.live(), uint64(0))
}

func TestAnEncodedBodyIsRefusedSinceNobodyCanSayWhatRuns(t *testing.T) {
	m := meter(t, nil, Options{})
	for _, coding := range []string{"gzip", "br", "GZIP", "identity, gzip", "x"} {
		answer := m.post(call("work"), "Content-Encoding", coding)
		equal(t, coding, answer.Code, 415)
		equal(t, coding, answer.Header().Get("Accept-Encoding"), "identity")
	}
	equal(t, "identity", m.post(call("work"), "Content-Encoding", "identity").Code, 200)
	equal(t, "ran", m.app.ran(), 1)
}

func TestWhatNoServerReadsAsJSONIsHandedOnWhereItHoldsNoCall(t *testing.T) {
	m := meter(t, nil, Options{})
	equal(t, "invalid", m.post("{").Code, 400)
	for _, form := range []string{"a=1&b=2", "", "--boundary", "\x1f\x8b"} {
		equal(t, form, m.post(form, "Content-Type", "application/x-www-form-urlencoded").Code, 200)
	}
	for _, like := range []string{"{", " \r\n\t[", call("work") + "x", `{"Method":"tools/call"}`, utf16Of(call("work"), true)} {
		equal(t, like, m.post(like, "Content-Type", "application/x-www-form-urlencoded").Code, 400)
	}
	m.drain(Anonymous, "")
	for _, kind := range []string{"text/plain", "", "application/vnd.api+json", "application/json;", "APPLICATION/JSON",
		"text/plain, application/json", "application/jsonrequest"} {
		equal(t, kind, m.post(call("work"), "Content-Type", kind).Code, 429)
	}
	const marked = "\ufeff{}" // what looks like nothing
	for _, kind := range []string{"application/json", "APPLICATION/JSON", "text/plain, application/json;"} {
		equal(t, kind, m.post(marked, "Content-Type", kind).Code, 400)
	}
	several := postRequest(marked)
	several.Header["Content-Type"] = []string{"text/plain", "application/json"}
	equal(t, "the second field", m.send(several).Code, 400)
	equal(t, "ran", m.app.ran(), 4)
}

func TestTheCallerOfAFullTableIsRefusedAndNeverLetThroughUntracked(t *testing.T) {
	gate := mustGate(t, callgate.Config{
		Limits:   map[string]callgate.Limit{"caller": hourly(3), "open": callgate.Off{}},
		Policies: map[string]callgate.Policy{Authenticated: {byCaller("caller")}, Anonymous: {shared("open")}},
		Capacity: 1,
	})
	m := meter(t, gate, Options{MeterOptions: MeterOptions{Caller: byHeader}})
	admitted := 0
	for n := range 1_000 {
		answer := m.post(call("work"), "Caller", fmt.Sprint("c", n))
		if answer.Code == 200 {
			admitted++
			continue
		}
		equal(t, "reason", answer.json().Error.Data.Reason, "table_full")
		equal(t, "status", answer.Code, 429)
	}
	stats, err := gate.Stats(m.clock.instant())
	if err != nil || uint64(admitted) != stats.Live || stats.Live == 1_000 {
		t.Error(admitted, stats.Live, err)
	}
}

func TestTwoMiddlewaresOnOneGateChargeOnceAndOnTwoGatesEach(t *testing.T) {
	inner := meter(t, nil, Options{})
	around := func(gate *callgate.Gate) http.Handler {
		outer, err := Protect(inner, gate, Options{APIKeys: NoAPIKeys, MeterOptions: MeterOptions{Clock: inner.clock.instant}})
		if err != nil {
			t.Fatal(err)
		}
		return outer
	}
	around(inner.Gate()).ServeHTTP(httptest.NewRecorder(), postRequest(call("work")))
	equal(t, "one gate", inner.charged(Anonymous, ""), uint64(1))
	other := plainGate(t)
	around(other).ServeHTTP(httptest.NewRecorder(), postRequest(call("work")))
	equal(t, "two gates", inner.charged(Anonymous, ""), uint64(2))
	equal(t, "two gates", charges(t, other, inner.clock, Anonymous, ""), uint64(1))
	equal(t, "ran", inner.app.ran(), 2)
}
