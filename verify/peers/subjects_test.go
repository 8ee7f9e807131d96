package peers

import (
	"testing"
	"time"

	"callgate.dev/callgate"
	"golang.org/x/time/rate"
)

// answer is what either says of a call: neither admitted nor never is a wait of so many nanoseconds, or of
// one that isn't told.
type answer struct {
	isAdmitted, isNever bool
	waitNs              uint64
}

func afterwards(waitNs uint64) answer { return answer{isAdmitted: waitNs == 0, waitNs: waitNs} }

func (a answer) withoutWait() answer { return answer{isAdmitted: a.isAdmitted} }

// asker decides about the calls of one history.
type asker func(now, cost uint64) answer

func askCallgate(t testing.TB) func(config) asker {
	return func(c config) asker {
		limit := callgate.RateLimit{Count: c.count, Per: time.Duration(c.periodNs), Burst: c.burst}
		gate, err := callgate.New(callgate.Config{
			Limits:   map[string]callgate.Limit{"limit": limit},
			Policies: map[string]callgate.Policy{"default": {{Limit: "limit", Scope: callgate.ScopeShared}}},
			Capacity: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		var d callgate.Decision
		return func(now, cost uint64) answer {
			call := callgate.Call{Cost: cost, NoCost: cost == 0, At: callgate.At(now, 0)}
			if err := gate.TryAdmit(&d, "default", &call); err != nil {
				t.Fatal(err)
			}
			switch {
			case !d.Admitted && d.Reason != callgate.ReasonRate && d.Reason != callgate.ReasonNever:
				t.Fatalf("a rate limit refuses: %s", d.Reason)
			case !d.Admitted && d.Reason == callgate.ReasonRate && d.RetryAfter == 0:
				t.Fatal("a rate limit refuses, but has no wait")
			}
			return answer{isAdmitted: d.Admitted, isNever: d.Reason == callgate.ReasonNever, waitNs: uint64(d.RetryAfter)}
		}
	}
}

func instant(now uint64) time.Time { return time.Unix(0, int64(now)) }

func limiterOf(c config) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(c.perSecond()), int(c.burst))
}

// way is how a server asks x/time/rate.
type way struct {
	name         string
	isWaitTold   bool
	movesRefused bool // a refusal moves the limiter's clock
	ask          func(config) asker
}

var allow = way{name: "AllowN", ask: func(c config) asker {
	limiter := limiterOf(c)
	return func(now, cost uint64) answer {
		return answer{isAdmitted: limiter.AllowN(instant(now), int(cost))}
	}
}}

var reserve = way{name: "ReserveN", isWaitTold: true, movesRefused: true, ask: func(c config) asker {
	limiter := limiterOf(c)
	return func(now, cost uint64) answer {
		reservation := limiter.ReserveN(instant(now), int(cost))
		if !reservation.OK() {
			return answer{isNever: true}
		}
		wait := reservation.DelayFrom(instant(now))
		if wait > 0 {
			reservation.CancelAt(instant(now))
		}
		return afterwards(uint64(wait))
	}
}}

// seen is what can be told of an answer.
func (w way) seen(a answer) answer {
	if w.isWaitTold {
		return a
	}
	return a.withoutWait()
}
