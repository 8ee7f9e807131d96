// Package mcp puts a gate in front of an MCP server: only tools/call is metered, caller by caller.
//
//	handler, err := mcp.Protect(server, nil, mcp.Options{}) // the limits come from the environment
//	http.Handle("/mcp", handler)
//
// What there is:
//
//   - [Protect]: Streamable HTTP, in front of any MCP server (429 with Retry-After).
//   - [APIKeys]: who calls, by API keys; 401 without one.
//   - Package gosdk: the official SDK, any transport, stdio too, and the tokens it has verified.
//   - Package mcpgo: mark3labs/mcp-go, any transport.
//   - [Meter]: for a middleware of another SDK.
//
// Both an HTTP middleware and one of an SDK may be on one gate: a call is charged once then. For what tools
// report, sessions of go-sdk need both, or UsageMeta, see [ReportUsage].
//
// Everything may be used from any goroutine at any time.
package mcp
