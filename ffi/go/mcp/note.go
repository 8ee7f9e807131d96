package mcp

import (
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"sync"
	"time"

	"callgate.dev/callgate"
)

// note is what the middlewares that a request has passed know of it, for those inside.
type note struct {
	caller   *Caller
	receipts []*receipt
}

// with is the same note, and a receipt.
func (n *note) with(paid *receipt) *note {
	return &note{caller: n.caller, receipts: append(slices.Clone(n.receipts), paid)}
}

// takeReceipt gives a hold on what an outer middleware on this gate has charged for a call already.
func (n *note) takeReceipt(gate *callgate.Gate) *hold {
	for _, paid := range n.receipts {
		if paid.gate != gate {
			continue
		}
		if taken := paid.take(); taken != nil {
			return taken
		}
	}
	return nil
}

func (n *note) isChargedAt(gate *callgate.Gate) bool {
	return slices.ContainsFunc(n.receipts, func(paid *receipt) bool { return paid.gate == gate })
}

// isTaken: no handler is still to come for what was charged.
func (n *note) isTaken() bool {
	return !slices.ContainsFunc(n.receipts, func(paid *receipt) bool { return !paid.isTaken() })
}

type noteKey struct{}

func withNote(ctx context.Context, n *note) context.Context {
	return context.WithValue(ctx, noteKey{}, n)
}

// noteOf is never nil.
func noteOf(ctx context.Context) *note {
	if n, ok := ctx.Value(noteKey{}).(*note); ok {
		return n
	}
	return &note{}
}

// The official SDK runs the calls of a session in the context of the request that opened the session,
// and hands on nothing of the request that carried a call but its header. So the note's name is put
// there: a random one, which no client can guess, and which says nothing to whomever it is passed on to.
const noteHeader = "Callgate-Note"

var notes sync.Map // of *note, by name

// carry gives the request with the note, for the handlers inside, and a function to call when the
// request is over.
func carry(r *http.Request, n *note) (carried *http.Request, over func()) {
	name := rand.Text()
	notes.Store(name, n)
	carried = r.WithContext(withNote(r.Context(), n))
	carried.Header = r.Header.Clone()
	if carried.Header == nil {
		carried.Header = http.Header{}
	}
	carried.Header.Set(noteHeader, name)
	return carried, func() {
		if n.isTaken() {
			notes.Delete(name)
			return
		}
		// A handler may come after its client has left.
		time.AfterFunc(handOverTime, func() { notes.Delete(name) })
	}
}

// noteOfMessage is the note of the request that carried a message. Where there was a request, its
// header alone can say: the context may be that of another one.
func noteOfMessage(ctx context.Context, header http.Header) *note {
	if n, ok := notes.Load(header.Get(noteHeader)); ok {
		if known, isNote := n.(*note); isNote {
			return known
		}
	}
	if header == nil {
		return noteOf(ctx)
	}
	return &note{caller: noteOf(ctx).caller}
}
