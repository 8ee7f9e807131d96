package mcp

import (
	"sync"
	"time"
	"weak"

	"callgate.dev/callgate"
)

// share is one of the permits of a message: a batch over several policies has several.
type share struct {
	permit   *callgate.Decision
	reserve  uint64
	hasQuota bool
}

// settleFunc settles one permit.
type settleFunc func(permit *callgate.Decision, outcome callgate.Outcome, used uint64)

// charge is what one message was charged: settled once, when everybody who runs it has let go of it.
//
// A request over HTTP and the handler within it end at different times: a client may leave while the
// handler runs on. Each of them holds the charge, and a place is free again when both have ended. The
// worst that one of them says became of the call is what is settled.
type charge struct {
	usage  usage
	settle settleFunc

	mutex   sync.Mutex
	shares  []share
	holds   int
	outcome callgate.Outcome
}

// newCharge gives the first hold on a charge.
func newCharge(settle settleFunc, shares []share) *hold {
	return &hold{charge: &charge{settle: settle, shares: shares, holds: 1, outcome: callgate.Cancelled}}
}

// hold is for one more who has to let go; nil where everybody has, which is the end.
func (c *charge) hold() *hold {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.holds == 0 {
		return nil
	}
	c.holds++
	return &hold{charge: c}
}

func (c *charge) letGo(outcome callgate.Outcome) {
	c.mutex.Lock()
	c.holds--
	if weight(outcome) > weight(c.outcome) {
		c.outcome = outcome
	}
	var ended []share
	if c.holds == 0 {
		ended, c.shares = c.shares, nil
	}
	outcome = c.outcome
	c.mutex.Unlock()
	if len(ended) == 0 {
		return
	}
	for n, used := range c.used(ended) {
		c.settle(ended[n].permit, outcome, used)
	}
}

// used is what each share has used. Where nobody has said it, the estimate stands. Of a batch over
// several policies it isn't known which call used what: the first with a quota pays for all.
func (c *charge) used(shares []share) []uint64 {
	used := make([]uint64, len(shares))
	total, isSaid := c.usage.end()
	payer := 0
	for n := len(shares) - 1; n >= 0; n-- {
		if shares[n].hasQuota {
			payer = n
		}
		if !isSaid {
			used[n] = shares[n].reserve
		}
	}
	if isSaid {
		used[payer] = total
	}
	return used
}

// weight orders outcomes by how bad they are.
func weight(outcome callgate.Outcome) int {
	switch outcome {
	case callgate.Success:
		return 1
	case callgate.Abandoned:
		return 2
	case callgate.Failure:
		return 3
	}
	return 0
}

// hold lets go of a charge, on whichever way out comes first; later ones change nothing.
type hold struct {
	charge *charge
	once   sync.Once
}

func (h *hold) settle(outcome callgate.Outcome) {
	h.once.Do(func() { h.charge.letGo(outcome) })
}

// receipt is for calls that were paid for at one gate, so that an inner middleware on the same gate lets
// them through.
//
// Each inner call takes one. A message that turns out to hold more calls than were counted outside so
// has the surplus charged inside.
type receipt struct {
	gate   *callgate.Gate
	charge *charge

	mutex      sync.Mutex
	left       int
	handedOver func()
}

func newReceipt(gate *callgate.Gate, calls int, charge *charge) *receipt {
	return &receipt{gate: gate, charge: charge, left: calls}
}

// take gives a hold on the charge for one call; nil where all have been taken, and where the charge has
// ended: a handler may come after its client has left.
func (r *receipt) take() *hold {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.left <= 0 {
		return nil
	}
	taken := r.charge.hold()
	if taken == nil {
		return nil
	}
	r.left--
	if r.left == 0 && r.handedOver != nil {
		r.handedOver()
	}
	return taken
}

// isTaken: no handler is still to come.
func (r *receipt) isTaken() bool {
	if _, isExpected := handOverTimeOf(r.gate); !isExpected {
		return true
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.left <= 0
}

// handOver has settle called once a handler is there for each of the calls, or when it should have
// been; at once, where there is none to expect.
func (r *receipt) handOver(settle func()) {
	r.mutex.Lock()
	if wait, isExpected := handOverTimeOf(r.gate); isExpected && r.left > 0 {
		once := sync.OnceFunc(settle)
		timer := time.AfterFunc(wait, once)
		r.handedOver = func() {
			timer.Stop()
			once()
		}
		settle = func() {}
	}
	r.mutex.Unlock()
	settle()
}

// handOverTime is for how long a charge waits for the handler of a request that was answered with 202,
// and a note for that of any request.
const handOverTime = 5 * time.Second

// briefHandOverTime is that of a charge where the SDK, as mcp-go, does not ask its middleware about every
// call: with the name of a tool that does not exist, any caller keeps a place for so long. A handler comes
// at once as a rule; one that comes later is decided anew.
const briefHandOverTime = 250 * time.Millisecond

// gatesWithHandlers has the gates on which a middleware is around the handlers of a server, and how long a
// charge waits for one there.
var gatesWithHandlers sync.Map // of time.Duration, by weak.Pointer[callgate.Gate]

// expectHandlers leaves the shorter time, where an SDK's middleware has said that already.
func expectHandlers(gate *callgate.Gate) {
	gatesWithHandlers.LoadOrStore(weak.Make(gate), handOverTime)
}

func expectSomeHandlers(gate *callgate.Gate) {
	gatesWithHandlers.Store(weak.Make(gate), briefHandOverTime)
}

func handOverTimeOf(gate *callgate.Gate) (wait time.Duration, isExpected bool) {
	found, _ := gatesWithHandlers.Load(weak.Make(gate))
	wait, isExpected = found.(time.Duration)
	return wait, isExpected
}
