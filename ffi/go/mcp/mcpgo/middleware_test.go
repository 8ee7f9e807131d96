package mcpgo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

func makeGate(t testing.TB) *callgate.Gate {
	t.Helper()
	hourly := func(burst uint64) callgate.Limit {
		return callgate.RateLimit{Count: 1, Per: time.Hour, Burst: burst}
	}
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"caller": hourly(3), "anonymous": hourly(3), "forwarded": hourly(9),
			"tokens": callgate.Quota{Limit: 1_000, Per: 24 * time.Hour},
			"server": callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: time.Hour, FailureTrip: 2, Cooldown: time.Minute}},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated: {{Limit: "caller", Scope: callgate.ScopeCaller}, {Limit: "server", Scope: callgate.ScopeShared}},
			mcp.Anonymous: {{Limit: "anonymous", Scope: callgate.ScopeShared}, {Limit: "tokens", Scope: callgate.ScopeShared},
				{Limit: "server", Scope: callgate.ScopeShared}},
			mcp.ForwardedBearer: {{Limit: "forwarded", Scope: callgate.ScopeShared}, {Limit: "caller", Scope: callgate.ScopeCaller}},
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
	server  *server.MCPServer
	ran     atomic.Int64
	waiting chan struct{}
}

func newTools(t testing.TB, options Options, more ...server.ServerOption) *tools {
	t.Helper()
	s := &tools{t: t, gate: makeGate(t), waiting: make(chan struct{}, 10)}
	metered, err := New(s.gate, options)
	if err != nil {
		t.Fatal(err)
	}
	s.metered = metered
	s.server = server.NewMCPServer("test", "1", append(more, server.WithToolHandlerMiddleware(metered.Tools))...)
	s.add("work", func(ctx context.Context) (*sdk.CallToolResult, error) {
		mcp.ReportUsage(ctx, 5)
		return sdk.NewToolResultText("done"), nil
	})
	s.add("state", func(context.Context) (*sdk.CallToolResult, error) {
		result := sdk.NewToolResultText("done")
		result.Meta = &sdk.Meta{AdditionalFields: map[string]any{"callgate/used": 70}}
		return result, nil
	})
	s.add("fail", func(context.Context) (*sdk.CallToolResult, error) { return nil, errors.New("broken") })
	s.add("wrong", func(context.Context) (*sdk.CallToolResult, error) { return sdk.NewToolResultError("wrong"), nil })
	s.add("panic", func(context.Context) (*sdk.CallToolResult, error) { panic("broken") })
	s.add("wait", func(ctx context.Context) (*sdk.CallToolResult, error) {
		s.waiting <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	s.add("who", func(ctx context.Context) (*sdk.CallToolResult, error) {
		caller, _ := mcp.CallerOf(ctx)
		return sdk.NewToolResultText(caller.Identity), nil
	})
	return s
}

func (s *tools) add(name string, run func(context.Context) (*sdk.CallToolResult, error)) {
	s.server.AddTool(sdk.NewTool(name), func(ctx context.Context, _ sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.ran.Add(1)
		return run(ctx)
	})
}

func (s *tools) client() *client.Client {
	s.t.Helper()
	c, err := client.NewInProcessClient(s.server)
	if err != nil {
		s.t.Fatal(err)
	}
	var request sdk.InitializeRequest
	request.Params.ProtocolVersion = sdk.LATEST_PROTOCOL_VERSION
	if _, err := c.Initialize(s.t.Context(), request); err != nil {
		s.t.Fatal(err)
	}
	return c
}

func work(ctx context.Context, c *client.Client, tool string) (*sdk.CallToolResult, error) {
	var request sdk.CallToolRequest
	request.Params.Name = tool
	return c.CallTool(ctx, request)
}

func text(result *sdk.CallToolResult) string {
	if result == nil || len(result.Content) != 1 {
		return ""
	}
	content, _ := result.Content[0].(sdk.TextContent)
	return content.Text
}

func (s *tools) charged(policy, caller string, limit int) uint64 {
	s.t.Helper()
	reports, err := s.gate.Peek(policy, callgate.Call{Caller: caller, NoCost: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return reports[limit].Limit - reports[limit].Remaining
}

func (s *tools) guards() callgate.Guards {
	s.t.Helper()
	guards, err := s.gate.Guards("server")
	if err != nil {
		s.t.Fatal(err)
	}
	return guards
}

func (s *tools) untilFree() {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); s.guards().InFlight > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("a place is taken")
		}
	}
}

func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestARefusalIsAResultThatAModelCanPassOn(t *testing.T) {
	s := newTools(t, Options{})
	c := s.client()
	for range 3 {
		if result, err := work(t.Context(), c, "work"); err != nil || result.IsError {
			t.Fatal(err)
		}
	}
	result, err := work(t.Context(), c, "work")
	if err != nil || !result.IsError {
		t.Fatal(err)
	}
	same(t, "text", text(result), "Too many tool calls: the limit 'anonymous' is reached. Try again in 60 minutes.")
	same(t, "ran", s.ran.Load(), 3)
	if listed, err := c.ListTools(t.Context(), sdk.ListToolsRequest{}); err != nil || len(listed.Tools) != 7 {
		t.Error(err)
	}
}

func TestACallThatFailsIsAFailureAndOneThatPanicsToo(t *testing.T) {
	for _, tool := range []string{"fail", "panic", "wrong"} {
		s := newTools(t, Options{}, server.WithRecovery())
		c := s.client()
		for range 2 {
			if result, err := work(t.Context(), c, tool); err == nil && !result.IsError {
				t.Error("no error")
			}
		}
		same(t, tool, s.guards().Open, 1)
		same(t, tool, s.guards().InFlight, 0)
	}
}

func TestBadArgumentsDoNotCountAgainstTheServer(t *testing.T) {
	type typed struct{ N int }
	required := func(_ context.Context, request sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if _, err := request.RequireInt("N"); err != nil {
			return sdk.NewToolResultError(err.Error()), nil
		}
		_, err := request.RequireStringSlice("names")
		return nil, err
	}
	for name, each := range map[string]struct {
		tool      server.ToolHandlerFunc
		arguments any
	}{
		"typed": {sdk.NewTypedToolHandler(func(context.Context, sdk.CallToolRequest, typed) (*sdk.CallToolResult, error) {
			return sdk.NewToolResultText("done"), nil
		}), map[string]any{"N": "one"}},
		"structured": {sdk.NewStructuredToolHandler(func(context.Context, sdk.CallToolRequest, typed) (int, error) {
			return 1, nil
		}), []int{1}},
		"missing":  {required, nil},
		"no int":   {required, map[string]any{"N": true}},
		"no digit": {required, map[string]any{"N": "one"}},
		"no list":  {required, map[string]any{"N": 1, "names": 2}},
		"an item":  {required, map[string]any{"N": 1, "names": []any{"a", 2}}},
		"a flow": {func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, sdk.URLElicitationRequiredError{}
		}, nil},
		"its own word": {func(context.Context, sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, fmt.Errorf("no such city: %w", sdk.ErrInvalidParams)
		}, nil},
	} {
		s := newTools(t, Options{})
		s.server.AddTool(sdk.NewTool("picky"), each.tool)
		c := s.client()
		for range 3 {
			var request sdk.CallToolRequest
			request.Params.Name, request.Params.Arguments = "picky", each.arguments
			if result, err := c.CallTool(t.Context(), request); err == nil && !result.IsError {
				t.Error(name, text(result))
			}
		}
		same(t, name+": breakers", s.guards().Open, 0)
		same(t, name+": charged", s.charged(mcp.Anonymous, "", 0), 3)
	}
}

func TestACallWhoseContextEndsIsAbandoned(t *testing.T) {
	s := newTools(t, Options{})
	c := s.client()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-s.waiting
			cancel()
		}()
		_, _ = work(ctx, c, "wait")
		cancel()
		s.untilFree()
	}
	same(t, "no failures", s.guards().Open, 0)
	same(t, "charged", s.charged(mcp.Anonymous, "", 0), 3)
}

func TestWhatToolsUseIsReportedOrStatedByTheirResults(t *testing.T) {
	s := newTools(t, Options{MeterOptions: mcp.MeterOptions{UsageMeta: "callgate/used"}})
	c := s.client()
	_, _ = work(t.Context(), c, "work")
	same(t, "reported", s.charged(mcp.Anonymous, "", 1), 5)
	_, _ = work(t.Context(), c, "state")
	same(t, "stated", s.charged(mcp.Anonymous, "", 1), 75)
}

func TestAnInternalErrorAdmitsAndIsCountedOrRefuses(t *testing.T) {
	s := newTools(t, Options{})
	c := s.client()
	_ = s.gate.Close()
	if result, err := work(t.Context(), c, "work"); err != nil || result.IsError {
		t.Error(err)
	}
	same(t, "counted", s.metered.InternalErrors(), 1)
	s = newTools(t, Options{MeterOptions: mcp.MeterOptions{OnError: mcp.OnErrorRefuse}})
	c = s.client()
	_ = s.gate.Close()
	result, err := work(t.Context(), c, "work")
	if err != nil || !result.IsError {
		t.Fatal(err)
	}
	same(t, "text", text(result), "The call limiter failed, and this server refuses calls then.")
}

func TestBadOptionsAreRefusedAtStart(t *testing.T) {
	polling := map[string]mcp.PolicyChoice{"tasks/get": {Policy: mcp.Anonymous}}
	for name, options := range map[string]mcp.MeterOptions{"methods": {Methods: polling}, "on_error": {OnError: 7}} {
		if _, err := New(makeGate(t), Options{options}); err == nil || !strings.Contains(err.Error(), name) {
			t.Error(name, err)
		}
	}
}

// --- over HTTP ---------------------------------------------------------------------------------

func (s *tools) serve(options mcp.Options, serve func(*server.MCPServer) http.Handler) *httptest.Server {
	s.t.Helper()
	if options.APIKeys == nil {
		options.APIKeys = mcp.NoAPIKeys
	}
	handler, err := mcp.Protect(serve(s.server), s.gate, options)
	if err != nil {
		s.t.Fatal(err)
	}
	listening := httptest.NewServer(handler)
	s.t.Cleanup(listening.Close)
	return listening
}

func streamable(s *server.MCPServer) http.Handler {
	return server.NewStreamableHTTPServer(s, server.WithStateLess(true))
}

func callOf(tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool)
}

func post(ctx context.Context, url, body string, header ...string) (int, string) {
	r, _ := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = answer.Body.Close() }()
	read, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(read)
}

func TestBehindProtectOnOneGateACallIsChargedOnce(t *testing.T) {
	s := newTools(t, Options{})
	url := s.serve(mcp.Options{}, streamable).URL
	for _, want := range []int{200, 200, 200, 429, 429} {
		status, _ := post(t.Context(), url, callOf("work"))
		same(t, "status", status, want)
	}
	same(t, "ran", s.ran.Load(), 3)
	same(t, "charged", s.charged(mcp.Anonymous, "", 0), 3)
	same(t, "used", s.charged(mcp.Anonymous, "", 1), 15)
	s.untilFree()
}

func TestTheUserOfAnAPIKeyIsKnownInTools(t *testing.T) {
	keys, err := mcp.NewAPIKeys(map[string]string{"key-a": "ann"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTools(t, Options{})
	url := s.serve(mcp.Options{APIKeys: keys}, streamable).URL
	_, body := post(t.Context(), url, callOf("who"), "X-API-Key", "key-a")
	if !strings.Contains(body, `"text":"ann"`) {
		t.Error(body)
	}
	same(t, "charged", s.charged(mcp.Authenticated, "ann", 0), 1)
}

func TestUnknownToolsAreChargedInFrontOfTheServer(t *testing.T) {
	s := newTools(t, Options{})
	url := s.serve(mcp.Options{}, streamable).URL
	for _, want := range []int{200, 200, 200, 429} {
		status, _ := post(t.Context(), url, callOf("none such"))
		same(t, "status", status, want)
	}
}

func TestNoPlaceIsLeftTakenByClientsThatLeave(t *testing.T) {
	s := newTools(t, Options{})
	url := s.serve(mcp.Options{}, streamable).URL
	for range 3 {
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			<-s.waiting
			leave()
		}()
		status, _ := post(ctx, url, callOf("wait"))
		same(t, "status", status, 0)
		leave()
		s.untilFree()
	}
	same(t, "no failures", s.guards().Open, 0)
	same(t, "lapsed", s.guards().Lapsed, 0)
}

// On the older transport a call is answered with 202, and its result comes over another connection.
func TestOnTheOlderTransportACallIsChargedOnceAndKeepsItsPlaceUntilItEnds(t *testing.T) {
	s := newTools(t, Options{})
	goOn := make(chan struct{})
	s.add("slow", func(context.Context) (*sdk.CallToolResult, error) {
		s.waiting <- struct{}{}
		<-goOn
		return sdk.NewToolResultText("done"), nil
	})
	status, body := post(t.Context(), s.serveSSE(), callOf("slow"))
	same(t, body, status, http.StatusAccepted)
	<-s.waiting
	same(t, "while it runs", s.guards().InFlight, 1)
	close(goOn)
	s.untilFree()
	same(t, "charged", s.charged(mcp.Anonymous, "", 0), 1)
}

// A call that nobody runs must not keep its place for as long as a handler may take to come.
func TestOnTheOlderTransportACallOfAnUnknownToolGivesItsPlaceBackSoon(t *testing.T) {
	s := newTools(t, Options{})
	url := s.serveSSE()
	begun := time.Now()
	for range 3 {
		status, body := post(t.Context(), url, callOf("none such"))
		same(t, body, status, http.StatusAccepted)
	}
	s.untilFree()
	if took := time.Since(begun); took > 4*time.Second {
		t.Error(took)
	}
	same(t, "charged", s.charged(mcp.Anonymous, "", 0), 3)
}

// serveSSE serves the older transport, and gives the address of a session's messages.
func (s *tools) serveSSE() string {
	s.t.Helper()
	listening := s.serve(mcp.Options{}, func(m *server.MCPServer) http.Handler { return server.NewSSEServer(m) })
	stream, err := http.Get(listening.URL + "/sse")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = stream.Body.Close() })
	_, id, _ := strings.Cut(readUntil(s.t, stream.Body, "sessionId="), "sessionId=")
	return listening.URL + "/message?sessionId=" + strings.TrimSpace(id)
}

// readUntil reads lines until one has that in it.
func readUntil(t testing.TB, from io.Reader, what string) string {
	t.Helper()
	var line bytes.Buffer
	for one := make([]byte, 1); ; {
		if _, err := from.Read(one); err != nil {
			t.Fatal(err)
		}
		line.Write(one)
		if one[0] != '\n' {
			continue
		}
		if strings.Contains(line.String(), what) {
			return line.String()
		}
		line.Reset()
	}
}
