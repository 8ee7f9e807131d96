package mcp

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
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
	body, err := io.ReadAll(io.LimitReader(r.Body, sum(maxBytes, 1)))
	if err == nil && int64(len(body)) > maxBytes {
		err = errTooLarge
	}
	return body, err
}

// discardRest reads on in a body that is too large, up to twice the bound: a client that is still sending
// when its connection is closed would not get to see the answer.
func discardRest(r *http.Request, maxBytes int64) {
	most := sum(maxBytes, maxBytes)
	isUnsent := r.Header.Get("Expect") != ""
	if isUnsent || r.ContentLength > most {
		return
	}
	// What fails here fails the connection, which has no more to lose than its answer.
	_, _ = io.CopyN(io.Discard, r.Body, most)
}

// sum of two sizes, or the largest that a number can be.
func sum(a, b int64) int64 { return a + min(b, math.MaxInt64-a) }

// replayed is a body already read, for the handler to read again.
func replayed(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }

// saysJSON tells whether any MCP server would read this request's body as JSON, going by its content type.
// Looser than what the SDKs go by, who parse the first field: so no spelling is JSON to a server and
// something else here.
func saysJSON(header http.Header) bool {
	return slices.ContainsFunc(header.Values("Content-Type"), func(value string) bool {
		return strings.Contains(strings.ToLower(value), "application/json")
	})
}

// looksLikeJSON tells whether a server that asks for no content type (as mcp-go's older transport does
// not) would find a JSON object or array at the beginning of a body.
func looksLikeJSON(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
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
