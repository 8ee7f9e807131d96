package mcp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

var errTooLarge = errors.New("the body is larger than the bound")

// readBody gives the whole body, however it is chunked, and never holds more than maxBytes and one byte
// of it. The error is errTooLarge where it is, or says it is, larger.
func readBody(r *http.Request, maxBytes int64) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > maxBytes {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBytes+1))
	if err == nil && int64(len(body)) > maxBytes {
		err = errTooLarge
	}
	return body, err
}

// discardRest reads on in a body that is too large, as much as there may be in one that isn't: a client
// that is still sending when its connection is closed would not get to see the answer.
func discardRest(r *http.Request, maxBytes int64) {
	isUnsent := r.Header.Get("Expect") != ""
	if isUnsent || r.ContentLength > 2*maxBytes {
		return
	}
	// What fails here fails the connection, which has no more to lose than its answer.
	_, _ = io.CopyN(io.Discard, r.Body, maxBytes)
}

// replayed is a body already read, for the handler to read again.
func replayed(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }

// mayBeJSON says whether any MCP server would read this request's body as JSON, going by its content
// type. Looser than the SDKs' own predicates, which parse the first field: so no spelling is JSON to a
// server and something else here.
func mayBeJSON(header http.Header) bool {
	for _, value := range header.Values("Content-Type") {
		for item := range strings.SplitSeq(value, ",") {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(item)), "application/json") {
				return true
			}
		}
	}
	return false
}

// isEncoded says whether the body comes compressed, or in any other content coding.
func isEncoded(header http.Header) bool {
	for _, value := range header.Values("Content-Encoding") {
		coding := strings.ToLower(strings.TrimSpace(value))
		if coding != "" && coding != "identity" {
			return true
		}
	}
	return false
}
