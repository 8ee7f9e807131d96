package mcp_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// FuzzHTTP sends any HTTP request to the servers of both SDKs behind the middleware, on their newer and
// on their older transport, and demands that
//
//   - no more runs than the gate was charged for;
//   - nothing runs where the answer is a refusal;
//   - on a drained gate, nothing runs at all;
//   - whatever was admitted is settled once all is over;
//   - nothing panics, and the middleware itself does not fail.
//
// Seeds are all requests of this package, and one with each edit. fuzz/run.sh runs it.
func FuzzHTTP(f *testing.F) {
	for request := range spelled {
		f.Add([]byte{byte(request % len(fuzzedServers)), byte(request)}, []byte("any bytes"))
	}
	for edit := range len(edits) + 2 {
		f.Add([]byte{byte(edit % len(fuzzedServers)), 0, 0, 0, 1, byte(edit), 2, 3}, []byte("any bytes"))
	}
	for server := range fuzzedServers {
		f.Add([]byte{byte(server), 0, 1, byte(server), 0, 2, 2}, []byte{})
		for method := range methods {
			f.Add([]byte{byte(server), 0, 0, 0, 0, 19, byte(method)}, []byte{})
		}
	}
	f.Fuzz(func(t *testing.T, choices, bytes []byte) {
		request := fuzzed{choices, bytes}
		var fault string
		var isCharged bool
		synctest.Test(t, func(*testing.T) { fault, isCharged = onOpenGate(request) })
		if fault == "" && isCharged {
			synctest.Test(t, func(*testing.T) { fault = onDrainedGate(request) })
		}
		if fault != "" {
			t.Fatalf("%s: %s\n%q", request.server(), fault, request.raw("/mcp", "SESSION"))
		}
	})
}

func TestAPlainCallReachesEveryServerThatIsFuzzed(t *testing.T) {
	for server, name := range fuzzedServers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := serveFuzzed(name, 3)
				defer b.close()
				before := b.charged()
				b.send(fuzzed{choices: []byte{byte(server)}}.raw(b.target, b.session))
				if b.ran.Load() != 1 || b.charged()-before != 1 {
					t.Errorf("%d ran, %d charged", b.ran.Load(), b.charged()-before)
				}
			})
		})
	}
}

func onOpenGate(request fuzzed) (fault string, isCharged bool) {
	b := serveFuzzed(request.server(), 100_000)
	defer b.close()
	before := b.charged()
	status := b.send(request.raw(b.target, b.session))
	if b.fault != "" {
		return b.fault, false
	}
	ran, cost := b.ran.Load(), b.charged()-before
	switch {
	case ran > cost:
		return fmt.Sprintf("%d ran, %d charged", ran, cost), true
	case ran > 0 && slices.Contains(refusals, status):
		return fmt.Sprintf("%d, but %d ran", status, ran), true
	}
	return b.leftovers(), cost > 0
}

var refusals = []int{400, 413, 415, 429, 503}

func onDrainedGate(request fuzzed) (fault string) {
	b := serveFuzzed(request.server(), 1)
	defer b.close()
	b.drain()
	b.send(request.raw(b.target, b.session))
	if b.fault == "" && b.ran.Load() > 0 {
		return fmt.Sprintf("%d ran on a drained gate", b.ran.Load())
	}
	return b.fault + b.leftovers()
}

// behind is a server behind the middleware, for one request. It lives in a bubble, so that all that a
// request sets off can be waited for.
type behind struct {
	gate    *callgate.Gate
	guarded *mcp.Handler
	front   http.Handler
	ran     atomic.Int64
	// target and session are where messages go: those of the older transport to an address of their own.
	target  string
	session string
	fault   string
	over    []context.CancelFunc
}

func serveFuzzed(name string, burst uint64) *behind {
	b := &behind{target: "/mcp"}
	b.gate = must(callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"all": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: burst},
			"server": callgate.ConcurrencyLimit{MaxInFlight: 9, Lease: time.Hour}},
		Policies: map[string]callgate.Policy{mcp.Anonymous: everybody, mcp.Authenticated: everybody},
		Capacity: 10,
	}))
	serving, isNewer := servers[name]
	if !isNewer {
		serving = olderServers[strings.TrimSuffix(name, older)]
	}
	server := serving(&b.ran)
	b.guarded = must(mcp.Protect(server, b.gate, mcp.Options{APIKeys: mcp.NoAPIKeys, MaxBodyBytes: maxBodyBytes,
		MeterOptions: mcp.MeterOptions{Clock: standing}}))
	b.front = b.guarded
	if os.Getenv("CALLGATE_SEEDED") != "" {
		b.front = overlookingRespelledMethods(b.guarded, server)
	}
	if !isNewer {
		b.openStream()
	}
	if !isNewer || strings.HasSuffix(name, "-session") {
		b.initialize()
	}
	return b
}

const older = "-older"

// maxBodyBytes is less than the largest of the requests has.
const maxBodyBytes = 32 << 10

var fuzzedServers = func() (names []string) {
	names = slices.Sorted(maps.Keys(servers))
	for _, name := range slices.Sorted(maps.Keys(olderServers)) {
		names = append(names, name+older)
	}
	return names
}()

// Whoever calls, one bucket pays.
var everybody = callgate.Policy{{Limit: "all", Scope: callgate.ScopeShared}, {Limit: "server", Scope: callgate.ScopeShared}}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// overlookingRespelledMethods is a fault that must be found: a call is only seen where its method is
// spelled out.
func overlookingRespelledMethods(guarded, server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, err := body.ReadFrom(r.Body)
		r.Body = http.NoBody
		if err == nil {
			r.Body = readAgain(body.Bytes())
		}
		if err != nil || bytes.Contains(body.Bytes(), []byte(`"tools/call"`)) {
			guarded.ServeHTTP(w, r)
		} else {
			server.ServeHTTP(w, r)
		}
	})
}

// openStream opens the stream of the older transport, which says where to post.
func (b *behind) openStream() {
	opened := &stream{header: http.Header{}, endpoint: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	b.over = append(b.over, cancel)
	go b.guarded.ServeHTTP(opened, httptest.NewRequestWithContext(ctx, http.MethodGet, "/sse", nil))
	b.target = <-opened.endpoint
}

func (b *behind) initialize() {
	b.session = b.post("", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26",`+
		`"capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	b.post("Mcp-Session-Id: "+b.session+"\r\n", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// post gives the session that was opened by it.
func (b *behind) post(fields, body string) (session string) {
	return b.answer(fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", b.target, fields, len(body), body)).
		Header().Get("Mcp-Session-Id")
}

// send gives the status of the answer.
func (b *behind) send(raw []byte) int { return b.answer(raw).Code }

// answer handles a request as net/http's server reads it, and is there once nothing that it has set off
// runs any more.
func (b *behind) answer(raw []byte) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	r := readRequest(raw)
	if r == nil {
		answer.WriteHeader(http.StatusBadRequest)
		return answer
	}
	ctx, cancel := context.WithCancel(r.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() {
			if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
				b.fault = fmt.Sprintf("it panics: %v\n%s", fault, debug.Stack())
			}
		}()
		b.front.ServeHTTP(answer, r.WithContext(ctx))
	}()
	synctest.Wait()
	// Whoever still streams now would do so for ever.
	cancel()
	<-over
	synctest.Wait()
	if session := answer.Header().Get("Mcp-Session-Id"); session != "" {
		b.over = append(b.over, func() {
			b.send([]byte("DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nMcp-Session-Id: " + session + "\r\n\r\n"))
		})
	}
	return answer
}

func (b *behind) close() {
	for _, over := range slices.Backward(b.over) {
		over()
	}
	synctest.Wait()
	if err := b.gate.Close(); err != nil {
		panic(err)
	}
}

func (b *behind) charged() int64 {
	reports := must(b.gate.Peek(mcp.Anonymous, callgate.Call{NoCost: true, At: standing()}))
	return int64(reports[0].Limit - reports[0].Remaining)
}

func (b *behind) drain() {
	permit := must(b.gate.Admit(mcp.Anonymous, callgate.Call{At: standing()}))
	must(permit.Settle(callgate.Success, standing()))
}

// leftovers tells what is wrong once all is over.
func (b *behind) leftovers() string {
	if guards := must(b.gate.Guards("server", standing())); guards.InFlight > 0 {
		return fmt.Sprintf("%d calls are still in flight", guards.InFlight)
	}
	if failed := b.guarded.InternalErrors(); failed > 0 {
		return fmt.Sprintf("the middleware failed %d times", failed)
	}
	return ""
}
