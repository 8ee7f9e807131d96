package main

import (
	"context"
	"sync"
	"time"

	"callgate.dev/callgate"
	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"
)

const unlimited = 1_000_000_000

func newCallgate(verdict string, callers []string) (deciders, error) {
	limit := callgate.RateLimit{Count: unlimited, Per: time.Second, Burst: unlimited}
	if verdict == "refuse" {
		limit = callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 1}
	}
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{"caller": limit},
		Policies: map[string]callgate.Policy{"authenticated": {{Limit: "caller", Scope: callgate.ScopeCaller}}},
		Capacity: len(callers),
	})
	if err != nil {
		return nil, err
	}
	keys := make([]callgate.Key, len(callers))
	for n, caller := range callers {
		if keys[n], err = gate.Key(caller); err != nil {
			return nil, err
		}
	}
	return func() func(int) bool {
		var decision callgate.Decision
		var call callgate.Call
		return func(caller int) bool {
			call.CallerKey = keys[caller]
			return gate.TryAdmit(&decision, "authenticated", &call) == nil && decision.Admitted
		}
	}, nil
}

// newLimiters is what most Go servers do: a limiter of golang.org/x/time for each caller, in a map under
// a mutex.
func newLimiters(verdict string, callers []string) (deciders, error) {
	limit, burst := rate.Limit(unlimited), unlimited
	if verdict == "refuse" {
		limit, burst = rate.Every(time.Hour), 1
	}
	var mutex sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return func() func(int) bool {
		return func(caller int) bool {
			mutex.Lock()
			limiter := limiters[callers[caller]]
			if limiter == nil {
				limiter = rate.NewLimiter(limit, burst)
				limiters[callers[caller]] = limiter
			}
			mutex.Unlock()
			return limiter.Allow()
		}
	}, nil
}

func newStore(verdict string, callers []string) (deciders, error) {
	config := memorystore.Config{Tokens: unlimited, Interval: time.Hour, SweepInterval: 24 * time.Hour, SweepMinTTL: 24 * time.Hour}
	if verdict == "refuse" {
		config.Tokens = 1
	}
	store, err := memorystore.New(&config)
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	return func() func(int) bool {
		return func(caller int) bool {
			_, _, _, ok, err := store.Take(ctx, callers[caller])
			return ok && err == nil
		}
	}, nil
}
