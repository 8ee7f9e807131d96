package contract

import (
	"context"
	"sync"
	"time"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

const (
	zone       = "Asia/Shanghai"
	toMidnight = time.Minute
	// TokensPerThought is what a call of think uses up.
	TokensPerThought = 400
)

var users = []string{"erin", "frank", "gina", "hal", "ivy", "jo", "kim", "lee", "max"}

// Guarded is the gate of /guarded/mcp, its time, and the calls of slow that wait for their end.
type Guarded struct {
	Gate *callgate.Gate
	Time *StandingTime

	mutex   sync.Mutex
	waiting map[chan struct{}]bool
}

// newGuarded is at its beginning.
func newGuarded() (*Guarded, error) {
	shanghai, err := time.LoadLocation(zone)
	if err != nil {
		return nil, err
	}
	server := callgate.Rule{Limit: "server", Scope: callgate.ScopeShared}
	fragile := callgate.Rule{Limit: "fragile", Scope: callgate.ScopeShared}
	byCaller := func(limit string) callgate.Rule { return callgate.Rule{Limit: limit, Scope: callgate.ScopeCaller} }
	const places, cooldown, lease = 3, 30 * time.Second, 2 * time.Hour
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{
			"caller":    hourly(100),
			"expensive": hourly(2),
			"tokens":    callgate.Quota{Limit: 1_000, Location: shanghai},
			"fragile":   callgate.ConcurrencyLimit{MaxInFlight: places, Lease: lease, FailureTrip: 3, Cooldown: cooldown},
			"server":    callgate.ConcurrencyLimit{MaxInFlight: places, Lease: lease, RejectTrip: 5, Cooldown: cooldown},
		},
		Policies: map[string]callgate.Policy{
			mcp.Authenticated: {byCaller("caller"), byCaller("tokens"), server},
			"expensive":       {byCaller("expensive"), byCaller("tokens"), server},
			"fragile":         {byCaller("caller"), fragile, server},
			mcp.Anonymous:     {server},
		},
		Capacity: 1_000,
	})
	midnight := time.Date(2026, time.March, 2, 0, 0, 0, 0, shanghai)
	return &Guarded{
		Gate:    gate,
		Time:    &StandingTime{now: 1_000 * time.Second, unix: midnight.Add(-toMidnight)},
		waiting: map[chan struct{}]bool{},
	}, err
}

// Options are those of both middlewares.
func (g *Guarded) Options() mcp.MeterOptions {
	return mcp.MeterOptions{
		Tools: map[string]mcp.PolicyChoice{"search": {Policy: "expensive"}, "fail": {Policy: "fragile"}},
		Clock: g.Time.Now,
	}
}

// Keys are the API keys.
func Keys() (*mcp.APIKeys, error) {
	keys := map[string]string{}
	for _, user := range users {
		keys["key-of-"+user] = user
	}
	return mcp.NewAPIKeys(keys, callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 20})
}

// Slow runs until it is released, or its caller has gone away.
func (g *Guarded) Slow(ctx context.Context) error {
	mayEnd := make(chan struct{})
	g.mutex.Lock()
	g.waiting[mayEnd] = true
	g.mutex.Unlock()
	defer func() {
		g.mutex.Lock()
		defer g.mutex.Unlock()
		delete(g.waiting, mayEnd)
	}()
	select {
	case <-mayEnd:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *Guarded) release() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for mayEnd, isWaiting := range g.waiting {
		if isWaiting {
			close(mayEnd)
			g.waiting[mayEnd] = false
		}
	}
}

func (g *Guarded) waitingCount() int {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return len(g.waiting)
}

// StandingTime is two clocks at a standstill until they are moved together.
type StandingTime struct {
	mutex sync.Mutex
	now   time.Duration
	unix  time.Time
}

// Now is the time of both.
func (t *StandingTime) Now() callgate.Instant {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return callgate.At(uint64(t.now), uint64(t.unix.UnixNano()))
}

func (t *StandingTime) advance(by time.Duration) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.now += by
	t.unix = t.unix.Add(by)
}

func hourly(burst uint64) callgate.RateLimit {
	return callgate.RateLimit{Count: 1, Per: time.Hour, Burst: burst}
}
