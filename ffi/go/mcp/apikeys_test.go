package mcp

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"callgate.dev/callgate"
)

const (
	annKey = "k-3f9c-ann"
	benKey = "k-71aa-ben"
)

var users = map[string]string{annKey: "ann", benKey: "ben", "k-other-ann": "ann"}

func mustKeys(t testing.TB, failures ...callgate.RateLimit) *APIKeys {
	t.Helper()
	keys, err := NewAPIKeys(users, failures...)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestAKeyIsTakenFromEachOfItsPlaces(t *testing.T) {
	m := meter(t, nil, Options{APIKeys: mustKeys(t)})
	requests := []*http.Request{
		postRequest(call("work"), "Authorization", "Bearer "+annKey),
		postRequest(call("work"), "X-API-Key", annKey),
		postRequest(call("work")),
	}
	requests[2].URL.RawQuery = "a=1&k%65y=" + strings.ReplaceAll(annKey, "-", "%2d")
	for _, r := range requests {
		equal(t, "status", m.send(r).Code, 200)
	}
	equal(t, "charged", m.charged(Authenticated, "ann"), uint64(3))
	equal(t, "another key of hers", m.post(call("work"), "X-API-Key", "k-other-ann").Code, 429)
	equal(t, "another user", m.post(call("work"), "X-API-Key", benKey).Code, 200)
	both := m.post(call("work"), "Authorization", "Bearer wrong", "X-API-Key", benKey)
	equal(t, "the first decides", both.Code, 401)
}

func TestWithoutAKeyThereIsA401ThatSaysWhereToSendOne(t *testing.T) {
	m := meter(t, nil, Options{APIKeys: mustKeys(t)})
	for _, method := range []string{"POST", "GET", "DELETE"} {
		r := postRequest(call("work"))
		r.Method = method
		answer := m.send(r)
		equal(t, "status", answer.Code, 401)
		equal(t, "challenge", answer.Header().Get("WWW-Authenticate"), `Bearer realm="mcp"`)
		equal(t, "body", answer.Body.String(), `{"jsonrpc":"2.0","id":null,"error":{"code":-31001,"message":`+
			`"An API key is needed: send it as 'Authorization: Bearer KEY', 'X-API-Key: KEY' or '?key=KEY'."}}`)
	}
	wrong := m.post(call("work"), "X-API-Key", "wrong")
	equal(t, "status", wrong.Code, 401)
	equal(t, "challenge", wrong.Header().Get("WWW-Authenticate"), `Bearer realm="mcp", error="invalid_token"`)
	equal(t, "ran", m.app.ran(), 0)
	equal(t, "live", m.live(), uint64(0))
}

func TestFailedAttemptsHaveALimitAndNobodyCanLockOthersOut(t *testing.T) {
	keys := mustKeys(t, callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 3})
	m := meter(t, nil, Options{APIKeys: keys})
	for n := range 3 {
		equal(t, "status", m.post(call("work"), "X-API-Key", fmt.Sprint("guess-", n)).Code, 401)
	}
	answer := m.post(call("work"), "X-API-Key", "another")
	equal(t, "status", answer.Code, 429)
	equal(t, "limit", answer.json().Error.Data.Limit, "failed attempts")
	equal(t, "id", string(answer.json().ID), "null")
	equal(t, "retry-after", answer.Header().Get("Retry-After"), "3600")
	equal(t, "a known key", m.post(call("work"), "X-API-Key", annKey).Code, 200)
	equal(t, "no key is no attempt", m.post(call("work")).Code, 401)
}

func TestALimitThatFailsLetsNobodyIn(t *testing.T) {
	keys := mustKeys(t)
	_ = keys.failures.Close()
	m := meter(t, nil, Options{APIKeys: keys})
	log := logged(t)
	equal(t, "status", m.post(call("work"), "X-API-Key", "wrong").Code, 401)
	if !strings.Contains(log.String(), "failed attempts can't be counted") {
		t.Error(log)
	}
	equal(t, "ran", m.app.ran(), 0)
}

func TestNoSecretIsLoggedKeptOrPassedOnInTheQuery(t *testing.T) {
	log := logged(t)
	keys, err := ParseAPIKeys(annKey + ":ann," + benKey + ":ben")
	if err != nil {
		t.Fatal(err)
	}
	m := meter(t, nil, Options{APIKeys: keys})
	r := postRequest(call("work"))
	r.URL.RawQuery = "a=1&key=" + annKey + "&b=2&key=again"
	r.RequestURI = "/mcp?" + r.URL.RawQuery
	m.send(r)
	equal(t, "query", m.app.requests[0].URL.RawQuery, "a=1&b=2")
	equal(t, "uri", m.app.requests[0].RequestURI, "/mcp?a=1&b=2")
	alone := postRequest(call("work"))
	alone.URL.RawQuery = "key=" + annKey
	alone.RequestURI = "/mcp?" + alone.URL.RawQuery
	m.send(alone)
	equal(t, "uri", m.app.requests[1].RequestURI, "/mcp")
	m.post(call("work"), "X-API-Key", "my-wrong-secret")
	told := log.String() + fmt.Sprintf("%v %+v %#v %s", keys, keys, keys, keys)
	for _, secret := range []string{annKey, benKey, "my-wrong-secret"} {
		if strings.Contains(told, secret) {
			t.Error(secret)
		}
	}
	equal(t, "string", keys.String(), "<mcp.APIKeys of 2 keys>")
	for _, kept := range keys.users {
		if strings.Contains(string(kept.digest), annKey) || len(kept.digest) != 32 {
			t.Error("a key is kept")
		}
	}
}

func TestKeysAreReadFromTheEnvironment(t *testing.T) {
	keys, err := APIKeysFromEnv(environ(envKeys, " "+annKey+" : ann ,"+benKey+":user:1001,"))
	if err != nil || keys == nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{annKey: "ann", benKey: "user:1001", "": ""} {
		user, isKnown := keys.UserOf(key)
		equal(t, key, user, want)
		equal(t, key, isKnown, want != "")
	}
}

func TestAnEntryThatIsNoPairIsLeftOutAndWarnedAboutWithoutBeingTold(t *testing.T) {
	for _, entry := range []string{"s3cret", "s3cret:", ":ann", "s3cret: ", " : "} {
		log := logged(t)
		keys, err := APIKeysFromEnv(environ(envKeys, annKey+":ann,"+entry))
		if err != nil {
			t.Fatal(err)
		}
		if _, isKnown := keys.UserOf("s3cret"); isKnown {
			t.Error(entry)
		}
		if warnings(log) != 1 || !strings.Contains(log.String(), "MCP_API_KEYS: entry 2") || strings.Contains(log.String(), "s3cret") {
			t.Error(log)
		}
	}
	log := logged(t)
	keys, _ := ParseAPIKeys("k-secret:ann,k-secret:ben")
	user, _ := keys.UserOf("k-secret")
	equal(t, "twice", user, "ann")
	if !strings.Contains(log.String(), "entry 2") || strings.Contains(log.String(), "k-secret") {
		t.Error(log)
	}
}

func TestTheEnvironmentSaysWhetherAKeyIsDemanded(t *testing.T) {
	for _, each := range []struct {
		values     []string
		isDemanded bool
	}{
		{nil, false},
		{[]string{envKeys, ""}, false},
		{[]string{envKeys, "k:ann"}, true},
		{[]string{envKeys, "k:ann", envAuth, "false"}, false},
		{[]string{envKeys, "k:ann", envAuth, " OFF "}, false},
		{[]string{envKeys, "k:ann", envAuth, "0"}, false},
		{[]string{envKeys, "k:ann", envAuth, "yes"}, true},
		{[]string{envAuth, "true"}, true},
		{[]string{envAuth, "1"}, true},
	} {
		keys, err := APIKeysFromEnv(environ(each.values...))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, strings.Join(each.values, " "), keys != nil, each.isDemanded)
	}
	log := logged(t)
	keys, _ := APIKeysFromEnv(environ(envKeys, "k:ann", envAuth, "maybe"))
	if keys == nil || warnings(log) != 1 || !strings.Contains(log.String(), envAuth) {
		t.Error(log)
	}
	if keys, _ := APIKeysFromEnv(environ(envAuth, "true")); keys == nil || !strings.Contains(log.String(), "every request is refused") {
		t.Error(log)
	}
}

func TestProtectDemandsTheKeysOfTheEnvironmentUnlessItIsToldOthers(t *testing.T) {
	t.Setenv(envKeys, annKey+":ann")
	post := func(keys *APIKeys, header ...string) int {
		handler, err := Protect(&app{}, plainGate(t), Options{APIKeys: keys})
		if err != nil {
			t.Fatal(err)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, postRequest(call("work"), header...))
		return recorder.Code
	}
	equal(t, "without", post(nil), 401)
	equal(t, "with", post(nil, "X-API-Key", annKey), 200)
	equal(t, "none demanded", post(NoAPIKeys), 200)
	other, _ := NewAPIKeys(map[string]string{"another": "ben"})
	equal(t, "in code", post(other, "X-API-Key", annKey), 401)
	equal(t, "in code", post(other, "X-API-Key", "another"), 200)
}

func TestAnEmptyKeyOrUserAndALimitOutOfRangeAreErrors(t *testing.T) {
	for _, bad := range []map[string]string{{"": "ann"}, {"k": ""}} {
		if _, err := NewAPIKeys(bad); err == nil {
			t.Error(bad)
		}
	}
	if _, err := NewAPIKeys(users, callgate.RateLimit{}); err == nil {
		t.Error("a limit of nothing was taken")
	}
}
