package callgate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// A shownUnit is one in which people read durations.
type shownUnit struct {
	name string
	ns   uint64
}

var shownUnits = []shownUnit{
	{"d", uint64(24 * time.Hour)}, {"h", uint64(time.Hour)}, {"m", uint64(time.Minute)},
	{"s", uint64(time.Second)}, {"ms", uint64(time.Millisecond)}, {"us", uint64(time.Microsecond)},
}

// unitOf is the unit that suits a duration; that of nanoseconds has no name.
func unitOf(ns uint64) shownUnit {
	for _, unit := range shownUnits {
		if ns >= unit.ns {
			return unit
		}
	}
	return shownUnit{ns: 1}
}

// durationText is a duration to be read by people: three digits and the unit that suits them. Rounded up,
// so that who waits for so long has not waited too short.
func durationText(d time.Duration) string {
	ns := uint64(max(0, d))
	first := unitOf(ns)
	if first.name == "" {
		return fmt.Sprintf("%d ns", ns)
	}
	ns = roundedUp(ns, first.ns)
	// 999.9 ms are 1000 ms, and that is 1 s.
	unit := unitOf(ns)
	whole, rest := ns/unit.ns, ns%unit.ns
	if rest == 0 {
		return fmt.Sprintf("%d %s", whole, unit.name)
	}
	decimals := decimalsBehind(whole)
	digits := fmt.Sprintf("%0*d", decimals, rest*powerOf10(decimals)/unit.ns)
	return fmt.Sprintf("%d.%s %s", whole, strings.TrimRight(digits, "0"), unit.name)
}

func roundedUp(ns, unit uint64) uint64 {
	whole := ns / unit
	tooMany := max(0, len(strconv.FormatUint(whole, 10))-3)
	step := unit / powerOf10(decimalsBehind(whole)) * powerOf10(tooMany)
	return (ns + step - 1) / step * step
}

// decimalsBehind is how many digits stand behind so many units, to have three.
func decimalsBehind(whole uint64) int {
	return max(0, 3-len(strconv.FormatUint(whole, 10)))
}

func powerOf10(n int) uint64 {
	power := uint64(1)
	for range n {
		power *= 10
	}
	return power
}
