package gosdk

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// TestMain is the server of the stdio tests, too.
func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		serveStdio()
		return
	}
	os.Exit(m.Run())
}

func hourly(burst uint64) callgate.Limit {
	return callgate.RateLimit{Count: 1, Per: time.Hour, Burst: burst}
}

func makeGate(t testing.TB) *callgate.Gate {
	t.Helper()
	shared, byCaller := callgate.ScopeShared, callgate.ScopeCaller
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"caller": hourly(3), "anonymous": hourly(3), "forwarded": hourly(9), "polling": hourly(2),
			"server": callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: time.Hour, FailureTrip: 2, Cooldown: time.Minute}},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated:   {{Limit: "caller", Scope: byCaller}, {Limit: "server", Scope: shared}},
			mcp.Anonymous:       {{Limit: "anonymous", Scope: shared}, {Limit: "server", Scope: shared}},
			mcp.ForwardedBearer: {{Limit: "forwarded", Scope: shared}, {Limit: "caller", Scope: byCaller}, {Limit: "server", Scope: shared}},
			"polling":           {{Limit: "polling", Scope: shared}},
		},
		Capacity: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

// tools is a server, its tools, and what ran.
type tools struct {
	t       testing.TB
	gate    *callgate.Gate
	metered *Middleware
	server  *sdk.Server
	ran     atomic.Int64
	waiting chan struct{}
	goOn    chan struct{}
	mutex   sync.Mutex
	callers []string
	used    uint64
	meta    sdk.Meta
}

func newTools(t testing.TB, gate *callgate.Gate, options Options) *tools {
	t.Helper()
	if gate == nil {
		gate = makeGate(t)
	}
	metered, err := New(gate, options)
	if err != nil {
		t.Fatal(err)
	}
	s := &tools{t: t, gate: gate, metered: metered, waiting: make(chan struct{}, 100), goOn: make(chan struct{})}
	s.server = sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s.server.AddReceivingMiddleware(metered.Receiving)
	s.add("work", func(ctx context.Context) error {
		if s.used > 0 {
			mcp.ReportUsage(ctx, s.used)
		}
		return nil
	})
	s.add("fail", func(context.Context) error { return errors.New("the tool is broken") })
	s.add("wait", func(ctx context.Context) error {
		s.waiting <- struct{}{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.goOn:
			return nil
		}
	})
	return s
}

func (s *tools) add(name string, run func(context.Context) error) {
	type none struct{}
	sdk.AddTool(s.server, &sdk.Tool{Name: name}, func(ctx context.Context, _ *sdk.CallToolRequest, _ none) (*sdk.CallToolResult, any, error) {
		s.ran.Add(1)
		caller, _ := mcp.CallerOf(ctx)
		s.mutex.Lock()
		s.callers = append(s.callers, caller.Identity)
		s.mutex.Unlock()
		return &sdk.CallToolResult{Meta: s.meta, Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil, run(ctx)
	})
}

// client is the SDK's own, connected in memory.
func (s *tools) client() *sdk.ClientSession {
	s.t.Helper()
	clientSide, serverSide := sdk.NewInMemoryTransports()
	if _, err := s.server.Connect(s.t.Context(), serverSide, nil); err != nil {
		s.t.Fatal(err)
	}
	return connect(s.t, clientSide)
}

func connect(t testing.TB, transport sdk.Transport) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func work(t testing.TB, session *sdk.ClientSession, tool string) (*sdk.CallToolResult, error) {
	t.Helper()
	return session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{}})
}

func (s *tools) charged(policy, caller string) uint64 {
	s.t.Helper()
	return charged(s.t, s.gate, policy, caller)
}

func charged(t testing.TB, gate *callgate.Gate, policy, caller string) uint64 {
	t.Helper()
	reports, err := gate.Peek(policy, callgate.Call{Caller: caller, NoCost: true})
	if err != nil {
		t.Fatal(err)
	}
	return reports[0].Limit - reports[0].Remaining
}

func (s *tools) drain() {
	for {
		permit, err := s.gate.Admit(mcp.Anonymous, callgate.Call{})
		if err != nil {
			return
		}
		_, _ = permit.Settle(callgate.Success)
	}
}

func (s *tools) inFlight() uint64 { return s.guards().InFlight }

func (s *tools) guards() callgate.Guards {
	s.t.Helper()
	guards, err := s.gate.Guards("server")
	if err != nil {
		s.t.Fatal(err)
	}
	return guards
}

// untilFree waits until no place is taken. It fails the test only after a long while.
func (s *tools) untilFree() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); s.inFlight() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal(s.inFlight(), " places are taken")
		}
	}
}

// transports are the ways to serve HTTP.
var transports = map[string]*sdk.StreamableHTTPOptions{
	"json":     {Stateless: true, JSONResponse: true},
	"sse":      {Stateless: true, PropagateRequestCancellation: true},
	"sessions": {},
}

// serveHTTP serves behind wrap, for users whose tokens are their names; no token is needed.
func (s *tools) serveHTTP(options *sdk.StreamableHTTPOptions, wrap func(http.Handler) (*mcp.Handler, error)) *httptest.Server {
	s.t.Helper()
	var handler http.Handler = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.server }, options)
	if wrap != nil {
		wrapped, err := wrap(handler)
		if err != nil {
			s.t.Fatal(err)
		}
		handler = wrapped
	}
	verified := auth.RequireBearerToken(func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		return &auth.TokenInfo{UserID: token, Expiration: time.Now().Add(time.Hour)}, nil
	}, nil)(handler)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" || r.Header.Get("Unverified") != "" {
			handler.ServeHTTP(w, r)
			return
		}
		verified.ServeHTTP(w, r)
	}))
	s.t.Cleanup(server.Close)
	return server
}

func (s *tools) protected(options mcp.Options) func(http.Handler) (*mcp.Handler, error) {
	return func(next http.Handler) (*mcp.Handler, error) {
		options.APIKeys = mcp.NoAPIKeys
		return Protect(next, s.gate, options)
	}
}

// user is a client of the SDK's own with these header fields.
func user(t testing.TB, server *httptest.Server, header ...string) *sdk.ClientSession {
	t.Helper()
	return connect(t, &sdk.StreamableClientTransport{Endpoint: server.URL, HTTPClient: &http.Client{Transport: fields(header)}})
}

// fields adds header fields: name, value, name, value.
type fields []string

func (f fields) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for n := 0; n < len(f); n += 2 {
		r.Header.Set(f[n], f[n+1])
	}
	return http.DefaultTransport.RoundTrip(r)
}

func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
