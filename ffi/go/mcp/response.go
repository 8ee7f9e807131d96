package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"callgate.dev/callgate"
)

// response is a complete HTTP response that holds a JSON-RPC error.
type response struct {
	status int
	header http.Header
	body   []byte
}

// errorResponse answers with an error that is no decision of a gate. id may be nil, and is null then.
func errorResponse(status int, id json.RawMessage, err *JSONRPCError) *response {
	if id == nil {
		id = nullID
	}
	return newResponse(status, id, err)
}

// refusalResponse answers a refused call, or batch of cost calls. limits are those of the policy that
// refused, in order. The id is omitted where there is none to echo.
func refusalResponse(d *callgate.Decision, cost int, id json.RawMessage, limits []namedLimit, code int) *response {
	status := http.StatusTooManyRequests
	if isOfServer(d.Reason) {
		status = http.StatusServiceUnavailable
	}
	answer := newResponse(status, id, refusalError(d, cost, code))
	answer.setRetryAfter(d)
	rateLimit, policy := rateLimitFields(d, limits)
	if rateLimit != "" {
		answer.header.Set("RateLimit", rateLimit)
	}
	if policy != "" {
		answer.header.Set("RateLimit-Policy", policy)
	}
	return answer
}

var nullID = json.RawMessage("null")

func newResponse(status int, id json.RawMessage, err *JSONRPCError) *response {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	// These are strings, numbers, and an id that was read as JSON: nothing here can fail.
	_ = encoder.Encode(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Error   *JSONRPCError   `json:"error"`
	}{"2.0", id, err})
	answer := &response{status, http.Header{}, bytes.TrimSuffix(body.Bytes(), []byte("\n"))}
	answer.header.Set("Content-Type", "application/json")
	answer.header.Set("Content-Length", strconv.Itoa(len(answer.body)))
	// A refusal is about this instant and this caller: no cache may answer the next call with it.
	answer.header.Set("Cache-Control", "no-store")
	return answer
}

func (a *response) setRetryAfter(d *callgate.Decision) {
	if wait, ok := retryAfterS(d); ok {
		a.header.Set("Retry-After", strconv.FormatInt(wait, 10))
	}
}

// ServeHTTP sends it.
func (a *response) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	// Whether the client is still there to read it changes nothing.
	_, _ = w.Write(a.body)
}
