package mcp

import (
	"context"
	"net/http"

	"callgate.dev/callgate"
)

// responseWatch passes a response on at once, and remembers how far it came.
type responseWatch struct {
	http.ResponseWriter
	reader *responseReader
	// status is 0 until a response starts.
	status int
}

func newResponseWatch(w http.ResponseWriter, usageMeta string) *responseWatch {
	watch := &responseWatch{ResponseWriter: w}
	if usageMeta != "" {
		watch.reader = &responseReader{key: usageMeta}
	}
	return watch
}

// writer is the watch as the handler behind gets it: it can flush where the server's own writer can,
// since that is how servers find out whether they can stream.
func (w *responseWatch) writer() http.ResponseWriter {
	if flusher, ok := w.ResponseWriter.(http.Flusher); ok {
		return &flushingWatch{w, flusher}
	}
	return w
}

// Unwrap is for http.ResponseController, and with it for deadlines and hijacking.
func (w *responseWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status. Informational ones are no beginning of the response.
func (w *responseWatch) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
		w.reader.start(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write passes a part of the response on.
func (w *responseWatch) Write(part []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
		w.reader.start(w.Header())
	}
	w.reader.feed(part)
	return w.ResponseWriter.Write(part)
}

// units is what the results in the response say they have used.
func (w *responseWatch) units() (uint64, bool) { return w.reader.end() }

// outcome is what became of the call, by the context of the request, which the server ends with the
// connection. A handler that writes nothing has net/http answer 200.
func (w *responseWatch) outcome(ctx context.Context, hasReturned bool) callgate.Outcome {
	switch {
	case ctx.Err() != nil:
		return callgate.Abandoned
	case !hasReturned || w.status >= 500:
		return callgate.Failure
	}
	return callgate.Success
}

// flushingWatch is a watch of a writer that can flush.
type flushingWatch struct {
	*responseWatch
	flusher http.Flusher
}

// Flush sends what was written so far.
func (w *flushingWatch) Flush() {
	if w.status == 0 {
		w.status = http.StatusOK
		w.reader.start(w.Header())
	}
	w.flusher.Flush()
}
