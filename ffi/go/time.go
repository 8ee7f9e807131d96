package callgate

import (
	"fmt"
	"math"
	"time"
)

// Instant is a time that the caller takes, so that tests own the clock. The zero Instant is none: the
// system's clocks are read.
type Instant struct {
	nowNs, unixNs uint64
	isGiven       bool
}

// At is the instant of nowNs of a clock of yours, below 2^61 ns, and unixNs since the Unix epoch, at
// which only quotas look. Don't mix clocks on one gate: the system's is, on Linux, the one that goes
// on while the machine sleeps.
func At(nowNs, unixNs uint64) Instant {
	return Instant{nowNs: nowNs, unixNs: unixNs, isGiven: true}
}

// IsZero tells whether the system's clocks are to be read.
func (i Instant) IsZero() bool { return !i.isGiven }

// instantOf is the instant that was passed last, or none.
func instantOf(at []Instant) Instant {
	if len(at) == 0 {
		return Instant{}
	}
	return at[len(at)-1]
}

func (i Instant) engine() (t engineTime) {
	i.put(&t)
	return t
}

// unixSeconds is the second of the wall clock.
func (i Instant) unixSeconds() uint64 {
	if i.isGiven {
		return i.unixNs / uint64(time.Second)
	}
	return uint64(max(0, time.Now().Unix()))
}

// duration of the engine's nanoseconds, which are below 2^63 wherever its own clock was read.
func duration(ns uint64) time.Duration {
	return time.Duration(min(ns, math.MaxInt64))
}

// durationText is a duration to be read by people: three digits and the unit that suits them.
func durationText(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}}
	for _, unit := range units {
		if d >= unit.size {
			return fmt.Sprintf("%.3g %s", float64(d)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d ns", d)
}
