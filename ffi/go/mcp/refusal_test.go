package mcp

import (
	"encoding/json"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"callgate.dev/callgate"
)

func refused(change ...func(*callgate.Decision)) *callgate.Decision {
	d := &callgate.Decision{Reason: callgate.ReasonRate, By: "caller", RetryAfter: time.Second, Limit: 60,
		ResetAfter: 2 * time.Second}
	for _, each := range change {
		each(d)
	}
	return d
}

func because(reason callgate.Reason) func(*callgate.Decision) {
	return func(d *callgate.Decision) { d.Reason = reason }
}

func after(wait time.Duration) func(*callgate.Decision) {
	return func(d *callgate.Decision) { d.RetryAfter = wait }
}

func by(name string) func(*callgate.Decision) { return func(d *callgate.Decision) { d.By = name } }

var reasons = []callgate.Reason{callgate.ReasonRate, callgate.ReasonConcurrency, callgate.ReasonBreakerOpen,
	callgate.ReasonQuota, callgate.ReasonUnseeded, callgate.ReasonTableFull, callgate.ReasonNever}

func perSecond(name string) []namedLimit {
	return []namedLimit{{name, callgate.RateLimit{Count: 30, Per: time.Second, Burst: 60}}}
}

func rendered(t *testing.T, d *callgate.Decision, id string, limits []namedLimit) *answered {
	t.Helper()
	recorder := httptest.NewRecorder()
	var echoed json.RawMessage
	if id != "" {
		echoed = json.RawMessage(id)
	}
	refusalResponse(d, 1, echoed, limits, DefaultErrorCode).ServeHTTP(recorder, nil)
	return &answered{recorder, t}
}

func TestTheStatusTellsTheCallersOwnUseFromTheServersState(t *testing.T) {
	for _, reason := range reasons {
		answer := rendered(t, refused(because(reason)), "1", perSecond("caller"))
		want := 429
		switch reason {
		case callgate.ReasonConcurrency, callgate.ReasonBreakerOpen, callgate.ReasonUnseeded:
			want = 503
		}
		equal(t, reason.String(), answer.Code, want)
		equal(t, reason.String(), answer.json().Error.Data.Reason, reason.String())
	}
}

func TestRetryAfterIsWholeSecondsRoundedUpAndAtLeastOne(t *testing.T) {
	for wait, seconds := range map[time.Duration]string{1: "1", time.Second - 1: "1", time.Second: "1",
		time.Second + 1: "2", time.Hour: "3600"} {
		equal(t, wait.String(), rendered(t, refused(after(wait)), "1", nil).Header().Get("Retry-After"), seconds)
	}
	for wait, want := range map[time.Duration]int64{1: 1, 1_000_000: 1, 1_000_001: 2} {
		ms, _ := retryAfterMs(refused(after(wait)))
		equal(t, wait.String(), ms, want)
	}
}

func TestWhereNoTimeIsKnownHTTPStillSaysOneSecondAndJSONSaysNull(t *testing.T) {
	answer := rendered(t, refused(because(callgate.ReasonConcurrency), after(0)), "1", nil)
	equal(t, "header", answer.Header().Get("Retry-After"), "1")
	if !strings.Contains(answer.Body.String(), `"retryAfterMs":null`) {
		t.Error(answer.Body)
	}
}

func TestACostThatNeverFitsPromisesNoTimeAtAll(t *testing.T) {
	d := refused(because(callgate.ReasonNever), after(0), func(d *callgate.Decision) { d.Limit = 20 })
	answer := refusalResponse(d, 25, nil, perSecond("caller"), DefaultErrorCode)
	equal(t, "status", answer.status, 429)
	equal(t, "retry-after", answer.header.Get("Retry-After"), "")
	equal(t, "ratelimit", answer.header.Get("RateLimit"), `"caller";r=0`)
	if !strings.Contains(string(answer.body), "This request holds 25 tool calls, and the limit 'caller' never lets more than 20 through at once.") {
		t.Error(string(answer.body))
	}
	equal(t, "of a reserve", sentence(d, 1),
		"This request sets aside more of the allowance 'caller' than it ever holds, 20. No retry can help.")
}

func TestTheBodyIsAJSONRPCErrorWithReasonLimitAndWait(t *testing.T) {
	answer := rendered(t, refused(after(1_500*time.Millisecond)), "7", nil)
	equal(t, "body", answer.Body.String(), `{"jsonrpc":"2.0","id":7,"error":{"code":-31004,`+
		`"message":"Too many tool calls: the limit 'caller' is reached. Try again in 1.5 seconds.",`+
		`"data":{"reason":"rate","limit":"caller","retryAfterMs":1500}}}`)
	equal(t, "type", answer.Header().Get("Content-Type"), "application/json")
	equal(t, "cache", answer.Header().Get("Cache-Control"), "no-store")
	other := refusalResponse(refused(), 1, nil, nil, -32001)
	if !strings.Contains(string(other.body), `"code":-32001`) {
		t.Error(string(other.body))
	}
}

func TestTheIDKeepsItsTypeAndIsOmittedWhereThereIsNone(t *testing.T) {
	for _, id := range []string{"7", `"7"`, "0", `""`, `"ü"`, "1152921504606846976", "1.5"} {
		equal(t, id, string(rendered(t, refused(), id, nil).json().ID), id)
	}
	if strings.Contains(rendered(t, refused(), "", nil).Body.String(), `"id"`) {
		t.Error("there is an id")
	}
	unreadable := errorResponse(400, nil, &JSONRPCError{Code: parseError, Message: "Parse error"})
	equal(t, "unreadable", string(unreadable.body), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`)
}

func TestContentLengthIsTheLengthOfTheBody(t *testing.T) {
	answer := refusalResponse(refused(by("grün")), 1, json.RawMessage(`"ü"`), nil, DefaultErrorCode)
	equal(t, "length", answer.header.Get("Content-Length"), string(mustJSON(t, len(answer.body))))
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTheRateLimitFieldsNameTheLimitAndTheWholePolicy(t *testing.T) {
	limits := append([]namedLimit{
		{"shared", callgate.RateLimit{Count: 100, Per: time.Minute, Burst: 50}},
		{"off", callgate.Off{}},
	}, perSecond("caller")...)
	answer := rendered(t, refused(after(1), func(d *callgate.Decision) { d.Remaining = 3 }), "1", limits)
	equal(t, "limit", answer.Header().Get("RateLimit"), `"caller";r=3;t=1`)
	equal(t, "policy", answer.Header().Get("RateLimit-Policy"), `"shared";q=50;w=30, "caller";q=60;w=2`)
	other := rendered(t, refused(because(callgate.ReasonBreakerOpen), by("server")), "1", limits)
	equal(t, "of no rate", other.Header().Get("RateLimit"), "")
	equal(t, "of no rate", other.Header().Get("RateLimit-Policy"), `"shared";q=50;w=30, "caller";q=60;w=2`)
	without := rendered(t, refused(by("server")), "1", []namedLimit{{"server", callgate.Off{}}})
	equal(t, "without", without.Header().Get("RateLimit-Policy"), "")
}

func TestAWindowOfAnySizeIsToldWithoutOverflow(t *testing.T) {
	const most = 1 << 61
	for limit, want := range map[callgate.RateLimit]uint64{
		{Count: 1, Per: time.Hour, Burst: 20}:                      72_000,
		{Count: 1, Per: most, Burst: 1}:                            most/1_000_000_000 + 1,
		{Count: 1 << 60, Per: most, Burst: 1 << 60}:                most/1_000_000_000 + 1,
		{Count: 1, Per: 1, Burst: 1}:                               1,
		{Count: 1<<64 - 1, Per: time.Nanosecond, Burst: 1<<64 - 1}: 1,
	} {
		equal(t, "window", windowS(limit), want)
	}
}

var structuredField = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])*";[rq]=\d+;[tw]=\d+$`)

func TestAnyNameOfALimitMakesAValidStructuredField(t *testing.T) {
	for _, name := range []string{"plain", `quo"te`, `back\slash`, "grün", "line\r\nSet-Cookie: a=b"} {
		answer := rendered(t, refused(by(name)), "1", perSecond(name))
		for _, field := range []string{"RateLimit", "RateLimit-Policy"} {
			if !structuredField.MatchString(answer.Header().Get(field)) {
				t.Errorf("%s: %q", field, answer.Header().Get(field))
			}
		}
	}
}

func TestEveryReasonHasASentenceForAModel(t *testing.T) {
	for _, reason := range reasons {
		text := sentence(refused(because(reason)), 3)
		if text[0] < 'A' || text[0] > 'Z' || !strings.HasSuffix(text, ".") || strings.Contains(text, "%!") {
			t.Error(text)
		}
	}
}

func TestTheSentenceNeverPromisesTooEarlyARetry(t *testing.T) {
	for wait, words := range map[time.Duration]string{
		1: "1 milliseconds", 250 * time.Millisecond: "250 milliseconds", 1_010 * time.Millisecond: "1.1 seconds",
		119 * time.Second: "119.0 seconds", 121 * time.Second: "3 minutes", 7_199 * time.Second: "2 hours",
		25 * time.Hour: "25 hours",
	} {
		if text := sentence(refused(after(wait)), 1); !strings.Contains(text, "Try again in "+words+".") {
			t.Error(text)
		}
	}
}

func TestANameIsQuotedSoThatItCanBeRead(t *testing.T) {
	for name, want := range map[string]string{"a": `'a'`, "it's": `"it's"`, `it's "a"`: `'it\'s "a"'`, "a\nb": `'a\nb'`} {
		equal(t, name, quoted(name), want)
	}
}

func TestARealRefusalIsRenderedAndItsWaitIsTrue(t *testing.T) {
	m := meter(t, nil, Options{})
	m.drain(Anonymous, "")
	wait := *m.post(call("work")).json().Error.Data.RetryAfterMs
	m.clock.advance(time.Duration(wait) * time.Millisecond)
	equal(t, "status", m.post(call("work")).Code, 200)
}
