package mcpgo_test

import (
	"log"
	"net/http"

	"github.com/mark3labs/mcp-go/server"

	"callgate.dev/callgate/mcp"
	"callgate.dev/callgate/mcp/mcpgo"
)

func ExampleNew() {
	metered, err := mcpgo.New(nil, mcpgo.Options{})
	if err != nil {
		log.Fatal(err)
	}
	s := server.NewMCPServer("example", "1.0", server.WithToolHandlerMiddleware(metered.Tools))

	// Over HTTP, in front of it as well: a call is charged once.
	handler, err := mcp.Protect(server.NewStreamableHTTPServer(s), nil, mcp.Options{APIKeys: mcp.NoAPIKeys})
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/mcp", handler)
	// Output:
}
