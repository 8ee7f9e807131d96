package callgate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// arbitrary makes arguments, many of them wrong, from a seed.
type arbitrary struct{ *rand.Rand }

func one[T any](a arbitrary, choices ...T) T { return choices[a.IntN(len(choices))] }

func (a arbitrary) number() uint64 {
	return one(a, 0, 1, 2, a.Uint64N(100), a.Uint64N(1<<20), 1<<47, 1<<61, 1<<63, math.MaxUint64, a.Uint64())
}

func (a arbitrary) small() int {
	return one(a, 0, 1, 2, 3, a.IntN(64), a.IntN(5000), -1, math.MinInt, math.MaxInt, 1<<32, 1<<32+1)
}

func (a arbitrary) duration() time.Duration {
	return one(a, 0, 1, -1, time.Millisecond, time.Second, 24*time.Hour, time.Duration(a.IntN(1<<30)), 1<<61, math.MaxInt64, math.MinInt64, time.Duration(a.Uint64()))
}

func (a arbitrary) name() string {
	return one(a, "a", "b", "c", "default", "", "\x00", "\xff", "a\nb\"\\", "ünï", fmt.Sprint(a.IntN(1000)))
}

func (a arbitrary) limit() Limit {
	switch a.IntN(10) {
	case 0:
		return one[Limit](a, nil, &RateLimit{}, (*RateLimit)(nil), &Quota{}, Off{})
	case 1, 2, 3:
		return RateLimit{a.number(), a.duration(), a.number()}
	case 4, 5, 6:
		return ConcurrencyLimit{a.small(), a.duration(), a.small(), a.small(), a.duration(), a.small()}
	}
	return Quota{a.number(), a.duration(), one(a, nil, nil, time.UTC, time.Local, time.FixedZone("x", a.IntN(200_000)-100_000), &time.Location{}),
		int64(a.number()), a.IntN(2) == 0}
}

func (a arbitrary) config() Config {
	config := Config{Limits: map[string]Limit{}, Policies: map[string]Policy{}, Capacity: one(a, 0, 1, 16, -5, a.IntN(100), math.MaxInt)}
	for range a.IntN(5) {
		config.Limits[a.name()] = a.limit()
	}
	for range a.IntN(4) {
		var policy Policy
		for range a.IntN(10) {
			policy = append(policy, Rule{a.name(), Scope(a.IntN(6))})
		}
		config.Policies[a.name()] = policy
	}
	if a.IntN(4) == 0 {
		config.Secret = make([]byte, a.IntN(20))
	}
	return config
}

// sound is a configuration of every kind of limit, with ranges that keep everything happening.
func (a arbitrary) sound() Config {
	return Config{
		Limits: map[string]Limit{
			"a": RateLimit{1 + a.Uint64N(10), time.Second, 1 + a.Uint64N(10)},
			"b": ConcurrencyLimit{MaxInFlight: 1 + a.IntN(4), Lease: time.Second, RejectTrip: a.IntN(3), FailureTrip: a.IntN(3), Cooldown: time.Second, HalfOpenProbes: a.IntN(3)},
			"c": Quota{Limit: 1 + a.Uint64N(100), Per: 24 * time.Hour, Location: one(a, time.UTC, time.FixedZone("x", 3600)), MustSeed: a.IntN(2) == 0},
		},
		Policies: map[string]Policy{
			"a":       {{"a", ScopeCaller}, {"b", ScopeShared}},
			"b":       {{"c", ScopeCaller}, {"a", ScopeTool}},
			"default": {{"a", ScopeCallerTool}, {"c", ScopeCaller}, {"b", ScopeShared}},
		},
		Capacity: 1 + a.IntN(20),
	}
}

func (a arbitrary) at() Instant {
	if a.IntN(2) == 0 {
		return Instant{}
	}
	return At(a.number(), a.number())
}

func (a arbitrary) call(keys []Key) Call {
	return Call{
		Caller: one(a, a.name(), ""), Tool: one(a, a.name(), ""), CallerKey: one(a, Key{}, Key{}, one(a, keys...)), ToolKey: one(a, Key{}, Key{}, one(a, keys...)),
		Cost: a.number(), NoCost: a.IntN(5) == 0, Reserve: a.number(), At: a.at(),
	}
}

// known fails where an error is not one of those that are promised.
func known(t *testing.T, what string, err error) {
	t.Helper()
	var config *ConfigError
	var call *CallError
	var refused *Refused
	if err != nil && !errors.As(err, &config) && !errors.As(err, &call) && !errors.As(err, &refused) && !errors.Is(err, ErrClosed) {
		t.Errorf("%s: %v", what, err)
	}
}

// ask does something to a gate, with whatever arguments.
func (a arbitrary) ask(t *testing.T, g *Gate, keys []Key, decisions []Decision) {
	d := &decisions[a.IntN(len(decisions))]
	call := a.call(keys)
	var err error
	switch a.IntN(13) {
	case 0, 1, 2:
		err = g.TryAdmit(d, a.name(), &call)
	case 3, 4:
		d.Used(a.number())
		_, err = d.Settle(Outcome(a.IntN(6)), a.at())
	case 5:
		_, err = g.Settle(d, Outcome(a.IntN(6)), a.number(), a.at())
	case 6:
		calls := make([]Call, a.IntN(20))
		for n := range calls {
			calls[n] = call
			calls[n].Cost, calls[n].Caller = a.number(), a.name()
		}
		err = g.TryAdmitMany(make([]Decision, len(calls)), a.name(), calls)
	case 7:
		_, err = g.Peek(a.name(), call)
	case 8:
		_, err = g.Seed(a.name(), Usage{Caller: call.Caller, Tool: call.Tool, CallerKey: call.CallerKey, Scope: Scope(a.IntN(6)), Used: a.number(), At: a.at()})
	case 9:
		err = g.Reconfigure(a.name(), a.limit(), a.at())
	case 10:
		_, err = g.AllGuards(a.at())
		known(t, "guards", err)
		_, err = g.Stats(a.at())
	case 11:
		err = g.Metrics(io.Discard, a.at())
	case 12:
		ctx, cancel := context.WithCancel(context.Background())
		var permit *Permit
		permit, err = g.AdmitContext(ctx, a.name(), call)
		cancel()
		_, _ = permit.Settle(Success)
	}
	known(t, "call", err)
}

func TestArbitraryArgumentsNeverCrashAndFailOnlyAsPromised(t *testing.T) {
	for seed := range uint64(60) {
		a := arbitrary{rand.New(rand.NewPCG(seed, 1))}
		for range 50 {
			gate, err := New(a.config())
			known(t, "config", err)
			if gate != nil {
				_ = gate.Close()
			}
		}
		gate, another := newGate(t, a.sound()), rateOf(t, 1, 1)
		keys := []Key{{}, {lo: 1, hi: 1}}
		for _, g := range []*Gate{gate, another} {
			caller, _ := g.Key("alice")
			tool, _ := g.ToolKey("search")
			keys = append(keys, caller, tool)
		}
		decisions := make([]Decision, 8)
		for range 1000 {
			a.ask(t, gate, keys, decisions)
		}
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func TestGoroutinesThatRaceOnEverythingNeverCrash(t *testing.T) {
	for seed := range uint64(4) {
		gate := newGate(t, arbitrary{rand.New(rand.NewPCG(seed, 2))}.sound())
		alice, _ := gate.Key("alice")
		var all sync.WaitGroup
		for worker := range uint64(6) {
			all.Go(func() {
				a := arbitrary{rand.New(rand.NewPCG(seed, 3+worker))}
				decisions := make([]Decision, 4) // of this goroutine: see TestOfManyGoroutinesOneSettles
				for range 2000 {
					a.ask(t, gate, []Key{{}, alice}, decisions)
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(seed) * 20 * time.Millisecond)
			if seed%2 == 1 {
				_ = gate.Close()
			}
		})
		all.Wait()
	}
}

func TestGoroutinesMayReconfigureAndCountWhileOthersAdmit(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 1000}, ScopeCaller)
	var count atomic.Int64
	var all sync.WaitGroup
	var done atomic.Bool
	for range 2 {
		all.Go(func() {
			for !done.Load() {
				if err := gate.Reconfigure("limit", RateLimit{1, time.Hour, 1000}, At(0, 0)); err != nil {
					t.Error(err)
				}
				if _, err := gate.Stats(At(0, 0)); err != nil {
					t.Error(err)
				}
				_ = gate.Limits()
			}
		})
	}
	var admitting sync.WaitGroup
	for range 4 {
		admitting.Go(func() {
			var d Decision
			for range 1000 {
				if err := gate.TryAdmit(&d, "default", &Call{Caller: "alice", At: At(0, 0)}); err != nil {
					t.Error(err)
				}
				if d.Admitted {
					count.Add(1)
				}
			}
		})
	}
	admitting.Wait()
	done.Store(true)
	all.Wait()
	if count.Load() != 1000 {
		t.Errorf("%d of a burst of 1000", count.Load())
	}
}

func TestAMillionRotatingCallersLoseNoDrainedBucket(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 1}, ScopeCaller)
	call := Call{At: At(0, 0)}
	var d Decision
	admitted := map[string]bool{}
	for n := range 1_000_000 {
		call.Caller = fmt.Sprint(n)
		if err := gate.TryAdmit(&d, "default", &call); err != nil {
			t.Fatal(err)
		}
		if d.Admitted {
			admitted[call.Caller] = true
		} else if d.Reason != ReasonTableFull {
			t.Fatal(&d)
		}
	}
	if len(admitted) < 100 || len(admitted) > 200 {
		t.Errorf("%d callers are tracked by a gate of 100", len(admitted))
	}
	for caller := range admitted {
		if d := ask(t, gate, Call{Caller: caller, At: At(0, 0)}); d.Reason != ReasonRate {
			t.Error("a drained bucket was lost:", d)
		}
	}
}
