package callgate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ledger is what was used before the restart, and who asked.
type ledger struct {
	used  uint64
	fails atomic.Bool
	hold  chan struct{} // nil, or closed when loads may end

	mutex sync.Mutex
	asked []string
}

var errAway = errors.New("the ledger is away")

func (l *ledger) load(_ context.Context, caller string) (uint64, error) {
	l.mutex.Lock()
	l.asked = append(l.asked, caller)
	l.mutex.Unlock()
	if l.hold != nil {
		<-l.hold
	}
	if l.fails.Load() {
		return 99, errAway
	}
	return l.used, nil
}

func (l *ledger) count() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.asked)
}

func seededGate(t testing.TB, limit uint64, per time.Duration) *Gate {
	t.Helper()
	return newGate(t, Config{
		Limits: map[string]Limit{"tokens": Quota{Limit: limit, Per: per, MustSeed: true}, "rate": RateLimit{1000, time.Second, 100_000}},
		Policies: map[string]Policy{
			"default": {{"tokens", ScopeCaller}, {"rate", ScopeCaller}},
			"free":    {{"rate", ScopeCaller}},
		},
		Capacity: 100,
	})
}

func newSeeder(t testing.TB, gate *Gate, load Loader, config SeederConfig) *Seeder {
	t.Helper()
	seeder, err := NewSeeder(gate, "tokens", load, config)
	if err != nil {
		t.Fatal(err)
	}
	return seeder
}

func askSeeder(t testing.TB, s *Seeder, call Call) *Decision {
	t.Helper()
	d := new(Decision)
	if err := s.TryAdmit(context.Background(), d, "default", &call); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestACallerIsLoadedOnceAndThenDecided(t *testing.T) {
	gate, book := seededGate(t, 10, 24*time.Hour), &ledger{used: 7}
	seeder := newSeeder(t, gate, book.load, SeederConfig{})
	for range 3 {
		if d := askSeeder(t, seeder, Call{Caller: "alice"}); !d.Admitted {
			t.Error(d)
		}
	}
	if book.count() != 1 || left(t, gate, "alice", Instant{}) != 3 {
		t.Error(book.asked, left(t, gate, "alice", Instant{}))
	}
}

func TestWhoHasUsedAllIsRefusedByTheQuota(t *testing.T) {
	seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), (&ledger{used: 10}).load, SeederConfig{})
	var refused *Refused
	if _, err := seeder.Admit(t.Context(), "default", Call{Caller: "alice"}); !errors.As(err, &refused) || refused.Reason() != ReasonQuota {
		t.Error(err)
	}
}

func TestACallOfASeederIsSettledLikeAnyOther(t *testing.T) {
	gate := seededGate(t, 10, 24*time.Hour)
	seeder := newSeeder(t, gate, (&ledger{used: 1}).load, SeederConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	permit, err := seeder.Admit(ctx, "default", Call{Caller: "alice", Reserve: 5})
	if err != nil {
		t.Fatal(err)
	}
	permit.Used(2)
	if settled, err := permit.Settle(Success); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	if permit, err = seeder.Admit(ctx, "default", Call{Caller: "alice", Reserve: 5}); err != nil {
		t.Fatal(err)
	}
	permit.Used(1)
	cancel()
	eventually(t, "it is abandoned", func() bool { return left(t, gate, "alice", Instant{}) == 6 })
	if _, err := seeder.Admit(ctx, "default", Call{Caller: "alice"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAPolicyWithoutTheQuotaLoadsNothing(t *testing.T) {
	book := &ledger{}
	seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), book.load, SeederConfig{})
	if _, err := seeder.Admit(t.Context(), "free", Call{Caller: "alice"}); err != nil || book.count() != 0 {
		t.Error(err, book.asked)
	}
}

func TestANewWindowIsLoadedAnew(t *testing.T) {
	book := &ledger{used: 7}
	seeder := newSeeder(t, seededGate(t, 10, 24*time.Hour), book.load, SeederConfig{})
	for _, n := range []uint64{0, 0, 1, 1} {
		if d := askSeeder(t, seeder, Call{Caller: "alice", At: At(n, n*day)}); !d.Admitted {
			t.Error(d)
		}
	}
	if book.count() != 2 {
		t.Error(book.asked)
	}
}

func TestManyGoroutinesOfOneCallerShareOneLoad(t *testing.T) {
	gate, book := seededGate(t, 1000, 24*time.Hour), &ledger{used: 7, hold: make(chan struct{})}
	seeder := newSeeder(t, gate, book.load, SeederConfig{})
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() {
			if d := askSeeder(t, seeder, Call{Caller: []string{"alice", "bob"}[n%2], Reserve: 1}); !d.Admitted {
				t.Error(d)
			}
		})
	}
	eventually(t, "both are loaded", func() bool { return book.count() == 2 })
	close(book.hold)
	all.Wait()
	if book.count() != 2 || left(t, gate, "alice", Instant{}) != 1000-7-50 || left(t, gate, "bob", Instant{}) != 1000-7-50 {
		t.Error(book.asked, left(t, gate, "alice", Instant{}))
	}
}
