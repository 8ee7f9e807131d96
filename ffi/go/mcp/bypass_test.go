package mcp_test

import (
	"bytes"
	"compress/gzip"
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
	"unicode/utf16"

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
	s := &served{t: t, gate: gate, header: http.Header{
		"Accept":       {"application/json, text/event-stream"},
		"Content-Type": {"application/json"},
	}}
	handler, err := mcp.Protect(servers[name](&s.ran), gate, mcp.Options{APIKeys: mcp.NoAPIKeys,
		MeterOptions: mcp.MeterOptions{Clock: standing}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	switch {
	case strings.HasSuffix(name, "-modern"):
		s.header.Set("Mcp-Protocol-Version", modernVersion)
		s.header.Set("Mcp-Method", "tools/call")
		s.header.Set("Mcp-Name", "work")
		s.params = `,"_meta":` + meta
	case strings.HasSuffix(name, "-session"):
		s.openSession()
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

// a request is a body, and what it changes of the header.
type request func(s *served) (string, http.Header)

func withHeader(name string, values ...string) request {
	return func(s *served) (string, http.Header) {
		return s.message("1"), http.Header{name: values}
	}
}

func withBody(change func(string) string) request {
	return func(s *served) (string, http.Header) { return change(s.message("1")), nil }
}

func with(old, to string) request {
	return func(s *served) (string, http.Header) {
		body := s.message("1")
		if !strings.Contains(body, old) {
			s.t.Fatal("nothing to replace: ", old)
		}
		return strings.Replace(body, old, to, 1), nil
	}
}

func encoded(bigEndian bool) func(string) string {
	return func(text string) string {
		var to strings.Builder
		for _, unit := range utf16.Encode([]rune(text)) {
			pair := []byte{byte(unit), byte(unit >> 8)}
			if bigEndian {
				slices.Reverse(pair)
			}
			to.Write(pair)
		}
		return to.String()
	}
}

func gzipped(text string) string {
	var to bytes.Buffer
	writer := gzip.NewWriter(&to)
	_, _ = writer.Write([]byte(text))
	_ = writer.Close()
	return to.String()
}

const (
	method    = `"method":"tools/call"`
	arguments = `"arguments":{`
)

var requests = map[string]request{
	"plain":                                     withBody(func(text string) string { return text }),
	"content type with an empty parameter":      withHeader("Content-Type", "application/json;"),
	"content type with a charset":               withHeader("Content-Type", "application/json; charset=utf-8"),
	"content type with a wrong charset":         withHeader("Content-Type", "application/json; charset=utf-16"),
	"content type with a parameter twice":       withHeader("Content-Type", "application/json; a=1; a=2"),
	"content type with a bad parameter":         withHeader("Content-Type", `application/json; a="`),
	"content type in capitals":                  withHeader("Content-Type", "APPLICATION/JSON"),
	"content type missing":                      withHeader("Content-Type"),
	"content type empty":                        withHeader("Content-Type", ""),
	"content type of plain text":                withHeader("Content-Type", "text/plain"),
	"content type in a list, first":             withHeader("Content-Type", "application/json, text/plain"),
	"content type in a list, last":              withHeader("Content-Type", "text/plain, application/json"),
	"content type twice, json first":            withHeader("Content-Type", "application/json", "text/plain"),
	"content type twice, json last":             withHeader("Content-Type", "text/plain", "application/json"),
	"content type with a suffix":                withHeader("Content-Type", "application/jsonrequest"),
	"content type of a vendor":                  withHeader("Content-Type", "application/vnd.api+json"),
	"accept missing":                            withHeader("Accept"),
	"method escaped":                            with("tools/call", `tools\u002fcall`),
	"method escaped at its beginning":           with("tools/call", `\u0074ools/call`),
	"method with an escaped slash":              with("tools/call", `tools\/call`),
	"member name escaped":                       with(`"method"`, `"\u006dethod"`),
	"member name in capitals":                   with(`"method"`, `"Method"`),
	"member name in one capital":                with(`"method"`, `"methoD"`),
	"params in capitals":                        with(`"params"`, `"Params"`),
	"params with a long s":                      with(`"params"`, `"paramſ"`),
	"tool name in capitals":                     with(`"name"`, `"Name"`),
	"method respelled":                          with("tools/call", "Tools/Call"),
	"method with a space":                       with("tools/call", "tools/call "),
	"method with a null":                        with("tools/call", `tools/call\u0000`),
	"method in a list":                          with(method, `"method":["tools/call"]`),
	"method twice, the call last":               with(method, `"method":"ping",`+method),
	"method twice, the call first":              with(method, method+`,"method":"ping"`),
	"method twice, escaped":                     with(method, `"method":"ping","\u006dethod":"tools/call"`),
	"method twice, in capitals":                 with(method, `"method":"ping","Method":"tools/call"`),
	"method twice, in capitals, the call first": with(method, method+`,"METHOD":"ping"`),
	"method null and then the call":             with(method, `"method":null,`+method),
	"tool name twice":                           with(`"name":"work"`, `"name":"none","name":"work"`),
	"params twice":                              with(`"params"`, `"params":{"name":"none"},"params"`),
	"byte order mark":                           withBody(func(text string) string { return "\ufeff" + text }),
	"utf-16":                                    withBody(func(text string) string { return encoded(false)("\ufeff" + text) }),
	"utf-16 without a mark":                     withBody(encoded(false)),
	"utf-16, the other way round":               withBody(encoded(true)),
	"encoded surrogate":                         with(arguments, "\"\xed\xa0\x80\":1,"+arguments),
	"invalid utf-8":                             with(arguments, "\"\xff\":1,"+arguments),
	"escaped surrogate":                         with(arguments, `"x":"\ud800",`+arguments),
	"not a number":                              with(arguments, `"x":NaN,`+arguments),
	"a comment":                                 with(arguments, "/**/"+arguments),
	"a trailing comma":                          with(arguments, `"x":[1,],`+arguments),
	"a control character":                       with(arguments, "\"x\":\"\x01\","+arguments),
	"white space around":                        withBody(func(text string) string { return " \r\n\t" + text + "\r\n " }),
	"other white space":                         withBody(func(text string) string { return "\f\v\u00a0" + text }),
	"trailing text":                             withBody(func(text string) string { return text + " {}" }),
	"another message before":                    withBody(func(text string) string { return `{"jsonrpc":"2.0","id":9,"method":"ping"}` + text }),
	"another message after":                     withBody(func(text string) string { return text + text }),
	"a null at the end":                         withBody(func(text string) string { return text + "\x00" }),
	"truncated":                                 withBody(func(text string) string { return text[:len(text)-1] }),
	"deep nesting":                              with(arguments, `"x":`+strings.Repeat("[", 5_000)+strings.Repeat("]", 5_000)+","+arguments),
	"deeper nesting":                            with(arguments, `"x":`+strings.Repeat("[", 50_000)+strings.Repeat("]", 50_000)+","+arguments),
	"large integer":                             with(arguments, `"x":`+strings.Repeat("9", 5_000)+","+arguments),
	"large exponent":                            with(arguments, `"x":1e999,`+arguments),
	"chunked":                                   withHeader("Chunked", "yes"),
	"compressed": func(s *served) (string, http.Header) {
		return gzipped(s.message("1")), http.Header{"Content-Encoding": {"gzip"}}
	},
	"compressed without saying so": withBody(gzipped),
	"said to be compressed":        withHeader("Content-Encoding", "gzip"),
	"id of a string":               with(`"id":1`, `"id":"1"`),
	"id of null":                   with(`"id":1`, `"id":null`),
	"id of a fraction":             with(`"id":1`, `"id":1.5`),
	"id of a boolean":              with(`"id":1`, `"id":true`),
	"id of a list":                 with(`"id":1`, `"id":[1]`),
	"id missing":                   with(`"id":1,`, ""),
	"id twice":                     with(`"id":1`, `"id":null,"id":1`),
	"version missing":              with(`"jsonrpc":"2.0",`, ""),
	"version of another kind":      with(`"jsonrpc":"2.0"`, `"jsonrpc":"1.0"`),
	"a result beside the method":   with(method, `"result":{},`+method),
	"an error beside the method":   with(method, `"error":{"code":1,"message":""},`+method),
	"a batch of one":               func(s *served) (string, http.Header) { return s.batch(1), nil },
	"a batch of 25":                func(s *served) (string, http.Header) { return s.batch(25), nil },
	"a batch without a version": func(s *served) (string, http.Header) {
		return s.batch(100), http.Header{"Mcp-Protocol-Version": nil, "Mcp-Method": nil, "Mcp-Name": nil}
	},
	"a batch of an older version": func(s *served) (string, http.Header) {
		return s.batch(100), http.Header{"Mcp-Protocol-Version": {"2024-11-05"}}
	},
	"a batch in a batch":           func(s *served) (string, http.Header) { return "[" + s.batch(2) + "]", nil },
	"a batch and more":             func(s *served) (string, http.Header) { return s.batch(2) + s.batch(2), nil },
	"a batch with others":          withBody(func(text string) string { return `[{"jsonrpc":"2.0","id":8,"method":"ping"},` + text + "]" }),
	"a batch in capitals":          withBody(func(text string) string { return "[" + strings.Replace(text, "method", "Method", 1) + "]" }),
	"a batch of the same id":       withBody(func(text string) string { return "[" + text + "," + text + "]" }),
	"a session nobody opened":      withHeader("Mcp-Session-Id", "0123456789abcdef"),
	"no session":                   withHeader("Mcp-Session-Id"),
	"protocol version unknown":     withHeader("Mcp-Protocol-Version", "1999-01-01"),
	"protocol version missing":     withHeader("Mcp-Protocol-Version"),
	"another method in the header": withHeader("Mcp-Method", "ping"),
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
