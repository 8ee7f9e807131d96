package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

func text(result *sdk.CallToolResult) string {
	if len(result.Content) != 1 {
		return fmt.Sprint(len(result.Content), " contents")
	}
	content, _ := result.Content[0].(*sdk.TextContent)
	return content.Text
}

func refusalOf(t testing.TB, err error) *jsonrpc.Error {
	t.Helper()
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	return refused
}

const refusedText = "Too many tool calls: the limit 'anonymous' is reached. Try again in 60 minutes."

func TestARefusalIsAJSONRPCErrorWithReasonLimitAndWait(t *testing.T) {
	s := newTools(t, nil, Options{})
	session := s.client()
	for range 3 {
		if result, err := work(t, session, "work"); err != nil || result.IsError {
			t.Fatal(err)
		}
	}
	_, err := work(t, session, "work")
	refused := refusalOf(t, err)
	same(t, "code", refused.Code, -31004)
	var data mcp.RefusalData
	if err := json.Unmarshal(refused.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data.Reason != "rate" || data.Limit != "anonymous" || *data.RetryAfterMs <= 3_500_000 || *data.RetryAfterMs > 3_600_000 {
		t.Error(string(refused.Data))
	}
	same(t, "ran", s.ran.Load(), 3)
	other := newTools(t, nil, Options{ErrorCode: -32099})
	other.drain()
	_, err = work(t, other.client(), "work")
	same(t, "code", refusalOf(t, err).Code, -32099)
}

func TestARefusalMayBeAResultThatAModelCanPassOn(t *testing.T) {
	s := newTools(t, nil, Options{RefuseWith: mcp.RefuseWithResult})
	s.drain()
	result, err := work(t, s.client(), "work")
	if err != nil || !result.IsError {
		t.Fatal(err)
	}
	same(t, "text", text(result), refusedText)
	same(t, "ran", s.ran.Load(), 0)
}

func TestNothingButToolCallsIsMetered(t *testing.T) {
	s := newTools(t, nil, Options{})
	s.drain()
	session := s.client()
	listed, err := session.ListTools(t.Context(), nil)
	if err != nil || len(listed.Tools) != 3 {
		t.Error(err)
	}
	if err := session.Ping(t.Context(), nil); err != nil && !strings.Contains(err.Error(), "not supported") {
		t.Error(err)
	}
}

func TestOtherMethodsMayHaveAPolicy(t *testing.T) {
	s := newTools(t, nil, Options{MeterOptions: mcp.MeterOptions{Methods: map[string]mcp.PolicyChoice{"tools/list": {Policy: "polling"}}},
		RefuseWith: mcp.RefuseWithResult})
	session := s.client()
	for range 2 {
		if _, err := session.ListTools(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	_, err := session.ListTools(t.Context(), nil)
	same(t, "code", refusalOf(t, err).Code, -31004)
}

// asServer has this test's program serve on its standard input and output.
const asServer = "CALLGATE_TEST_STDIO"

func serveStdio() {
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{"anonymous": hourly(2)},
		Policies: map[string]callgate.Policy{
			mcp.Anonymous:     {{Limit: "anonymous", Scope: callgate.ScopeShared}},
			mcp.Authenticated: {{Limit: "anonymous", Scope: callgate.ScopeCaller}},
		},
	})
	if err != nil {
		panic(err)
	}
	metered, err := New(gate, Options{})
	if err != nil {
		panic(err)
	}
	server := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	server.AddReceivingMiddleware(metered.Receiving)
	sdk.AddTool(server, &sdk.Tool{Name: "work"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{}, nil, nil
	})
	_ = server.Run(context.Background(), &sdk.StdioTransport{})
}

func TestStdioIsMeteredAsAnonymous(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program)
	command.Env = append(os.Environ(), asServer+"=yes")
	session := connect(t, &sdk.CommandTransport{Command: command})
	for range 2 {
		if _, err := work(t, session, "work"); err != nil {
			t.Fatal(err)
		}
	}
	_, err = work(t, session, "work")
	if refused := refusalOf(t, err); !strings.Contains(string(refused.Data), `"limit":"anonymous"`) {
		t.Error(string(refused.Data))
	}
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestAFunctionNamesTheCaller(t *testing.T) {
	names := []string{"user:1", "user:1", "user:1", "user:1", "user:2"}
	s := newTools(t, nil, Options{MeterOptions: mcp.MeterOptions{Caller: func(_ context.Context, source mcp.Source) (mcp.Caller, error) {
		if _, isCall := source.Message.(*sdk.CallToolRequest); !isCall {
			t.Errorf("%T", source.Message)
		}
		name := names[0]
		names = names[1:]
		return mcp.Caller{Identity: name}, nil
	}}})
	session := s.client()
	for n := range 5 {
		_, err := work(t, session, "work")
		same(t, "refused", err != nil, n == 3)
	}
	same(t, "charged", s.charged(mcp.Authenticated, "user:1"), 3)
	same(t, "charged", s.charged(mcp.Authenticated, "user:2"), 1)
}

func TestACallThatFailsIsAFailureAndOneWithBadArgumentsIsCharged(t *testing.T) {
	s := newTools(t, nil, Options{})
	session := s.client()
	for range 2 {
		if result, err := work(t, session, "fail"); err != nil || !result.IsError {
			t.Error(err)
		}
	}
	same(t, "the breaker is open", s.guards().Open, 1)
	_, err := work(t, session, "work")
	if refused := refusalOf(t, err); !strings.Contains(string(refused.Data), "breaker_open") {
		t.Error(string(refused.Data))
	}
	same(t, "charged", s.charged(mcp.Anonymous, ""), 2)
}

func TestTheClientsOwnMistakesDoNotCountAgainstTheServer(t *testing.T) {
	s := newTools(t, nil, Options{})
	session := s.client()
	for range 3 {
		if _, err := work(t, session, "none such"); err == nil {
			t.Error("an unknown tool ran")
		}
	}
	same(t, "breakers", s.guards().Open, 0)
	same(t, "charged", s.charged(mcp.Anonymous, ""), 3)
	same(t, "in flight", s.inFlight(), 0)
	for code, want := range map[int64]bool{jsonrpc.CodeInvalidParams: true, jsonrpc.CodeInvalidRequest: true,
		jsonrpc.CodeMethodNotFound: true, sdk.CodeURLElicitationRequired: true, sdk.CodeMissingRequiredClientCapabilities: true,
		sdk.CodeUnsupportedProtocolVersion: true, sdk.CodeHeaderMismatch: true, jsonrpc.CodeInternalError: false, -31004: false} {
		same(t, "client fault", isClientFault(fmt.Errorf("wrapped: %w", &jsonrpc.Error{Code: code})), want)
	}
	same(t, "client fault", isClientFault(errors.New("other")), false)
	same(t, "client fault", isClientFault(nil), false)
}

// A tool of the SDK's AddTool turns arguments away by a result, not by an error.
func TestBadArgumentsDoNotCountAgainstTheServer(t *testing.T) {
	type typed struct {
		Small int8      `json:"small,omitempty"`
		Large int64     `json:"large,omitempty"`
		When  time.Time `json:"when,omitzero"`
	}
	ran := 0
	for name, arguments := range map[string]string{
		"another type": `{"small":"one"}`, "unknown": `{"smal":1}`, "an array": `[]`,
		"too large": `{"small":1000}`, "far too large": `{"large":1e30}`, "no time": `{"when":"tomorrow"}`,
	} {
		s := newTools(t, nil, Options{})
		sdk.AddTool(s.server, &sdk.Tool{Name: "typed"}, func(context.Context, *sdk.CallToolRequest, typed) (*sdk.CallToolResult, any, error) {
			ran++
			return &sdk.CallToolResult{}, nil, nil
		})
		session := s.client()
		for range 3 {
			result, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "typed", Arguments: json.RawMessage(arguments)})
			if err != nil || !result.IsError {
				t.Error(name, err)
			}
		}
		same(t, name+": breakers", s.guards().Open, 0)
		same(t, name+": in flight", s.inFlight(), 0)
		same(t, name+": charged", s.charged(mcp.Anonymous, ""), 3)
	}
	same(t, "ran", ran, 0)
	same(t, "a tool's own decoding", isClientFault(fmt.Errorf("upstream: %w", json.Unmarshal([]byte("1"), new(string)))), false)
}

func TestACallThatItsClientCancelsIsAbandonedAndStaysCharged(t *testing.T) {
	s := newTools(t, nil, Options{})
	session := s.client()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-s.waiting
			cancel()
		}()
		if _, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "wait", Arguments: map[string]any{}}); err == nil {
			t.Error("it was answered")
		}
		cancel()
		s.untilFree()
	}
	same(t, "no failures", s.guards().Open, 0)
	same(t, "charged", s.charged(mcp.Anonymous, ""), 3)
}

func TestAPanicGivesThePlaceBackAndGoesOn(t *testing.T) {
	s := newTools(t, nil, Options{})
	panics := s.metered.Receiving(func(context.Context, string, sdk.Request) (sdk.Result, error) { panic("broken") })
	for range 2 {
		func() {
			defer func() { same(t, "panic", recover(), any("broken")) }()
			_, _ = panics(t.Context(), mcp.MeteredMethod, &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Name: "work"}})
		}()
	}
	same(t, "in flight", s.inFlight(), 0)
	same(t, "failures", s.guards().Open, 1)
}

func TestAnInternalErrorAdmitsAndIsCountedOrRefuses(t *testing.T) {
	s := newTools(t, nil, Options{})
	session := s.client()
	_ = s.gate.Close()
	if _, err := work(t, session, "work"); err != nil {
		t.Error(err)
	}
	same(t, "counted", s.metered.InternalErrors(), 1)
	s = newTools(t, nil, Options{MeterOptions: mcp.MeterOptions{OnError: mcp.OnErrorRefuse}})
	session = s.client()
	_ = s.gate.Close()
	_, err := work(t, session, "work")
	same(t, "code", refusalOf(t, err).Code, -32603)
	same(t, "ran", s.ran.Load(), 0)
}

func TestEachDecisionIsObservedOnce(t *testing.T) {
	var seen []bool
	s := newTools(t, nil, Options{MeterOptions: mcp.MeterOptions{Observe: func(o mcp.Observation) {
		same(t, "time", o.GateNs > 0, true)
		seen = append(seen, o.Decision.Admitted)
	}}})
	session := s.client()
	for range 4 {
		_, _ = work(t, session, "work")
	}
	same(t, "seen", fmt.Sprint(seen), "[true true true false]")
}

func TestANotificationIsHandedOnWhateverItsMethod(t *testing.T) {
	s := newTools(t, nil, Options{MeterOptions: mcp.MeterOptions{
		Methods: map[string]mcp.PolicyChoice{"notifications/cancelled": {Policy: "polling"}}}})
	passed := 0
	handler := s.metered.Receiving(func(context.Context, string, sdk.Request) (sdk.Result, error) {
		passed++
		return nil, nil
	})
	for range 9 {
		_, _ = handler(t.Context(), "notifications/cancelled", &sdk.ServerRequest[*sdk.CancelledParams]{})
	}
	same(t, "passed", passed, 9)
}

func TestWhatToolsUseIsReportedOrStatedByTheirResults(t *testing.T) {
	for name, isStated := range map[string]bool{"reported": false, "stated": true} {
		gate, err := callgate.New(callgate.Config{
			Limits: map[string]callgate.Limit{"tokens": callgate.Quota{Limit: 1_000, Per: 24 * 3_600e9}},
			Policies: map[string]callgate.Policy{
				mcp.Authenticated: {{Limit: "tokens", Scope: callgate.ScopeCaller}},
				mcp.Anonymous:     {{Limit: "tokens", Scope: callgate.ScopeShared}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		s := newTools(t, gate, Options{MeterOptions: mcp.MeterOptions{UsageMeta: "callgate/used"}})
		s.used = 400
		want := uint64(400)
		if isStated {
			s.meta, want = sdk.Meta{"callgate/used": 7}, 7
		}
		if _, err := work(t, s.client(), "work"); err != nil {
			t.Fatal(err)
		}
		same(t, name, s.charged(mcp.Anonymous, ""), want)
	}
}

func TestBadOptionsAreRefusedAtStart(t *testing.T) {
	for name, options := range map[string]Options{
		"refuse_with": {RefuseWith: 7},
		"on_error":    {MeterOptions: mcp.MeterOptions{OnError: 7}},
	} {
		if _, err := New(makeGate(t), options); err == nil || !strings.Contains(err.Error(), name) {
			t.Error(name, err)
		}
	}
}
