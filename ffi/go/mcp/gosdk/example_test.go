package gosdk_test

import (
	"context"
	"log"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"callgate.dev/callgate/mcp"
	"callgate.dev/callgate/mcp/gosdk"
)

func ExampleNew() {
	server := sdk.NewServer(&sdk.Implementation{Name: "example", Version: "1.0"}, nil)
	metered, err := gosdk.New(nil, gosdk.Options{RefuseWith: mcp.RefuseWithResult})
	if err != nil {
		log.Fatal(err)
	}
	server.AddReceivingMiddleware(metered.Receiving)
	// Output:
}

func ExampleProtect() {
	server := sdk.NewServer(&sdk.Implementation{Name: "example", Version: "1.0"}, nil)
	// Both on one gate: a call is charged once, and mcp.ReportUsage counts in sessions, too.
	inside, err := gosdk.New(nil, gosdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	server.AddReceivingMiddleware(inside.Receiving)
	served := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	metered, err := gosdk.Protect(served, nil, mcp.Options{APIKeys: mcp.NoAPIKeys})
	if err != nil {
		log.Fatal(err)
	}
	// The authentication is outside: who has no valid token charges nobody.
	http.Handle("/mcp", auth.RequireBearerToken(verify, nil)(metered))
	// Output:
}

func verify(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
	return nil, auth.ErrInvalidToken
}
