package mcp_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	mcpgoserver "github.com/mark3labs/mcp-go/server"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate/mcp"
)

// The older transport of both SDKs: a call is answered with 202, and runs meanwhile. One of them asks for
// no content type.
var olderServers = map[string]func(ran *atomic.Int64) http.Handler{
	"go": func(ran *atomic.Int64) http.Handler {
		server := goTools(ran)
		return gosdk.NewSSEHandler(func(*http.Request) *gosdk.Server { return server }, nil)
	},
	"mcp-go": func(ran *atomic.Int64) http.Handler {
		return mcpgoserver.NewSSEServer(mcpGoTools(ran))
	},
}

// stream is the response of a GET that stays open, and where it says to post messages.
type stream struct {
	mutex    sync.Mutex
	header   http.Header
	text     bytes.Buffer
	endpoint chan string
}

var endpointLine = regexp.MustCompile(`data: (\S*[?&]session[iI]d=\S+)`)

func (s *stream) Header() http.Header { return s.header }
func (s *stream) WriteHeader(int)     {}
func (s *stream) Flush()              {}
func (s *stream) Write(part []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.text.Write(part)
	if found := endpointLine.FindSubmatch(s.text.Bytes()); found != nil {
		select {
		case s.endpoint <- string(found[1]):
		default:
		}
	}
	return len(part), nil
}

func TestOnTheOlderTransportNothingRunsThatWasNotCharged(t *testing.T) {
	for server := range olderServers {
		for _, name := range slices.Sorted(maps.Keys(requests)) {
			t.Run(server+"/"+name, func(t *testing.T) {
				for _, kind := range []string{"application/json", "text/plain"} {
					synctest.Test(t, func(t *testing.T) { sendOlder(t, server, name, kind, false) })
					synctest.Test(t, func(t *testing.T) { sendOlder(t, server, name, kind, true) })
				}
			})
		}
	}
}

// sendOlder runs in a bubble, so that the server can be waited for.
func sendOlder(t *testing.T, server, name, kind string, isDrained bool) {
	s := &served{t: t, gate: realGate(t)}
	handler, err := mcp.Protect(olderServers[server](&s.ran), s.gate, mcp.Options{APIKeys: mcp.NoAPIKeys,
		MeterOptions: mcp.MeterOptions{Clock: standing}})
	if err != nil {
		t.Fatal(err)
	}
	open := &stream{header: http.Header{}, endpoint: make(chan string, 1)}
	go handler.ServeHTTP(open, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/sse", nil))
	endpoint := <-open.endpoint
	post := func(body string, changes http.Header) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader(body))
		if !strings.Contains(endpoint, "message") && server == "mcp-go" {
			t.Fatal(endpoint)
		}
		r.Header.Set("Content-Type", kind)
		for field, values := range changes {
			if kind == "application/json" || field != "Content-Type" {
				r.Header[field] = values
			}
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		synctest.Wait()
	}
	kindOf := http.Header{"Content-Type": {"application/json"}}
	post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26",`+
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, kindOf)
	post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, kindOf)
	if isDrained {
		s.drain()
	}
	body, header := requests[name](s)
	before := s.charged()
	post(body, header)
	if ran := int(s.ran.Load()); ran > s.charged()-before {
		t.Errorf("%s: %d ran, %d charged", kind, ran, s.charged()-before)
	}
	if server == "mcp-go" && name == "plain" && !isDrained && s.ran.Load() != 1 {
		t.Error("the server is not reached")
	}
}
