// Package gosdk meters the tool calls of the official SDK, github.com/modelcontextprotocol/go-sdk.
//
//	metered, err := gosdk.New(nil, gosdk.Options{}) // the limits come from the environment
//	server.AddReceivingMiddleware(metered.Receiving)
//
// That is for any transport, stdio too. Over HTTP, [Protect] refuses calls before the SDK sees them; with
// both of them on one gate a call is charged once.
package gosdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// Options are those of [New].
type Options struct {
	mcp.MeterOptions
	// RefuseWith is how a refusal leaves: as a JSON-RPC error by default. Other methods than tools/call
	// are always refused so.
	RefuseWith mcp.RefuseWith
	// ErrorCode is the JSON-RPC code of a refusal. 0 means mcp.DefaultErrorCode.
	ErrorCode int
}

// Middleware meters tools/call of a server. It is made by [New].
//
// A Caller function gets the SDK's request as Source.Message. Without one, the caller is the one that
// [Protect] has found out, else whom the SDK's token is about, else what mcp.WithCaller has noted in the
// context (of a session, that is the context of the request which opened it).
//
// A call that fails by what its client sent is no failure to a breaker: one of an unknown tool, one whose
// arguments the SDK turns away, and one whose handler returns a jsonrpc.Error of CodeInvalidParams.
//
// The older HTTP+SSE transport of the SDK says nothing of the request that carried a message: there a
// call that passes Protect as well is charged twice, so use one of them.
type Middleware struct {
	meter      *mcp.Meter
	refuseWith mcp.RefuseWith
	errorCode  int
}

// New makes a middleware. gate may be nil, see mcp.NewMeter, which says how New fails, too.
func New(gate *callgate.Gate, options Options) (*Middleware, error) {
	if options.RefuseWith > mcp.RefuseWithResult {
		return nil, &callgate.ConfigError{Field: "refuse_with", Message: fmt.Sprintf(
			"refuse_with must be RefuseWithError or RefuseWithResult, not %d", options.RefuseWith)}
	}
	meter, err := mcp.NewMeter(gate, options.MeterOptions)
	if err != nil {
		return nil, err
	}
	meter.ExpectHandlers()
	return &Middleware{meter: meter, refuseWith: options.RefuseWith, errorCode: options.ErrorCode}, nil
}

// Gate is the gate that decides.
func (m *Middleware) Gate() *callgate.Gate { return m.meter.Gate() }

// InternalErrors is how often the limiter itself has failed.
func (m *Middleware) InternalErrors() uint64 { return m.meter.InternalErrors() }

// Receiving is the middleware, for Server.AddReceivingMiddleware.
func (m *Middleware) Receiving(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		// Notifications have no answer to refuse them with.
		if !m.meter.IsMetered(method) || strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, request)
		}
		return m.run(ctx, method, request, next)
	}
}

func (m *Middleware) run(ctx context.Context, method string, request sdk.Request, next sdk.MethodHandler) (sdk.Result, error) {
	source := mcp.Source{Message: request}
	if extra := request.GetExtra(); extra != nil {
		source.Header = extra.Header
	}
	running, refused := m.meter.Begin(ctx, source, callerOf(ctx, request), entryOf(method, request), m.errorCode)
	if refused != nil {
		return m.refuse(method, request, refused)
	}
	outcome := callgate.Failure // that of a handler that panics
	defer func() { running.Settle(outcome) }()
	result, err := next(running.Context(), method, request)
	call, _ := result.(*sdk.CallToolResult)
	isError, fault := call != nil && call.IsError, err
	if isError && err == nil {
		fault = call.GetError()
	}
	outcome = mcp.OutcomeOf(ctx, err, isError, isClientFault(fault))
	if err == nil && m.meter.UsageMeta() != "" {
		if units, isStated := mcp.UnitsOf(metaOf(result)[m.meter.UsageMeta()]); isStated {
			running.State(units)
		}
	}
	return result, err
}

// entryOf is the call that a request makes.
func entryOf(method string, request sdk.Request) mcp.Entry {
	entry := mcp.Entry{Method: method}
	if params, ok := request.GetParams().(*sdk.CallToolParamsRaw); ok && params != nil {
		entry.Tool, entry.IsContinuation = params.Name, params.InputResponses != nil
	}
	return entry
}

func (m *Middleware) refuse(method string, request sdk.Request, refused *mcp.JSONRPCError) (sdk.Result, error) {
	if method == mcp.MeteredMethod && m.refuseWith == mcp.RefuseWithResult {
		return refusedResult(request, refused.Message)
	}
	answer := &jsonrpc.Error{Code: int64(refused.Code), Message: refused.Message}
	if refused.Data != nil {
		data, err := json.Marshal(refused.Data)
		if err != nil {
			return nil, err
		}
		answer.Data = data
	}
	return nil, answer
}

// refusedResult is a tool result with this text. Newer clients want to be told that it is the last word,
// which only the SDK's own handlers and its reader of JSON can say.
func refusedResult(request sdk.Request, text string) (sdk.Result, error) {
	result := new(sdk.CallToolResult)
	if _, isNew := request.GetParams().GetMeta()[sdk.MetaKeyProtocolVersion]; isNew {
		if err := json.Unmarshal([]byte(`{"content":[],"resultType":"complete"}`), result); err != nil {
			return nil, err
		}
	}
	result.Content = []sdk.Content{&sdk.TextContent{Text: text}}
	result.IsError = true
	return result, nil
}

func metaOf(result sdk.Result) map[string]any {
	if result == nil {
		return nil
	}
	return result.GetMeta()
}

// isClientFault: the error is about the request, not about the server.
func isClientFault(err error) bool {
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) {
		return err != nil && isAboutArguments(err)
	}
	switch answer.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest, jsonrpc.CodeMethodNotFound,
		sdk.CodeHeaderMismatch, sdk.CodeMissingRequiredClientCapabilities, sdk.CodeUnsupportedProtocolVersion,
		sdk.CodeURLElicitationRequired:
		return true
	}
	return false
}

// isAboutArguments: the SDK has turned away the arguments of a typed tool. Those that its schema forbids
// have an error with these words; of those that its Go type can't hold, a number beyond 64 bits, say, the
// SDK hands on the decoder's error as it is. A tool that hands on such an error of its own is taken for
// one with bad arguments: better than that any caller could open the breaker.
func isAboutArguments(err error) bool {
	_, isOfDecoder := err.(*json.UnmarshalTypeError)
	return isOfDecoder || strings.HasPrefix(err.Error(), `validating "arguments":`)
}
