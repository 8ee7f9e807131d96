package peers

import "math/rand/v2"

const (
	// longest is how long a bucket takes to fill: 2.3 years.
	longest = 1 << 56
	// start and end of every clock, so that it can go either way and stays below 2^61 ns.
	start, end = 1 << 58, 1 << 60
)

type draw struct{ *rand.Rand }

func newDraw(seed uint64) draw { return draw{rand.New(rand.NewPCG(seed, 0))} }

func (d draw) from1(to uint64) uint64 { return 1 + d.Uint64N(to) }

func (d draw) oneOf(choices ...uint64) uint64 { return choices[d.IntN(len(choices))] }

// config draws rates as people write them, and any others.
func (d draw) config() config {
	const second = 1_000_000_000
	for {
		c := config{
			count:    d.oneOf(1, 2, 3, 7, 10, 30, 60, 100, 1000, d.from1(1000), d.from1(second)),
			periodNs: d.oneOf(second, second, 60*second, 3_600*second, 86_400*second, d.from1(second), d.from1(1000)),
			burst:    d.oneOf(1, 2, d.from1(20), d.from1(1000), d.from1(1_000_000)),
		}
		if float64(c.burst)*float64(c.periodNs)/float64(c.count) <= longest {
			return c
		}
	}
}

func (d draw) cost(burst uint64) uint64 {
	return d.oneOf(0, 1, 1, 1, d.from1(burst), d.from1(burst), d.from1(min(burst, 3)), burst, burst+1, burst+2)
}

// next is when the next call comes: often just where its tokens are due, by either's measure.
func (d draw) next(b *buckets, now, cost uint64, stepsBack bool) uint64 {
	interval := b.ours.periodNs / b.ours.count
	if stepsBack && d.IntN(5) == 0 {
		back := d.oneOf(1, 1+interval, d.from1(3*interval+1), d.from1(interval*b.ours.burst+1))
		return now - min(back, now)
	}
	due, theirsDue := b.due(now, min(cost, b.ours.burst))
	next := d.oneOf(now, now, now+d.Uint64N(3*interval+2), due, due, due-1, due+1, theirsDue,
		now+interval, now+interval+1, b.isFull(now))
	if next > end {
		return now
	}
	return max(next, now)
}
