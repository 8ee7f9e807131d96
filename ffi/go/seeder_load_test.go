package callgate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestACallThatIsCancelledLeavesTheLoadToThoseWhoWait(t *testing.T) {
	book := &ledger{used: 7, hold: make(chan struct{})}
	var seen context.Context
	seeder := newSeeder(t, seededGate(t, 1000, 24*time.Hour), func(ctx context.Context, caller string) (uint64, error) {
		seen = ctx
		return book.load(ctx, caller)
	}, SeederConfig{})
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "trace"))
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- seeder.TryAdmit(ctx, new(Decision), "default", &Call{Caller: "alice"}) }()
	eventually(t, "the load begins", func() bool { return book.count() == 1 })
	go func() {
		var d Decision
		err := seeder.TryAdmit(t.Context(), &d, "default", &Call{Caller: "alice"})
		if err == nil && !d.Admitted {
			err = errors.New(d.String())
		}
		second <- err
	}()
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(book.hold)
	if err := <-second; err != nil {
		t.Error(err)
	}
	if book.count() != 1 || seen.Err() != nil || seen.Value(key{}) != "trace" {
		t.Error("the load has the values of its call, and not its end")
	}
}

func TestALoadThatFailsRefusesAndIsNotTriedAgainAtOnce(t *testing.T) {
	book := &ledger{}
	book.fails.Store(true)
	var logged []string
	seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), book.load, SeederConfig{
		RetryAfter: 5 * time.Second, Log: func(limit string, err error) { logged = append(logged, limit+": "+err.Error()) }})
	for range 3 {
		if d := askSeeder(t, seeder, Call{Caller: "alice", At: At(0, 0)}); d.Reason != ReasonUnseeded {
			t.Error(d)
		}
	}
	if book.count() != 1 || seeder.LoadErrors() != 1 || len(logged) != 1 {
		t.Error(book.asked, seeder.LoadErrors(), logged)
	}
	if !strings.Contains(logged[0], "tokens") || !strings.Contains(logged[0], errAway.Error()) || strings.Contains(logged[0], "alice") {
		t.Error(logged)
	}
	askSeeder(t, seeder, Call{Caller: "bob", At: At(0, 0)})
	book.fails.Store(false)
	if d := askSeeder(t, seeder, Call{Caller: "alice", At: At(5*second-1, 0)}); d.Admitted {
		t.Error(d)
	}
	if d := askSeeder(t, seeder, Call{Caller: "alice", At: At(5*second, 0)}); !d.Admitted {
		t.Error(d)
	}
	if seeder.LoadErrors() != 2 {
		t.Error(seeder.LoadErrors())
	}
}

func TestALoadThatFailsMayBeTakenForNothingUsed(t *testing.T) {
	gate, book := seededGate(t, 10, 24*time.Hour), &ledger{}
	book.fails.Store(true)
	seeder := newSeeder(t, gate, book.load, SeederConfig{OnError: OnErrorZero})
	for range 2 {
		if d := askSeeder(t, seeder, Call{Caller: "alice"}); !d.Admitted {
			t.Error(d)
		}
	}
	if seeder.LoadErrors() != 1 || left(t, gate, "alice", Instant{}) != 10 {
		t.Error(seeder.LoadErrors(), left(t, gate, "alice", Instant{}))
	}
}

func TestALoadThatPanicsOrEndsItsGoroutineHasFailed(t *testing.T) {
	for what, load := range map[string]Loader{
		"panicked: broken":    func(context.Context, string) (uint64, error) { panic("broken") },
		"ended its goroutine": func(context.Context, string) (uint64, error) { runtime.Goexit(); return 0, nil },
	} {
		var logged string
		seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), load, SeederConfig{Log: func(_ string, err error) { logged = err.Error() }})
		if d := askSeeder(t, seeder, Call{Caller: "alice"}); d.Reason != ReasonUnseeded || seeder.LoadErrors() != 1 || !strings.Contains(logged, what) {
			t.Errorf("%s: %v, %d, %q", what, d, seeder.LoadErrors(), logged)
		}
	}
}

func TestWhatWasLoadedBeforeMidnightIsNotTakenForTheNewDay(t *testing.T) {
	book := &ledger{}
	seeder := newSeeder(t, seededGate(t, 10, time.Second), func(_ context.Context, caller string) (uint64, error) {
		_, _ = book.load(t.Context(), caller)
		if book.count() > 1 {
			return 0, nil
		}
		window := time.Now().Unix()
		for time.Now().Unix() == window {
			time.Sleep(10 * time.Millisecond)
		}
		return 10, nil
	}, SeederConfig{})
	if d := askSeeder(t, seeder, Call{Caller: "alice"}); !d.Admitted || book.count() < 2 {
		t.Error(d, book.asked)
	}
}

func TestAFloodOfCallersWhoseLoadsFailTakesNoMemory(t *testing.T) {
	book := &ledger{}
	book.fails.Store(true)
	seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), book.load, SeederConfig{})
	for n := range 1000 {
		if d := askSeeder(t, seeder, Call{Caller: fmt.Sprint("user ", n), At: At(0, 0)}); d.Admitted {
			t.Error(d)
		}
	}
	if seeder.LoadErrors() != 1000 || len(seeder.resting) > 100 || len(seeder.rests) > 100 || len(seeder.flights) != 0 {
		t.Error(seeder.LoadErrors(), len(seeder.resting), len(seeder.rests), len(seeder.flights))
	}
	for n := range 1000 { // the same caller over and over
		askSeeder(t, seeder, Call{Caller: "alice", At: At(uint64(n)*10*second, 0)})
	}
	if len(seeder.resting) > 100 || len(seeder.rests) > 100 {
		t.Error(len(seeder.resting), len(seeder.rests))
	}
}

func TestWithoutAPlaceForItsStateACallerStaysRefused(t *testing.T) {
	gate := newGate(t, Config{
		Limits:   map[string]Limit{"tokens": Quota{Limit: 10, Per: 24 * time.Hour, MustSeed: true}},
		Policies: map[string]Policy{"default": {{"tokens", ScopeCaller}}},
		Capacity: 1,
	})
	seeder := newSeeder(t, gate, (&ledger{}).load, SeederConfig{})
	reasons := map[Reason]int{}
	for n := range 200 {
		reasons[askSeeder(t, seeder, Call{Caller: fmt.Sprint("user ", n)}).Reason]++
	}
	if len(reasons) != 2 || reasons[ReasonNone] == 0 || reasons[ReasonUnseeded] == 0 || seeder.LoadErrors() != 0 {
		t.Error(reasons)
	}
}

func TestABadSeederNamesTheField(t *testing.T) {
	gate := newGate(t, Config{
		Limits: map[string]Limit{"must": Quota{Limit: 1, Per: time.Hour, MustSeed: true}, "own": Quota{Limit: 1, Per: time.Hour, MustSeed: true},
			"may": Quota{Limit: 1, Per: time.Hour}, "rate": RateLimit{1, time.Second, 1}},
		Policies: map[string]Policy{"default": {{"must", ScopeShared}, {"may", ScopeCaller}, {"rate", ScopeCaller}, {"own", ScopeCaller}}},
	})
	load := (&ledger{}).load
	for _, bad := range []struct {
		limit          string
		load           Loader
		config         SeederConfig
		field, message string
	}{
		{"may", load, SeederConfig{}, "limit", "must be a Quota of the gate with MustSeed"},
		{"rate", load, SeederConfig{}, "limit", "must be a Quota of the gate with MustSeed"},
		{"what", load, SeederConfig{}, "limit", "must be a Quota of the gate with MustSeed"},
		{"must", load, SeederConfig{}, "scope", `must be ScopeCaller in all policies, since callers are loaded, not "shared"`},
		{"own", nil, SeederConfig{}, "load", "not nil"},
		{"own", load, SeederConfig{OnError: 2}, "on_error", "OnErrorRefuse or OnErrorZero, not 2"},
		{"own", load, SeederConfig{RetryAfter: -1}, "retry_after", "0 or more, not -1ns"},
	} {
		_, err := NewSeeder(gate, bad.limit, bad.load, bad.config)
		wantConfigError(t, err, bad.field, bad.message)
	}
	seeder, err := NewSeeder(gate, "own", load, SeederConfig{})
	if err != nil {
		t.Fatal(err)
	}
	key, _ := gate.Key("alice")
	err = seeder.TryAdmit(t.Context(), new(Decision), "default", &Call{CallerKey: key})
	wantCallError(t, err, "caller", "which the ledger is asked about, not a key")
	wantCallError(t, seeder.TryAdmit(nilContext, new(Decision), "default", &Call{Caller: "alice"}), "ctx", "not nil")
	wantCallError(t, seeder.TryAdmit(t.Context(), nil, "default", &Call{Caller: "alice"}), "decision", "not nil")
	wantCallError(t, seeder.TryAdmit(t.Context(), new(Decision), "default", nil), "call", "not nil")
	wantCallError(t, seeder.TryAdmit(t.Context(), new(Decision), "what", &Call{Caller: "alice"}), "policy", "unknown")
}
