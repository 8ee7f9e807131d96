// Command mcp-go is a real MCP server behind callgate, made with mark3labs/mcp-go. README.md, two folders
// up, says what it does.
package main

import (
	"context"
	"errors"
	"net/http"
	"strings"

	sdk "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"callgate.dev/callgate/mcp"
	"callgate.dev/callgate/mcp/mcpgo"
	"callgate.dev/callgate/tests/e2e/contract"
)

func main() { contract.Main(addOpen, addGuarded) }

// addOpen makes /mcp and /private/mcp.
func addOpen(s *contract.Server) error {
	metered, err := mcpgo.New(s.Gate, mcpgo.Options{})
	if err != nil {
		return err
	}
	tools := newServer(metered)
	addTool(tools, s, sdk.NewTool("echo", sdk.WithString("text", sdk.Required())),
		func(_ context.Context, request sdk.CallToolRequest) (string, error) {
			return request.RequireString("text")
		})
	addTool(tools, s, sdk.NewTool("wait"), func(ctx context.Context, _ sdk.CallToolRequest) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	handler, err := mcp.Protect(handlerOf(tools), s.Gate, mcp.Options{
		APIKeys:      mcp.NoAPIKeys,
		MeterOptions: mcp.MeterOptions{Observe: observe(s)},
	})
	if err != nil {
		return err
	}
	s.PublicMCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, verified(r))
	})
	s.PrivateMCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = verified(r)
		if _, isKnown := mcp.CallerOf(r.Context()); !isKnown {
			http.Error(w, "no valid token", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	return nil
}

// addGuarded makes /guarded/mcp.
func addGuarded(s *contract.Server) error {
	metered, err := mcpgo.New(s.Guarded.Gate, mcpgo.Options{MeterOptions: s.Guarded.Options()})
	if err != nil {
		return err
	}
	tools := newServer(metered)
	add := func(name string, run func(context.Context) (string, error)) {
		addTool(tools, s, sdk.NewTool(name), func(ctx context.Context, _ sdk.CallToolRequest) (string, error) {
			return run(ctx)
		})
	}
	add("slow", func(ctx context.Context) (string, error) { return "done", s.Guarded.Slow(ctx) })
	add("think", func(ctx context.Context) (string, error) {
		mcp.ReportUsage(ctx, contract.TokensPerThought)
		return "hmm", nil
	})
	add("search", func(context.Context) (string, error) { return "found", nil })
	add("fail", func(context.Context) (string, error) { return "", errors.New("the tool is broken") })
	keys, err := contract.Keys()
	if err != nil {
		return err
	}
	options := mcp.Options{APIKeys: keys, MeterOptions: s.Guarded.Options()}
	options.Observe = observe(s)
	s.GuardedMCP, err = mcp.Protect(handlerOf(tools), s.Guarded.Gate, options)
	return err
}

func newServer(metered *mcpgo.Middleware) *server.MCPServer {
	return server.NewMCPServer("callgate-e2e", "1", server.WithToolHandlerMiddleware(metered.Tools))
}

func handlerOf(tools *server.MCPServer) http.Handler {
	return server.NewStreamableHTTPServer(tools, server.WithStateLess(true), server.WithDisableStreaming(true))
}

func addTool(tools *server.MCPServer, s *contract.Server, tool sdk.Tool, run func(context.Context, sdk.CallToolRequest) (string, error)) {
	tools.AddTool(tool, func(ctx context.Context, request sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		s.Record.Ran(nameOf(ctx))
		text, err := run(ctx, request)
		if err != nil {
			return nil, err
		}
		return sdk.NewToolResultText(text), nil
	})
}

// verified notes who calls, where the token is valid: `valid-NAME` is NAME's.
func verified(r *http.Request) *http.Request {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	name, isValid := strings.CutPrefix(token, "valid-")
	if !isValid || name == "" {
		return r
	}
	return r.WithContext(mcp.WithCaller(r.Context(), mcp.Caller{Identity: name}))
}

func nameOf(ctx context.Context) string {
	if caller, isKnown := mcp.CallerOf(ctx); isKnown {
		return caller.Identity
	}
	return contract.Nobody
}

func observe(s *contract.Server) func(mcp.Observation) {
	return func(seen mcp.Observation) { s.Record.Observe(nameOf(seen.Source.Request.Context()), seen) }
}
