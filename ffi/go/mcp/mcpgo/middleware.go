// Package mcpgo meters the tool calls of a server made with github.com/mark3labs/mcp-go.
//
//	metered, err := mcpgo.New(nil, mcpgo.Options{}) // the limits come from the environment
//	s := server.NewMCPServer("name", "1.0", server.WithToolHandlerMiddleware(metered.Tools))
//
// That is for any transport, stdio too. Over HTTP, mcp.Protect refuses calls before the SDK sees them;
// with both of them on one gate a call is charged once.
package mcpgo

import (
	"context"
	"errors"
	"regexp"

	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

// Options are those of [New].
type Options struct {
	mcp.MeterOptions
}

// Middleware meters the calls of a server's tools. It is made by [New].
//
// A refusal is a tool result of isError, whose text a model reads: a middleware of this SDK's can answer
// with no JSON-RPC error of its own. A Caller function gets the SDK's request as Source.Message.
//
// A call that fails by what its client sent is no failure to a breaker: one whose arguments the SDK can't
// bind, and one whose handler returns the SDK's ErrInvalidParams.
//
// The SDK asks its middleware for tools that it knows and runs at once: calls of unknown tools, and those
// that it runs as tasks, are charged by mcp.Protect only. For clients that don't know of calls of several
// rounds it runs a tool once more for each round, which is charged as the call of a newer client would be.
type Middleware struct {
	meter *mcp.Meter
}

// New makes a middleware. gate may be nil, see mcp.NewMeter, which says how New fails, too.
func New(gate *callgate.Gate, options Options) (*Middleware, error) {
	if len(options.Methods) > 0 {
		return nil, &callgate.ConfigError{Field: "methods",
			Message: "methods must be empty: middleware of mcp-go sees tool calls only; mcp.Protect sees all"}
	}
	meter, err := mcp.NewMeter(gate, options.MeterOptions)
	if err != nil {
		return nil, err
	}
	meter.ExpectSomeHandlers()
	return &Middleware{meter: meter}, nil
}

// Gate is the gate that decides.
func (m *Middleware) Gate() *callgate.Gate { return m.meter.Gate() }

// InternalErrors is how often the limiter itself has failed.
func (m *Middleware) InternalErrors() uint64 { return m.meter.InternalErrors() }

// Tools is the middleware, for server.WithToolHandlerMiddleware.
func (m *Middleware) Tools(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, request sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		entry := mcp.Entry{Tool: request.Params.Name, IsContinuation: request.Params.InputResponses != nil}
		source := mcp.Source{Header: request.Header, Message: request}
		running, refused := m.meter.Begin(ctx, source, nil, entry, 0)
		if refused != nil {
			return sdk.NewToolResultError(refused.Message), nil
		}
		outcome := callgate.Failure // that of a handler that panics
		defer func() { running.Settle(outcome) }()
		result, err := next(running.Context(), request)
		outcome = mcp.OutcomeOf(ctx, err, result != nil && result.IsError, isClientFault(result, err))
		if units, isStated := mcp.UnitsOf(m.stated(result)); isStated {
			running.State(units)
		}
		return result, err
	}
}

// stated is what a result says it has used.
func (m *Middleware) stated(result *sdk.CallToolResult) any {
	if result == nil || result.Meta == nil || m.meter.UsageMeta() == "" {
		return nil
	}
	return result.Meta.AdditionalFields[m.meter.UsageMeta()]
}

// isClientFault: the call failed by what the client sent, or lacks, not by the server.
func isClientFault(result *sdk.CallToolResult, err error) bool {
	if err == nil {
		return saysArguments(result)
	}
	var elicitation sdk.URLElicitationRequiredError
	var elicitations *sdk.URLElicitationRequiredError
	return errors.As(err, &elicitation) || errors.As(err, &elicitations) || errors.Is(err, sdk.ErrInvalidParams) ||
		sdk.IsMissingRequiredClientCapability(err) || aboutArguments.MatchString(err.Error())
}

// aboutArguments is what the SDK says of arguments that a tool can't take: for a typed tool by itself; for
// others by the errors of RequireInt and the like, which tools hand on as they are.
var aboutArguments = regexp.MustCompile(`^(failed to bind arguments: |required argument ".*" not found|` +
	`(item \d+ in )?argument ".*" (is not|cannot be converted to) )`)

func saysArguments(result *sdk.CallToolResult) bool {
	if result == nil || !result.IsError || len(result.Content) == 0 {
		return false
	}
	text, isText := result.Content[0].(sdk.TextContent)
	return isText && aboutArguments.MatchString(text.Text)
}
