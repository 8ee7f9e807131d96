package mcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"callgate.dev/callgate"
)

func TestAnUnverifiedBearerIsChargedAsSuch(t *testing.T) {
	for _, field := range []string{"Bearer abc", "bearer abc", "BEARER abc", "Bearer  abc", " Bearer abc "} {
		header := http.Header{"Authorization": {field}}
		equal(t, field, CallerOfHeader(header), Caller{Policy: ForwardedBearer, Identity: "\x00bearer\x00abc"})
	}
	for _, field := range []string{"", "Bearer", "Bearer ", "Basic dTpw", "abc"} {
		equal(t, field, CallerOfHeader(http.Header{"Authorization": {field}}), Caller{Policy: Anonymous})
	}
	first := http.Header{"Authorization": {"Basic dTpw", "Bearer abc"}}
	equal(t, "the first decides", CallerOfHeader(first), Caller{Policy: Anonymous})
	equal(t, "no header", CallerOfHeader(nil), Caller{Policy: Anonymous})
}

func TestWhatWasVerifiedComesBeforeTheHeader(t *testing.T) {
	m := meter(t, nil, Options{})
	r := postRequest(call("work"), "Authorization", "Bearer abc")
	m.send(r.WithContext(WithCaller(r.Context(), Caller{Identity: "user:1"})))
	equal(t, "verified", m.charged(Authenticated, "user:1"), uint64(1))
	verified := meter(t, nil, Options{Verified: func(r *http.Request) *Caller {
		return &Caller{Identity: r.Header.Get("User")}
	}})
	verified.post(call("work"), "User", "user:2", "Authorization", "Bearer abc")
	equal(t, "by the option", verified.charged(Authenticated, "user:2"), uint64(1))
	inside, isKnown := CallerOf(verified.app.requests[0].Context())
	equal(t, "handed on", inside, Caller{Policy: Authenticated, Identity: "user:2"})
	equal(t, "handed on", isKnown, true)
	nobody := meter(t, nil, Options{Verified: func(*http.Request) *Caller { return nil }})
	nobody.post(call("work"), "Authorization", "Bearer abc")
	equal(t, "nobody verified", nobody.charged(ForwardedBearer, "\x00bearer\x00abc"), uint64(1))
}

func TestAFunctionThatKnowsTheVerifiedCallerMayFail(t *testing.T) {
	m := meter(t, nil, Options{Verified: func(*http.Request) *Caller { panic("user:1001") }})
	equal(t, "status", m.post(call("work"), "Authorization", "Bearer abc").Code, 200)
	equal(t, "counted", m.InternalErrors(), uint64(1))
	equal(t, "nobody is verified", m.charged(ForwardedBearer, "\x00bearer\x00abc"), uint64(1))
}

func TestAHookMayReadTheBodyAndTheServerStillGetsIt(t *testing.T) {
	m := meter(t, nil, Options{MeterOptions: MeterOptions{Caller: func(_ context.Context, source Source) (Caller, error) {
		read, err := io.ReadAll(source.Request.Body)
		equal(t, "read", string(read), call("work"))
		return Caller{}, err
	}}})
	m.post(call("work"))
	equal(t, "bodies", m.app.bodies, []string{call("work")})
}

func TestAVerifiedCallerIsHandedOnWithMessagesThatCostNothing(t *testing.T) {
	m := meter(t, nil, Options{Verified: func(*http.Request) *Caller { return &Caller{Identity: "ann"} }})
	for _, method := range []string{"POST", "GET"} {
		r := postRequest(`{"id":1,"method":"ping"}`)
		r.Method = method
		m.send(r)
	}
	for _, r := range m.app.requests {
		caller, _ := CallerOf(r.Context())
		equal(t, r.Method, caller.Identity, "ann")
	}
}

func TestAFunctionNamesTheCallerAndOneCallerNeverCostsAnother(t *testing.T) {
	gate := plainGate(t)
	key, err := gate.Key("user:1")
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]Caller{
		"identity": {Identity: "user:1"}, "key": {Key: key}, "chosen": {Policy: ForwardedBearer, Identity: "x"}, "none": {},
	}
	m := meter(t, gate, Options{MeterOptions: MeterOptions{Caller: func(_ context.Context, source Source) (Caller, error) {
		return answers[source.Header.Get("As")], nil
	}}})
	for _, as := range []string{"identity", "key", "chosen", "none"} {
		equal(t, as, m.post(call("work"), "As", as, "Authorization", "Bearer abc").Code, 200)
	}
	equal(t, "a key is its identity", m.charged(Authenticated, "user:1"), uint64(2))
	equal(t, "chosen", m.charged(ForwardedBearer, "x"), uint64(1))
	equal(t, "none is anonymous", m.charged(Anonymous, ""), uint64(1))
}

func TestACallerWithoutAnIdentityIsAnonymousWhereAPolicyWantsOne(t *testing.T) {
	nobody := Caller{Policy: Authenticated}
	asked := meter(t, plainGate(t), Options{MeterOptions: MeterOptions{Caller: func(context.Context, Source) (Caller, error) {
		return nobody, nil
	}}})
	asked.post(call("work"))
	equal(t, "of a function", asked.charged(Anonymous, ""), uint64(1))
	equal(t, "of a function", asked.InternalErrors(), uint64(0))
	verified := meter(t, plainGate(t), Options{})
	request := postRequest(call("work"))
	verified.send(request.WithContext(WithCaller(request.Context(), nobody)))
	equal(t, "verified", verified.charged(Anonymous, ""), uint64(1))
	equal(t, "verified", verified.InternalErrors(), uint64(0))
}

func TestACallerFunctionThatFailsIsAnInternalError(t *testing.T) {
	fails := map[string]CallerFunc{
		"error":   func(context.Context, Source) (Caller, error) { return Caller{}, errors.New("user:1001") },
		"panic":   func(context.Context, Source) (Caller, error) { panic("user:1001") },
		"unknown": func(context.Context, Source) (Caller, error) { return Caller{Policy: "none such"}, nil },
	}
	for name, caller := range fails {
		log := logged(t)
		m := meter(t, nil, Options{MeterOptions: MeterOptions{Caller: caller}})
		equal(t, name, m.post(call("work")).Code, 200)
		equal(t, name, m.InternalErrors(), uint64(1))
		if strings.Contains(log.String(), "1001") {
			t.Error(log)
		}
		m = meter(t, nil, Options{MeterOptions: MeterOptions{Caller: caller, OnError: OnErrorRefuse}})
		equal(t, name, m.post(call("work")).Code, 503)
		equal(t, name, m.app.ran(), 0)
	}
}

func TestWithoutAPolicyForItAForwardedBearerIsAnonymous(t *testing.T) {
	m := meter(t, mustGate(t, callgate.Config{
		Limits:   map[string]callgate.Limit{"x": hourly(5)},
		Policies: map[string]callgate.Policy{Anonymous: {shared("x")}, Authenticated: {byCaller("x")}},
	}), Options{})
	m.post(call("work"), "Authorization", "Bearer abc")
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
}

func TestAGateThatLacksAPolicyIsRefusedAtStart(t *testing.T) {
	gate := func(policies map[string]callgate.Policy) *callgate.Gate {
		return mustGate(t, callgate.Config{Limits: map[string]callgate.Limit{"x": hourly(1)}, Policies: policies})
	}
	named := func(context.Context, Source) (Caller, error) { return Caller{}, nil }
	onlyAnonymous := gate(map[string]callgate.Policy{Anonymous: {shared("x")}})
	if _, err := NewMeter(onlyAnonymous, MeterOptions{Caller: named}); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]*callgate.Gate{
		"authenticated": onlyAnonymous,
		"anonymous":     gate(map[string]callgate.Policy{Authenticated: {byCaller("x")}}),
		"no caller":     gate(map[string]callgate.Policy{Anonymous: {byCaller("x")}, Authenticated: {byCaller("x")}}),
		"to charge": gate(map[string]callgate.Policy{
			Anonymous: {{Limit: "x", Scope: callgate.ScopeCallerTool}}, Authenticated: {byCaller("x")}}),
	} {
		_, err := NewMeter(bad, MeterOptions{})
		var config *callgate.ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), name) {
			t.Error(name, err)
		}
	}
}
