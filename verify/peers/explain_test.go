package peers

import (
	"fmt"
	"math/big"
)

// The classes of differences; doc.go says what each is.
type class string

const (
	roundedUp class = "rounded up"
	asOfThen  class = "as of then"
	twice     class = "twice"
	cut       class = "cut"
	float     class = "float"
)

var classes = []class{roundedUp, asOfThen, twice, cut, float}

// buckets are both, kept exactly, of a history in which both have admitted the same calls.
type buckets struct {
	ours   *ours
	theirs *theirs
}

func newBuckets(c config) *buckets { return &buckets{newOurs(c), newTheirs(c)} }

// due is when a call would pass, by ours (its interval not rounded) and by theirs.
func (b *buckets) due(now, cost uint64) (ours, theirs uint64) {
	early, _ := b.theirs.early(now, cost)
	return now + ceil(b.ours.early(now, cost)), now + floor(early)
}

func (b *buckets) isFull(now uint64) uint64 { return now + ceil(b.ours.early(now, b.ours.burst)) }

// explain leads from what ours has said, one step a class, to what theirs has said. Each step is held to
// its bound, whether it makes a difference or not; the classes are those that make one.
func (b *buckets) explain(now, cost uint64, we, they answer, w way) ([]class, error) {
	if cost > b.ours.burst {
		if !we.isNever || they != w.seen(answer{isNever: true}) {
			return nil, fmt.Errorf("a cost above the burst: %+v, %+v", we, they)
		}
		return nil, nil
	}
	inTicks, then := b.ours.earlyInTicks(now, cost), b.ours.early(now, cost)
	behind := max(now, b.ours.latest) - now
	kept := b.ours.early(now+behind, cost)
	moved, off := b.theirs.early(now, cost)

	if want := afterwards(ceil(inTicks)); we != want {
		return nil, fmt.Errorf("ours is %+v, by its own rule %+v", we, want)
	}
	if err := b.checkRounding(new(big.Rat).Sub(inTicks, then), ceil(inTicks) != ceil(then), behind); err != nil {
		return nil, err
	}
	if gap := new(big.Rat).Sub(then, kept); !isWithin(gap, behind) {
		return nil, fmt.Errorf("%s ns as of then, where the clock is behind by %d", gap.FloatString(3), behind)
	}
	if gap, back := new(big.Rat).Sub(kept, moved), b.theirs.back+b.theirs.behind(now); !isWithin(gap, back) {
		return nil, fmt.Errorf("%s ns twice, where the clock went back by %d", gap.FloatString(3), back)
	}
	least, most := floor(new(big.Rat).Sub(moved, off)), floor(new(big.Rat).Add(moved, off))
	between := min(max(they.waitNs, least), most)
	if they != w.seen(afterwards(between)) && they != w.seen(afterwards(most)) {
		return nil, fmt.Errorf("theirs is %+v, by its own rule a wait of %d to %d ns", they, least, most)
	}
	steps := []answer{w.seen(we), w.seen(afterwards(ceil(then))), w.seen(afterwards(ceil(kept))),
		w.seen(afterwards(ceil(moved))), w.seen(afterwards(floor(moved))), they}
	var met []class
	for n, class := range classes {
		if steps[n] != steps[n+1] {
			met = append(met, class)
		}
	}
	return met, nil
}

// checkRounding holds ours to less than a tick for each token charged.
func (b *buckets) checkRounding(later *big.Rat, isSeen bool, behind uint64) error {
	full, most := b.ours.roundedUp(), ticks(b.ours.charged)
	if full.Sign() < 0 || full.Cmp(most) > 0 || later.Cmp(most) > 0 {
		return fmt.Errorf("rounded up by %s ns, after %d tokens", later.FloatString(12), b.ours.charged)
	}
	if isSeen && later.Sign() <= 0 && (behind == 0 || new(big.Rat).Neg(later).Cmp(ticks(b.ours.burst)) > 0) {
		return fmt.Errorf("too early by %s ns, with a clock behind by %d", later.FloatString(12), behind)
	}
	return nil
}

func ticks(n uint64) *big.Rat { return new(big.Rat).SetFrac(whole(n), ticksOf(1)) }

func isWithin(gap *big.Rat, most uint64) bool { return gap.Sign() >= 0 && gap.Cmp(ratio(most, 1)) <= 0 }

// take charges both with what both have admitted.
func (b *buckets) take(now, cost uint64, isAdmitted bool, w way) {
	switch {
	case isAdmitted:
		b.ours.charge(now, cost)
		b.theirs.charge(now, cost)
	case w.movesRefused && cost <= b.ours.burst:
		b.theirs.cancel(now, cost)
	}
}

// found is what a comparison met.
type found struct {
	calls, admitted, differ int
	classes                 map[class]int
}

func newFound() *found { return &found{classes: make(map[class]int)} }

// compare has so many calls decided by both, and fails where they differ and that is not explained.
func (f *found) compare(d draw, calls int, ours func(config) asker, w way) error {
	c, stepsBack := d.config(), d.IntN(2) == 0
	b, askOurs, askTheirs := newBuckets(c), ours(c), w.ask(c)
	now := uint64(start)
	for range calls {
		cost := d.cost(c.burst)
		now = d.next(b, now, cost, stepsBack)
		we, they := askOurs(now, cost), askTheirs(now, cost)
		met, err := b.explain(now, cost, we, they, w)
		if err != nil {
			return fmt.Errorf("%+v, cost %d at %d: %w", c, cost, now, err)
		}
		f.note(met, we.isAdmitted, w.seen(we) != they)
		if we.isAdmitted != they.isAdmitted {
			b, askOurs, askTheirs = newBuckets(c), ours(c), w.ask(c)
			continue
		}
		b.take(now, cost, we.isAdmitted, w)
	}
	return nil
}

func (f *found) note(met []class, isAdmitted, differs bool) {
	f.calls++
	if isAdmitted {
		f.admitted++
	}
	if !differs {
		return // Steps that undo each other.
	}
	f.differ++
	for _, class := range met {
		f.classes[class]++
	}
}
