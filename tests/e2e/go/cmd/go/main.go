// Command go is a real MCP server behind callgate, made with the official SDK. README.md, two folders up,
// says what it does.
package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate/mcp"
	"callgate.dev/callgate/mcp/gosdk"
	"callgate.dev/callgate/tests/e2e/contract"
)

func main() { contract.Main(addOpen, addGuarded) }

// addOpen makes /mcp and /private/mcp.
func addOpen(s *contract.Server) error {
	metered, err := gosdk.New(s.Gate, gosdk.Options{})
	if err != nil {
		return err
	}
	server := newServer(metered)
	type text struct {
		Text string `json:"text"`
	}
	addTool(server, "echo", func(_ context.Context, request *sdk.CallToolRequest, in text) (string, error) {
		s.Record.Ran(nameOf(request.Extra.TokenInfo))
		return in.Text, nil
	})
	addTool(server, "wait", func(ctx context.Context, request *sdk.CallToolRequest, _ struct{}) (string, error) {
		s.Record.Ran(nameOf(request.Extra.TokenInfo))
		<-ctx.Done()
		return "", ctx.Err()
	})
	options := mcp.Options{APIKeys: mcp.NoAPIKeys, MeterOptions: mcp.MeterOptions{
		Observe: func(seen mcp.Observation) {
			s.Record.Observe(nameOf(auth.TokenInfoFromContext(seen.Source.Request.Context())), seen)
		},
	}}
	handler, err := gosdk.Protect(handlerOf(server), s.Gate, options)
	if err != nil {
		return err
	}
	s.PrivateMCP = auth.RequireBearerToken(verify, nil)(handler)
	// The SDK's own authentication demands a token. Here nobody is turned away without one.
	s.PublicMCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); isValid(token) {
			s.PrivateMCP.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
	return nil
}

// addGuarded makes /guarded/mcp.
func addGuarded(s *contract.Server) error {
	metered, err := gosdk.New(s.Guarded.Gate, gosdk.Options{MeterOptions: s.Guarded.Options()})
	if err != nil {
		return err
	}
	server := newServer(metered)
	add := func(name string, run func(context.Context) (string, error)) {
		addTool(server, name, func(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (string, error) {
			caller, _ := mcp.CallerOf(ctx)
			s.Record.Ran(caller.Identity)
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
	options.Observe = func(seen mcp.Observation) {
		caller, _ := mcp.CallerOf(seen.Source.Request.Context())
		s.Record.Observe(caller.Identity, seen)
	}
	s.GuardedMCP, err = gosdk.Protect(handlerOf(server), s.Guarded.Gate, options)
	return err
}

func newServer(metered *gosdk.Middleware) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "callgate-e2e", Version: "1"}, nil)
	server.AddReceivingMiddleware(metered.Receiving)
	return server
}

func handlerOf(server *sdk.Server) http.Handler {
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server },
		&sdk.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
}

func addTool[In any](server *sdk.Server, name string, run func(context.Context, *sdk.CallToolRequest, In) (string, error)) {
	sdk.AddTool(server, &sdk.Tool{Name: name, Description: "See README.md."},
		func(ctx context.Context, request *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
			text, err := run(ctx, request, in)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, err
		})
}

func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	if !isValid(token) {
		return nil, auth.ErrInvalidToken
	}
	name := strings.TrimPrefix(token, "valid-")
	return &auth.TokenInfo{UserID: name, Expiration: time.Now().Add(time.Hour)}, nil
}

func isValid(token string) bool {
	name, ok := strings.CutPrefix(token, "valid-")
	return ok && name != ""
}

func nameOf(token *auth.TokenInfo) string {
	if token == nil {
		return contract.Nobody
	}
	return token.UserID
}
