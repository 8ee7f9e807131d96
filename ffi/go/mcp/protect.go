package mcp

import (
	"net/http"

	"callgate.dev/callgate"
)

// DefaultMaxBodyBytes is 4 MiB: what the official SDK itself takes at most.
const DefaultMaxBodyBytes = 4 << 20

// Options are those of [Protect]. The zero value is right for most servers.
type Options struct {
	MeterOptions
	// APIKeys are demanded of every request; [NoAPIKeys] demands none. With nil the environment
	// decides, see [APIKeysFromEnv].
	APIKeys *APIKeys
	// Verified tells the caller that an authentication outside has verified, from what it has left in
	// the request; nil where there is none. What WithCaller has noted comes first.
	Verified func(*http.Request) *Caller
	// MaxBodyBytes: larger bodies are refused with 413. 0 means DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// ErrorCode is the JSON-RPC code of a refusal. 0 means DefaultErrorCode.
	ErrorCode int
}

// Protect puts a gate in front of an MCP server: of the handler of either SDK, or of any other handler
// that serves MCP over HTTP, alone or among other routes. gate may be nil, see [NewMeter].
//
//	handler, err := mcp.Protect(server, nil, mcp.Options{})
//
// It belongs inside of any authentication: a request without a valid token gets its 401 there, charges
// nobody and makes no bucket, and one that has a token has a verified caller. For the tokens of the
// official SDK, package gosdk has a Protect that reads them; for others, see [WithCaller].
//
// Fails with a *callgate.ConfigError where an option is out of its range, or the gate lacks a policy.
func Protect(next http.Handler, gate *callgate.Gate, options Options) (*Handler, error) {
	if next == nil {
		return nil, optionError("next", " must be a handler, not nil")
	}
	if options.MaxBodyBytes < 0 {
		return nil, optionError("max_body_bytes", " must be 1 or more, or 0 for the default, not %d", options.MaxBodyBytes)
	}
	if options.MaxBodyBytes == 0 {
		options.MaxBodyBytes = DefaultMaxBodyBytes
	}
	meter, err := NewMeter(gate, options.MeterOptions)
	if err != nil {
		return nil, err
	}
	keys := options.APIKeys
	if keys == nil {
		if keys, err = APIKeysFromEnv(nil); err != nil {
			return nil, err
		}
	}
	h := &Handler{
		next:      next,
		meter:     meter,
		verified:  options.Verified,
		maxBytes:  options.MaxBodyBytes,
		errorCode: orDefault(options.ErrorCode),
	}
	h.serve = http.HandlerFunc(h.meterRequest)
	if keys != nil && keys != NoAPIKeys {
		h.serve = keys.Require(h.serve)
	}
	return h, nil
}
