package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"callgate.dev/callgate"
)

// Handler meters tools/call in front of an MCP server over Streamable HTTP: it refuses calls before the
// server sees them. Bodies of POST requests are read and handed on; everything else, and every
// response, passes as it is, streams included. It is made by [Protect].
//
// An admitted call is settled when the handler behind returns: as Failure where it panics or answers
// 5xx; as Abandoned where the client left first; else as Success. Where a middleware of the SDK's on
// the same gate is around the server's handlers, its places are free only once the handler of the call
// has ended as well.
type Handler struct {
	next      http.Handler
	serve     http.Handler
	meter     *Meter
	verified  func(*http.Request) *Caller
	maxBytes  int64
	errorCode int
}

// Gate is the gate that decides.
func (h *Handler) Gate() *callgate.Gate { return h.meter.gate }

// InternalErrors is how often the limiter itself has failed.
func (h *Handler) InternalErrors() uint64 { return h.meter.InternalErrors() }

// ServeHTTP handles a request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve.ServeHTTP(w, r) }

func (h *Handler) meterRequest(w http.ResponseWriter, r *http.Request) {
	known := h.noteOf(r)
	if !strings.EqualFold(r.Method, http.MethodPost) {
		h.pass(w, r, known)
		return
	}
	body, err := readBody(r, h.maxBytes)
	if err != nil {
		h.unread(r, err).ServeHTTP(w, r)
		return
	}
	started := time.Now()
	calls, answer := h.readCalls(r.Header, body)
	spent := time.Since(started)
	r = r.WithContext(r.Context())
	r.Body = replayed(body)
	switch {
	case answer != nil:
		answer.ServeHTTP(w, r)
	case calls == nil || known.isChargedAt(h.meter.gate):
		h.pass(w, r, known)
	default:
		source := Source{Request: r, Header: r.Header}
		v := h.meter.decide(r.Context(), calls.entries, source, known.caller, spent)
		if v.refused {
			h.refusal(v, calls.id).ServeHTTP(w, r)
			return
		}
		// A hook may have read it.
		r.Body = replayed(body)
		h.run(w, r, known, v, calls)
	}
}

// noteOf is what is known of a request, and of who calls.
func (h *Handler) noteOf(r *http.Request) *note {
	known := noteOf(r.Context())
	if known.caller != nil || h.verified == nil {
		return known
	}
	if caller := h.askVerified(r); caller != nil {
		named := caller.withPolicy()
		return &note{caller: &named, receipts: known.receipts}
	}
	return known
}

// askVerified knows nobody where the function fails.
func (h *Handler) askVerified(r *http.Request) (caller *Caller) {
	defer func() {
		if fault := recover(); fault != nil {
			h.meter.countError(panicked(fault))
		}
	}()
	return h.verified(r)
}

// pass hands a request on that costs nothing here.
func (h *Handler) pass(w http.ResponseWriter, r *http.Request, known *note) {
	if known.caller == nil {
		h.next.ServeHTTP(w, r)
		return
	}
	carried, over := carry(r, known)
	defer over()
	h.next.ServeHTTP(w, carried)
}

// readCalls gives the calls in a body, or what to answer instead of running it. Neither, where there are
// no calls, and where no MCP server would read this body as JSON: a form for another route, say.
func (h *Handler) readCalls(header http.Header, body []byte) (*toolCalls, http.Handler) {
	isJSON := saysJSON(header)
	if isJSON && isEncoded(header) {
		// The SDKs do not decode, but something on the way may: nobody can say what runs.
		return nil, unsupportedCoding()
	}
	calls, unreadable := readCalls(body, h.meter.chooser.methods)
	if unreadable != nil && (isJSON || looksLikeJSON(body)) {
		return nil, errorResponse(http.StatusBadRequest, nil, &JSONRPCError{Code: unreadable.code, Message: unreadable.message})
	}
	return calls, nil
}

func (h *Handler) refusal(v *verdict, id json.RawMessage) *response {
	if v.decision == nil {
		return errorResponse(http.StatusServiceUnavailable, id, unavailable)
	}
	return refusalResponse(v.decision, v.cost, id, h.meter.policyLimits(v.policy), h.errorCode)
}

// run has an admitted message handled, and settles it on whichever way out.
func (h *Handler) run(w http.ResponseWriter, r *http.Request, known *note, v *verdict, calls *toolCalls) {
	paid := newReceipt(h.meter.gate, len(calls.entries), v.hold.charge)
	carried, over := carry(r, known.with(paid))
	carried = carried.WithContext(withUsage(carried.Context(), &v.hold.charge.usage))
	watch := newResponseWatch(w, h.meter.options.UsageMeta)
	hasReturned := false
	defer func() {
		defer over()
		if units, isStated := watch.units(); isStated {
			v.hold.charge.usage.stateAll(units)
		}
		outcome := watch.outcome(r.Context(), hasReturned)
		settle := func() { v.settle(outcome) }
		// 202 says that the call runs later: on the older transport its answer goes elsewhere.
		if watch.status == http.StatusAccepted && calls.isRequest {
			paid.handOver(settle)
		} else {
			settle()
		}
	}()
	h.next.ServeHTTP(watch.writer(), carried)
	hasReturned = true
}

// unread is the answer to a body that could not be read to its end.
func (h *Handler) unread(r *http.Request, err error) *response {
	if !errors.Is(err, errTooLarge) {
		return errorResponse(http.StatusBadRequest, nil, &JSONRPCError{
			Code: parseError, Message: "Parse error: the body could not be read to its end"})
	}
	discardRest(r, h.maxBytes)
	return errorResponse(http.StatusRequestEntityTooLarge, nil, &JSONRPCError{
		Code: invalidRequest, Message: fmt.Sprintf("Invalid request: the body is larger than %d bytes", h.maxBytes)})
}

func unsupportedCoding() *response {
	answer := errorResponse(http.StatusUnsupportedMediaType, nil, &JSONRPCError{
		Code: invalidRequest, Message: "Invalid request: send the body without a content coding"})
	answer.header.Set("Accept-Encoding", "identity")
	return answer
}
