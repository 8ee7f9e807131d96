package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// anyServer stands for the handler of either SDK.
var anyServer = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	mcp.ReportUsage(r.Context(), 400)
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
})

func ExampleProtect() {
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"everybody": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 2}},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated: {{Limit: "everybody", Scope: callgate.ScopeCaller}},
			mcp.Anonymous:     {{Limit: "everybody", Scope: callgate.ScopeShared}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := mcp.Protect(anyServer, gate, mcp.Options{APIKeys: mcp.NoAPIKeys})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		fmt.Println(post(handler, nil))
	}
	// Output:
	// 200
	// 200
	// 429
}

func ExampleProtect_apiKeys() {
	keys, err := mcp.NewAPIKeys(map[string]string{"k-3f9c": "ann"})
	if err != nil {
		log.Fatal(err)
	}
	handler, err := mcp.Protect(anyServer, nil, mcp.Options{APIKeys: keys}) // the limits come from the environment
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(post(handler, nil))
	fmt.Println(post(handler, http.Header{"X-Api-Key": {"k-3f9c"}}))
	// Output:
	// 401
	// 200
}

func ExampleWithCaller() {
	authenticated := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			user := "user:1001" // as the session says, say
			next.ServeHTTP(w, r.WithContext(mcp.WithCaller(r.Context(), mcp.Caller{Identity: user})))
		})
	}
	handler, err := mcp.Protect(anyServer, nil, mcp.Options{APIKeys: mcp.NoAPIKeys})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(post(authenticated(handler), nil))
	// Output: 200
}

func ExampleMeter_Begin() {
	meter, err := mcp.NewMeter(nil, mcp.MeterOptions{})
	if err != nil {
		log.Fatal(err)
	}
	run := func(ctx context.Context, tool string, handler func(context.Context) error) error {
		running, refused := meter.Begin(ctx, mcp.Source{}, nil, mcp.Entry{Tool: tool}, 0)
		if refused != nil {
			return refused
		}
		outcome := callgate.Failure // where the handler panics
		defer func() { running.Settle(outcome) }()
		err := handler(running.Context())
		outcome = mcp.OutcomeOf(ctx, err, false, false)
		return err
	}
	fmt.Println(run(context.Background(), "search", func(context.Context) error { return errors.New("nothing found") }))
	// Output: nothing found
}

func post(handler http.Handler, header http.Header) int {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{}}}`
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(call))
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code
}
