package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// maxReadBytes is how much of a response is searched for the units that it states.
const maxReadBytes = 4 << 20

// responseReader finds, in a response that passes by, the units that its results state. It reads JSON
// and event streams, of each at most maxReadBytes at a time, and fails on nothing. Of nil it reads none.
type responseReader struct {
	key        string
	pending    []byte
	isReadable bool
	isStream   bool
	units      uint64
	isStated   bool
}

func (r *responseReader) start(header http.Header) {
	if r == nil {
		return
	}
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	r.isStream = kind == "text/event-stream"
	r.isReadable = r.isStream || kind == "application/json"
}

func (r *responseReader) feed(part []byte) {
	if r == nil || !r.isReadable {
		return
	}
	r.pending = append(r.pending, part...)
	for r.isStream {
		end := bytes.IndexAny(r.pending, "\r\n")
		if end < 0 {
			break
		}
		line := r.pending[:end]
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			r.take(data)
		}
		r.pending = r.pending[end+1:]
	}
	if len(r.pending) > maxReadBytes {
		r.isReadable, r.pending = false, nil
	}
}

// end gives what all results together state, and false where none states anything.
func (r *responseReader) end() (uint64, bool) {
	if r == nil {
		return 0, false
	}
	if r.isReadable && !r.isStream {
		r.take(r.pending)
	}
	r.isReadable, r.pending = false, nil
	return r.units, r.isStated
}

// take reads one message or batch. A result of which nobody can tell what it states states nothing.
func (r *responseReader) take(text []byte) {
	if !bytes.Contains(text, []byte("_meta")) || !json.Valid(text) {
		return
	}
	text = bytes.TrimSpace(text)
	if text[0] != '[' {
		r.takeOne(text)
		return
	}
	elements(text, func(message []byte) bool {
		r.takeOne(message)
		return true
	})
}

func (r *responseReader) takeOne(message []byte) {
	var answer struct {
		Result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"result"`
	}
	if json.Unmarshal(message, &answer) != nil {
		return
	}
	if units, ok := unitsIn(string(answer.Result.Meta[r.key])); ok {
		r.units, r.isStated = add(r.units, units), true
	}
}
