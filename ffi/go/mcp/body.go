package mcp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// readBody gives the whole body, however it is chunked, and never holds more than maxBytes of it; the
// error is an *http.MaxBytesError where it is, or says it is, larger.
func readBody(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	if r.ContentLength > maxBytes {
		return nil, &http.MaxBytesError{Limit: maxBytes}
	}
	if r.Body == nil {
		return nil, nil
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
}

func isTooLarge(err error) bool {
	var tooLarge *http.MaxBytesError
	return errors.As(err, &tooLarge)
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
