package peers

import (
	"math"
	"math/big"
)

// Everything here is exact: rationals of nanoseconds and of tokens.

// config is a bucket of burst tokens, of which count come back in each period.
type config struct {
	count, periodNs, burst uint64
}

// interval of a token, in nanoseconds.
func (c config) interval() *big.Rat { return ratio(c.periodNs, c.count) }

// perSecond is the rate as theirs takes it.
func (c config) perSecond() float64 { return float64(c.count) / (float64(c.periodNs) / 1e9) }

// ours is the bucket as callgate keeps it: when it is full again, by the true interval of a token and by
// the one that is rounded up to whole ticks of 2^-32 ns.
type ours struct {
	config
	full      *big.Rat
	ticksFull *big.Int
	tick      *big.Int // the interval in ticks
	charged   uint64   // tokens since it was last full by ticks
	latest    uint64   // when it was last charged
	isCharged bool
}

func newOurs(c config) *ours {
	tick := new(big.Int).Lsh(whole(c.periodNs), 32)
	tick.Add(tick, whole(c.count-1)).Div(tick, whole(c.count))
	return &ours{config: c, full: new(big.Rat), ticksFull: new(big.Int), tick: tick}
}

// early is by how many nanoseconds a call comes too early; zero or below where it passes.
func (o *ours) early(now, cost uint64) *big.Rat {
	from := latest(o.full, ratio(now, 1))
	need := new(big.Rat).Mul(o.interval(), minus(cost, o.burst))
	return from.Add(from, need).Sub(from, ratio(now, 1))
}

// earlyInTicks is the same by the interval that is rounded up, in nanoseconds.
func (o *ours) earlyInTicks(now, cost uint64) *big.Rat {
	at := ticksOf(now)
	from := new(big.Int).Set(at)
	if o.ticksFull.Cmp(from) > 0 {
		from.Set(o.ticksFull)
	}
	need := new(big.Int).Mul(o.tick, minus(cost, o.burst).Num())
	return new(big.Rat).SetFrac(from.Add(from, need).Sub(from, at), ticksOf(1))
}

func (o *ours) charge(now, cost uint64) {
	if cost == 0 {
		return
	}
	o.full = latest(o.full, ratio(now, 1))
	o.full.Add(o.full, new(big.Rat).Mul(o.interval(), ratio(cost, 1)))
	if at := ticksOf(now); o.ticksFull.Cmp(at) <= 0 {
		o.ticksFull, o.charged = at, 0
	}
	o.ticksFull.Add(o.ticksFull, new(big.Int).Mul(o.tick, whole(cost)))
	o.charged += cost
	o.latest, o.isCharged = max(o.latest, now), true
}

// roundedUp is by how many nanoseconds the rounding has put off when the bucket is full.
func (o *ours) roundedUp() *big.Rat {
	ticks := new(big.Rat).SetFrac(o.ticksFull, ticksOf(1))
	return ticks.Sub(ticks, o.full)
}

// theirs is the bucket as x/time/rate keeps it, were its numbers exact, and how far off they may be.
type theirs struct {
	config
	tokens *big.Rat
	err    *big.Rat // of the tokens, since they are float64
	last   uint64
	isUsed bool
	back   uint64 // by how much, all steps together, the last time was set back
}

func newTheirs(c config) *theirs {
	return &theirs{config: c, tokens: ratio(c.burst, 1), err: new(big.Rat)}
}

// at brings the tokens up to a time. What theirs computes is tokens + seconds * rate, cut at the burst.
func (t *theirs) at(now uint64) (tokens, err *big.Rat) {
	tokens, err = new(big.Rat).Set(t.tokens), new(big.Rat).Set(t.err)
	if !t.isUsed || now <= t.last {
		return tokens, err
	}
	came := new(big.Rat).Quo(ratio(now-t.last, 1), t.interval())
	// Off by: the rate (2 operations), the seconds (2), their product, and a sixth for what those errors
	// are off by themselves; then the sum.
	err.Add(err, times(rounding(came, new(big.Rat)), 6))
	tokens.Add(tokens, came)
	err = bound(err.Add(err, rounding(tokens, err)))
	burst := ratio(t.burst, 1)
	if new(big.Rat).Sub(tokens, err).Cmp(burst) >= 0 {
		return burst, new(big.Rat)
	}
	if tokens.Cmp(burst) > 0 {
		tokens = burst
	}
	return tokens, err
}

// take is what is left after a cost, which may be below zero, and how far off that is.
func take(tokens, err *big.Rat, cost uint64) (left, off *big.Rat) {
	left = new(big.Rat).Sub(tokens, ratio(cost, 1))
	return left, bound(new(big.Rat).Add(err, rounding(left, err)))
}

// early is by how many nanoseconds a call comes too early, and how far off that is.
func (t *theirs) early(now, cost uint64) (early, off *big.Rat) {
	tokens, err := t.at(now)
	left, off := take(tokens, err, cost)
	early = new(big.Rat).Mul(left.Neg(left), t.interval())
	off.Mul(off, t.interval())
	// The wait: the rate (2 operations), the quotient, the product, and a fifth as above.
	off.Add(off, times(rounding(early, off), 5))
	return early, off
}

func (t *theirs) charge(now, cost uint64) {
	t.tokens, t.err = t.at(now)
	t.tokens, t.err = take(t.tokens, t.err, cost)
	t.move(now)
}

// cancel is what a reservation leaves that was cancelled at once: the tokens are taken and given back.
func (t *theirs) cancel(now, cost uint64) {
	t.tokens, t.err = t.at(now)
	_, t.err = take(t.tokens, t.err, cost)
	t.err = bound(t.err.Add(t.err, rounding(t.tokens, t.err)))
	t.move(now)
}

func (t *theirs) move(now uint64) {
	t.back += t.behind(now)
	t.last, t.isUsed = now, true
}

// behind is by how much a time is before the last.
func (t *theirs) behind(now uint64) uint64 {
	if t.isUsed && now < t.last {
		return t.last - now
	}
	return 0
}

func whole(n uint64) *big.Int { return new(big.Int).SetUint64(n) }

func ratio(over, under uint64) *big.Rat { return new(big.Rat).SetFrac(whole(over), whole(under)) }

func minus(a, b uint64) *big.Rat { return new(big.Rat).Sub(ratio(a, 1), ratio(b, 1)) }

func ticksOf(ns uint64) *big.Int { return new(big.Int).Lsh(whole(ns), 32) }

func latest(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		a = b
	}
	return new(big.Rat).Set(a)
}

// half is how far off, relatively, one operation on float64 may be.
var half = new(big.Rat).SetFrac64(1, 1<<53)

// rounding is how far off one more operation may be whose result is so much, give or take err.
func rounding(result, err *big.Rat) *big.Rat {
	most := new(big.Rat).Abs(result)
	return most.Mul(most.Add(most, err), half)
}

func times(value *big.Rat, n uint64) *big.Rat { return new(big.Rat).Mul(value, ratio(n, 1)) }

// bound is err, or a little more that is written in fewer digits.
func bound(err *big.Rat) *big.Rat {
	const digits = 120
	over := new(big.Int).Lsh(err.Num(), digits)
	over.Add(over, err.Denom()).Div(over, err.Denom())
	return new(big.Rat).SetFrac(over, new(big.Int).Lsh(big.NewInt(1), digits))
}

// floor of a time that is too early; 0 where it is not.
func floor(early *big.Rat) uint64 {
	if early.Sign() <= 0 {
		return 0
	}
	return capped(new(big.Int).Div(early.Num(), early.Denom()))
}

func ceil(early *big.Rat) uint64 {
	if early.Sign() <= 0 {
		return 0
	}
	up := new(big.Int).Add(early.Num(), early.Denom())
	return capped(up.Sub(up, big.NewInt(1)).Div(up, early.Denom()))
}

func capped(n *big.Int) uint64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Uint64()
}
