package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpgosdk "github.com/mark3labs/mcp-go/mcp"
	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// What is counted is what the server executes: every spelling of a request, on real servers. They are
// those of both SDKs, in both eras of the protocol. Each request is sent through the middleware to a
// gate with room, where no more may run than was charged, and to a drained gate, where nothing may run
// at all.

const modernVersion = "2026-07-28"

const meta = `{"io.modelcontextprotocol/protocolVersion":"` + modernVersion +
	`","io.modelcontextprotocol/clientCapabilities":{}}`

// served is a real MCP server behind the middleware, whose tool `work` notes that it ran.
type served struct {
	t      *testing.T
	gate   *callgate.Gate
	url    string
	ran    atomic.Int64
	header http.Header
	params string
}

// servers are made for a counter of the calls that ran.
var servers = map[string]func(ran *atomic.Int64) http.Handler{
	"go-handshake": func(ran *atomic.Int64) http.Handler {
		return goServer(ran, &gosdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	},
	"go-handshake-sse": func(ran *atomic.Int64) http.Handler {
		return goServer(ran, &gosdk.StreamableHTTPOptions{Stateless: true})
	},
	"go-session": func(ran *atomic.Int64) http.Handler {
		return goServer(ran, &gosdk.StreamableHTTPOptions{JSONResponse: true})
	},
	"go-modern": func(ran *atomic.Int64) http.Handler {
		return goServer(ran, &gosdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	},
	"mcp-go-handshake": mcpGoServer,
	"mcp-go-modern":    mcpGoServer,
}

func goServer(ran *atomic.Int64, options *gosdk.StreamableHTTPOptions) http.Handler {
	server := goTools(ran)
	return gosdk.NewStreamableHTTPHandler(func(*http.Request) *gosdk.Server { return server }, options)
}

func goTools(ran *atomic.Int64) *gosdk.Server {
	server := gosdk.NewServer(&gosdk.Implementation{Name: "test", Version: "1"}, nil)
	gosdk.AddTool(server, &gosdk.Tool{Name: "work"},
		func(context.Context, *gosdk.CallToolRequest, map[string]any) (*gosdk.CallToolResult, any, error) {
			ran.Add(1)
			return &gosdk.CallToolResult{}, nil, nil
		})
	return server
}

func mcpGoServer(ran *atomic.Int64) http.Handler {
	return mcpgoserver.NewStreamableHTTPServer(mcpGoTools(ran), mcpgoserver.WithStateLess(true))
}

func mcpGoTools(ran *atomic.Int64) *mcpgoserver.MCPServer {
	server := mcpgoserver.NewMCPServer("test", "1")
	server.AddTool(mcpgosdk.NewTool("work"), func(context.Context, mcpgosdk.CallToolRequest) (*mcpgosdk.CallToolResult, error) {
		ran.Add(1)
		return mcpgosdk.NewToolResultText("done"), nil
	})
	return server
}

func realGate(t *testing.T) *callgate.Gate {
	t.Helper()
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"anonymous": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 200}, "off": callgate.Off{}},
		Policies: map[string]callgate.Policy{
			mcp.Anonymous:     {{Limit: "anonymous", Scope: callgate.ScopeShared}},
			mcp.Authenticated: {{Limit: "off", Scope: callgate.ScopeCaller}},
		},
		Capacity: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

func serveReal(t *testing.T, name string) *served {
	t.Helper()
	gate := realGate(t)
	s := shaped(name)
	s.t, s.gate = t, gate
	handler, err := mcp.Protect(servers[name](&s.ran), gate, mcp.Options{APIKeys: mcp.NoAPIKeys,
		MeterOptions: mcp.MeterOptions{Clock: standing}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	if strings.HasSuffix(name, "-session") {
		s.openSession()
	}
	return s
}

// shaped is what a request to that server needs: fields and parameters, but for a session.
func shaped(name string) *served {
	s := &served{header: http.Header{
		"Accept":       {"application/json, text/event-stream"},
		"Content-Type": {"application/json"},
	}}
	if strings.HasSuffix(name, "-modern") {
		s.header.Set("Mcp-Protocol-Version", modernVersion)
		s.header.Set("Mcp-Method", "tools/call")
		s.header.Set("Mcp-Name", "work")
		s.params = `,"_meta":` + meta
	}
	return s
}

func standing() callgate.Instant { return callgate.At(uint64(time.Hour), uint64(time.Hour)) }

func (s *served) openSession() {
	s.t.Helper()
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26",` +
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	answer := s.send(initialize, nil)
	s.header.Set("Mcp-Session-Id", answer.Header.Get("Mcp-Session-Id"))
	s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
}

// send posts a body; changes replace header fields, and take those out that have no values.
func (s *served) send(body string, changes http.Header) *http.Response {
	s.t.Helper()
	var content io.Reader = strings.NewReader(body)
	header := s.header.Clone()
	maps.Copy(header, changes)
	if _, isChunked := changes["Chunked"]; isChunked {
		header.Del("Chunked")
		content = struct{ io.Reader }{content}
	}
	maps.DeleteFunc(header, func(_ string, values []string) bool { return len(values) == 0 })
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, content)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header = header
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	read, _ := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(read))
	return answer
}

func (s *served) message(id string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"work","arguments":{}` + s.params + `}}`
}

func (s *served) batch(count int) string {
	var calls []string
	for n := range count {
		calls = append(calls, s.message(fmt.Sprint(n)))
	}
	return "[" + strings.Join(calls, ",") + "]"
}

func (s *served) charged() int {
	s.t.Helper()
	reports, err := s.gate.Peek(mcp.Anonymous, callgate.Call{NoCost: true, At: standing()})
	if err != nil {
		s.t.Fatal(err)
	}
	return int(reports[0].Limit - reports[0].Remaining)
}

func (s *served) drain() {
	for {
		permit, err := s.gate.Admit(mcp.Anonymous, callgate.Call{At: standing()})
		if err != nil {
			return
		}
		_, _ = permit.Settle(callgate.Success)
	}
}

func each(t *testing.T, names []string, test func(t *testing.T, s *served, body string, header http.Header)) {
	for server := range servers {
		for _, name := range names {
			t.Run(server+"/"+name, func(t *testing.T) {
				s := serveReal(t, server)
				body, header := requests[name](s)
				test(t, s, body, header)
			})
		}
	}
}

func TestNoMoreRunsThanWasCharged(t *testing.T) {
	each(t, slices.Sorted(maps.Keys(requests)), func(t *testing.T, s *served, body string, header http.Header) {
		answer := s.send(body, header)
		if ran := int(s.ran.Load()); ran > s.charged() {
			t.Errorf("%d ran, %d charged", ran, s.charged())
		}
		if answer.StatusCode == 400 && s.ran.Load() > 0 {
			t.Error("it ran")
		}
	})
}

func TestNothingRunsOnADrainedGate(t *testing.T) {
	each(t, slices.Sorted(maps.Keys(requests)), func(t *testing.T, s *served, body string, header http.Header) {
		s.drain()
		s.send(body, header)
		if s.ran.Load() > 0 {
			t.Error("it ran")
		}
	})
}

func TestWhatTheServerTakesIsChargedOnceAndRunsOnce(t *testing.T) {
	taken := []string{"plain", "content type with an empty parameter", "content type with a charset",
		"method escaped", "method escaped at its beginning", "method with an escaped slash", "member name escaped",
		"white space around", "chunked", "id of a string"}
	each(t, taken, func(t *testing.T, s *served, body string, header http.Header) {
		answer := s.send(body, header)
		if answer.StatusCode != 200 || s.ran.Load() != 1 || s.charged() != 1 {
			read, _ := io.ReadAll(answer.Body)
			t.Errorf("%d: %d ran, %d charged: %s", answer.StatusCode, s.ran.Load(), s.charged(), read)
		}
	})
}

func TestWhatNobodyCanTellIsRefused(t *testing.T) {
	refused := map[string]int{"member name in capitals": 400, "params with a long s": 400, "tool name in capitals": 400,
		"method twice, in capitals": 400, "method twice, the call first": 400, "byte order mark": 400, "utf-16": 400,
		"invalid utf-8": 400, "trailing text": 400, "another message before": 400, "a batch and more": 400,
		"compressed": 415, "said to be compressed": 415, "compressed without saying so": 400}
	each(t, slices.Sorted(maps.Keys(refused)), func(t *testing.T, s *served, body string, header http.Header) {
		answer := s.send(body, header)
		_, name, _ := strings.Cut(t.Name(), "/")
		_, name, _ = strings.Cut(name, "/")
		if want := refused[strings.ReplaceAll(name, "_", " ")]; answer.StatusCode != want || s.charged() != 0 {
			t.Errorf("%d, not %d; %d charged", answer.StatusCode, want, s.charged())
		}
		var error struct{ JSONRPC string }
		if json.NewDecoder(answer.Body).Decode(&error) != nil || error.JSONRPC != "2.0" {
			t.Error("the server answered")
		}
	})
}

func TestABatchOfAHundredCostsAHundredWhetherItRunsOrNot(t *testing.T) {
	ran := map[string]int64{"go-handshake": 100, "go-handshake-sse": 100, "go-session": 100}
	each(t, []string{"a batch without a version"}, func(t *testing.T, s *served, body string, header http.Header) {
		s.send(body, header)
		server, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestABatchOfAHundredCostsAHundredWhetherItRunsOrNot/"), "/")
		if s.ran.Load() != ran[server] || s.charged() != 100 {
			t.Errorf("%d ran, %d charged", s.ran.Load(), s.charged())
		}
		s.drain()
		answer := s.send(body, header)
		if answer.StatusCode != 429 || answer.Header.Get("Retry-After") != fmt.Sprint(100*3_600) || s.ran.Load() != ran[server] {
			t.Error(answer.StatusCode, answer.Header)
		}
	})
}

func TestDiscoveryAnswersThroughADrainedGate(t *testing.T) {
	for server := range servers {
		for _, method := range []string{"tools/list", "ping", "initialize", "server/discover"} {
			t.Run(server+"/"+method, func(t *testing.T) {
				s := serveReal(t, server)
				s.drain()
				body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{"protocolVersion":"2025-11-25",`+
					`"capabilities":{},"clientInfo":{"name":"t","version":"1"}%s}}`, method, s.params)
				answer := s.send(body, http.Header{"Mcp-Method": {method}, "Mcp-Name": nil})
				read, _ := io.ReadAll(answer.Body)
				if answer.StatusCode == 429 || bytes.Contains(read, []byte("-31004")) {
					t.Error(answer.StatusCode, string(read))
				}
			})
		}
	}
}
