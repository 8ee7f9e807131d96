package gosdk

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

func onEach(t *testing.T, test func(t *testing.T, options *sdk.StreamableHTTPOptions)) {
	for name, options := range transports {
		t.Run(name, func(t *testing.T) { test(t, options) })
	}
}

func TestBehindProtectOnOneGateACallIsChargedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		s := newTools(t, nil, Options{})
		session := user(t, s.serveHTTP(options, s.protected(mcp.Options{})))
		for n := range 5 {
			_, err := work(t, session, "work")
			same(t, "refused", err != nil, n >= 3)
		}
		same(t, "ran", s.ran.Load(), 3)
		same(t, "charged", s.charged(mcp.Anonymous, ""), 3)
		s.untilFree()
	})
}

func TestBehindProtectOnAnotherGateItIsChargedAtBoth(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		outer := makeGate(t)
		s := newTools(t, nil, Options{})
		session := user(t, s.serveHTTP(options, func(next http.Handler) (*mcp.Handler, error) {
			return Protect(next, outer, mcp.Options{APIKeys: mcp.NoAPIKeys})
		}))
		for range 3 {
			_, _ = work(t, session, "work")
		}
		same(t, "inner", s.charged(mcp.Anonymous, ""), 3)
		same(t, "outer", charged(t, outer, mcp.Anonymous, ""), 3)
	})
}

func TestAVerifiedCallerIsTheSameWithAndWithoutProtect(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		for name, isProtected := range map[string]bool{"alone": false, "behind": true} {
			s := newTools(t, nil, Options{})
			wrap := s.protected(mcp.Options{})
			if !isProtected {
				wrap = nil
			}
			server := s.serveHTTP(options, wrap)
			ann, ben := user(t, server, "Authorization", "Bearer ann"), user(t, server, "Authorization", "Bearer ben")
			for range 2 {
				_, _ = work(t, ann, "work")
			}
			_, _ = work(t, ben, "work")
			same(t, name, s.charged(mcp.Authenticated, "token:(None, 'subject', 'ann')"), 2)
			same(t, name, s.charged(mcp.Authenticated, "token:(None, 'subject', 'ben')"), 1)
			same(t, name, s.charged(mcp.Anonymous, ""), 0)
			same(t, name, slices.Contains(s.callers, "token:(None, 'subject', 'ben')"), true)
			s.untilFree()
		}
	})
}

func TestAnUnverifiedBearerIsKnownInsideTheSDKToo(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		s := newTools(t, nil, Options{})
		session := user(t, s.serveHTTP(options, nil), "Authorization", "Bearer x", "Unverified", "yes")
		for range 4 {
			_, _ = work(t, session, "work")
		}
		same(t, "ran", s.ran.Load(), 3)
		same(t, "forwarded", s.charged(mcp.ForwardedBearer, "\x00bearer\x00x"), 3)
		same(t, "anonymous", s.charged(mcp.Anonymous, ""), 0)
	})
}

// A session runs in the context of the request that opened it: the caller is that of each request.
func TestTheUserOfAnAPIKeyIsKnownInTheToolsOfASession(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		keys, err := mcp.NewAPIKeys(map[string]string{"key-a": "ann", "key-b": "ben"})
		if err != nil {
			t.Fatal(err)
		}
		s := newTools(t, nil, Options{})
		server := s.serveHTTP(options, func(next http.Handler) (*mcp.Handler, error) {
			return mcp.Protect(next, s.gate, mcp.Options{APIKeys: keys})
		})
		key := &switching{key: "key-a"}
		session := connect(t, &sdk.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: key}})
		_, _ = work(t, session, "work")
		key.key = "key-b"
		_, _ = work(t, session, "work")
		same(t, "callers", fmt.Sprint(s.callers), "[ann ben]")
		same(t, "ann", s.charged(mcp.Authenticated, "ann"), 1)
		same(t, "ben", s.charged(mcp.Authenticated, "ben"), 1)
	})
}

type switching struct{ key string }

func (s *switching) RoundTrip(r *http.Request) (*http.Response, error) {
	return fields{"X-API-Key", s.key}.RoundTrip(r)
}

func quotaGate(t *testing.T) *callgate.Gate {
	t.Helper()
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour}},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated: {{Limit: "tokens", Scope: callgate.ScopeCaller}},
			mcp.Anonymous:     {{Limit: "tokens", Scope: callgate.ScopeShared}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

func (s *tools) untilCharged(units uint64) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); s.charged(mcp.Anonymous, "") != units; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal(s.charged(mcp.Anonymous, ""))
		}
	}
}

func TestToolsReportThroughBothMiddlewares(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		s := newTools(t, quotaGate(t), Options{})
		s.used = 300
		session := user(t, s.serveHTTP(options, s.protected(mcp.Options{})))
		for range 2 {
			_, _ = work(t, session, "work")
		}
		s.untilCharged(600)
	})
}

func TestWhatResultsStateIsReadInFrontOfTheServerAlone(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		s := newTools(t, makeGate(t), Options{}) // another gate than the one in front
		s.gate, s.meta = quotaGate(t), sdk.Meta{"callgate/used": 300}
		stated := mcp.Options{MeterOptions: mcp.MeterOptions{UsageMeta: "callgate/used"}}
		session := user(t, s.serveHTTP(options, s.protected(stated)))
		for range 2 {
			_, _ = work(t, session, "work")
		}
		s.untilCharged(600)
	})
}

func TestARefusalOverHTTPIsTheAnswerToTheRequest(t *testing.T) {
	s := newTools(t, nil, Options{})
	s.drain()
	server := s.serveHTTP(transports["json"], nil)
	const call = `{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"work","arguments":{}}}`
	r, _ := http.NewRequestWithContext(t.Context(), "POST", server.URL, strings.NewReader(call))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, _ := io.ReadAll(answer.Body)
	if !strings.Contains(string(body), `"id":"x"`) || !strings.Contains(string(body), `"code":-31004`) {
		t.Error(string(body))
	}
	same(t, "ran", s.ran.Load(), 0)
}

// Clients go away at any moment: before, while and after their tool runs.
func TestNoPlaceIsLeftTakenByClientsThatLeave(t *testing.T) {
	onEach(t, func(t *testing.T, options *sdk.StreamableHTTPOptions) {
		gate, err := callgate.New(callgate.Config{
			Limits: map[string]callgate.Limit{"server": callgate.ConcurrencyLimit{MaxInFlight: 1_000, Lease: time.Hour}},
			Policies: map[string]callgate.Policy{
				mcp.Authenticated: {{Limit: "server", Scope: callgate.ScopeShared}},
				mcp.Anonymous:     {{Limit: "server", Scope: callgate.ScopeShared}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newTools(t, gate, Options{})
		server := s.serveHTTP(options, s.protected(mcp.Options{}))
		session := user(t, server)
		for n := range 60 {
			ctx, leave := context.WithCancel(t.Context())
			tool := []string{"wait", "work", "fail"}[n%3]
			go func() {
				switch {
				case n%5 == 0:
				case tool == "wait":
					<-s.waiting
				}
				leave()
			}()
			_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
			<-ctx.Done()
		}
		close(s.goOn)
		s.untilFree()
		same(t, "lapsed", s.guards().Lapsed, 0)
	})
}

func TestAHandlerThatOutlivesItsClientKeepsThePlace(t *testing.T) {
	s := newTools(t, nil, Options{})
	server := s.serveHTTP(&sdk.StreamableHTTPOptions{Stateless: true}, s.protected(mcp.Options{}))
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}`
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", server.URL, strings.NewReader(call))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	go func() {
		<-s.waiting
		leave()
	}()
	if answer, err := http.DefaultClient.Do(r); err == nil {
		// The header has come, which an event stream sends at once.
		_, _ = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	same(t, "while it runs", s.inFlight(), 1)
	close(s.goOn)
	s.untilFree()
}

func TestTheIdentityOfATokenIsItsPrincipal(t *testing.T) {
	extra := func(pairs ...string) *auth.TokenInfo {
		info := &auth.TokenInfo{Extra: map[string]any{}}
		for n := 0; n < len(pairs); n += 2 {
			info.Extra[pairs[n]] = pairs[n+1]
		}
		return info
	}
	same(t, "no token", TokenIdentity(nil), "")
	same(t, "no principal", TokenIdentity(extra("scope", "all")), "")
	same(t, "another type", TokenIdentity(&auth.TokenInfo{Extra: map[string]any{"sub": 7}}), "")
	same(t, "a user", TokenIdentity(&auth.TokenInfo{UserID: "ann"}), "token:(None, 'subject', 'ann')")
	same(t, "a subject", TokenIdentity(extra("sub", "ann", "client_id", "a")), TokenIdentity(extra("sub", "ann", "client_id", "b")))
	same(t, "an issuer", TokenIdentity(extra("sub", "ann", "iss", "a")) == TokenIdentity(extra("sub", "ann", "iss", "b")), false)
	one := TokenIdentity(extra("iss", "a', 'subject', 'b", "client_id", "c"))
	same(t, "parts stay apart", one == TokenIdentity(extra("iss", "a", "sub", "b', 'client', 'c")), false)
	for _, client := range []string{"ann", "subject', 'ann", "', 'ann", `\', 'ann`} {
		same(t, client, TokenIdentity(extra("client_id", client)) == TokenIdentity(extra("sub", "ann")), false)
	}
}

func postRaw(t *testing.T, url, body string, header ...string) string {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	read, _ := io.ReadAll(answer.Body)
	return string(read)
}

func TestARefusalAsAResultIsWhatEachEraExpects(t *testing.T) {
	s := newTools(t, nil, Options{RefuseWith: mcp.RefuseWithResult})
	s.drain()
	url := s.serveHTTP(transports["json"], nil).URL
	const version = "2026-07-28"
	modern := postRaw(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"`+version+`","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		"Mcp-Protocol-Version", version, "Mcp-Method", "tools/call", "Mcp-Name", "work")
	legacy := postRaw(t, url, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{}}}`)
	for era, answer := range map[string]string{"modern": modern, "legacy": legacy} {
		if !strings.Contains(answer, `"isError":true`) || !strings.Contains(answer, refusedText) {
			t.Error(era, answer)
		}
		same(t, era, strings.Contains(answer, `"resultType":"complete"`), era == "modern")
	}
}

// Of the older transport the SDK hands on nothing of the request that carried a call.
func TestOnTheOlderTransportEachMiddlewareMetersByItself(t *testing.T) {
	for name, isProtected := range map[string]bool{"the handlers": false, "the requests": true} {
		s := newTools(t, nil, Options{})
		served := s.server
		if isProtected {
			served = sdk.NewServer(&sdk.Implementation{Name: "bare", Version: "1"}, nil)
			sdk.AddTool(served, &sdk.Tool{Name: "work"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
				return &sdk.CallToolResult{}, nil, nil
			})
		}
		var handler http.Handler = sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return served }, nil)
		if isProtected {
			var err error
			if handler, err = Protect(handler, s.gate, mcp.Options{APIKeys: mcp.NoAPIKeys}); err != nil {
				t.Fatal(err)
			}
		}
		server := httptest.NewServer(handler)
		session := connect(t, &sdk.SSEClientTransport{Endpoint: server.URL})
		for range 2 {
			if _, err := work(t, session, "work"); err != nil {
				t.Error(err)
			}
		}
		same(t, name, s.charged(mcp.Anonymous, ""), 2)
		_ = session.Close()
		server.CloseClientConnections()
		server.Close()
	}
}

func TestTheTokenOfAMessageIsThatOfItsOwnRequest(t *testing.T) {
	var opener context.Context
	verify := func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: "ann", Expiration: time.Now().Add(time.Hour)}, nil
	}
	opening := httptest.NewRequest(http.MethodPost, "/", nil)
	opening.Header.Set("Authorization", "Bearer x")
	auth.RequireBearerToken(verify, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		opener = r.Context()
	})).ServeHTTP(httptest.NewRecorder(), opening)
	overHTTP := &sdk.CallToolRequest{Extra: &sdk.RequestExtra{Header: http.Header{}}}
	same(t, "over HTTP", callerOf(opener, overHTTP) == nil, true)
	same(t, "elsewhere", callerOf(opener, &sdk.CallToolRequest{}).Identity, "token:(None, 'subject', 'ann')")
}
