package callgate

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Loader asks a ledger what a caller has used in the present window, in units. Its context is not
// cancelled with the call that asked first: others wait for it, too.
type Loader func(ctx context.Context, caller string) (uint64, error)

// OnError says what a Seeder does where a load fails.
type OnError uint8

const (
	// OnErrorRefuse: the refusal (ReasonUnseeded) stands, and the caller is not loaded again for
	// RetryAfter.
	OnErrorRefuse OnError = iota
	// OnErrorZero: nothing is taken to have been used.
	OnErrorZero
)

// SeederConfig is how a Seeder meets failures. The zero value is that of the defaults.
type SeederConfig struct {
	// OnError is OnErrorRefuse or OnErrorZero.
	OnError OnError
	// RetryAfter: a caller whose load failed is not loaded again for so long. 0 is 5 s.
	RetryAfter time.Duration
	// Log is told of each load that failed, and of each panic in one; nil: nobody is.
	Log func(limit string, err error)
}

const defaultRetryAfter = 5 * time.Second

// rounds: a load is tried anew so often where its window ends meanwhile.
const rounds = 3

// Seeder decides calls under a quota that must be seeded, and seeds it when a caller first calls: after
// a restart, what callers have used before is loaded from a ledger. For each caller one load runs at a
// time; other calls of that caller wait for it. Every method may be called from any goroutine.
type Seeder struct {
	gate   *Gate
	limit  string
	load   Loader
	config SeederConfig

	mutex      sync.Mutex
	flights    map[string]*flight
	resting    map[string]time.Time // until when a caller is not loaded
	rests      []resting            // the same, the oldest first
	loadErrors uint64
}

// flight is a load on its way. Who comes meanwhile waits for it.
type flight struct {
	landed chan struct{}
	ends   time.Time // when the window ends that is asked about; zero where that is not known
}

// resting is a caller that is not loaded for a while.
type resting struct {
	caller string
	until  time.Time
}

// NewSeeder makes a Seeder of a gate's quota, which must have MustSeed and be kept by ScopeCaller in all
// policies. It fails with a *ConfigError where something is wrong.
func NewSeeder(gate *Gate, limit string, load Loader, config SeederConfig) (*Seeder, error) {
	if err := gate.usable(); err != nil {
		return nil, err
	}
	switch {
	case load == nil:
		return nil, &ConfigError{Field: "load", Message: "load must be a function of a caller, not nil"}
	case config.OnError > OnErrorZero:
		return nil, &ConfigError{Field: "on_error", Message: fmt.Sprintf("on_error must be OnErrorRefuse or OnErrorZero, not %d", config.OnError)}
	case config.RetryAfter < 0:
		return nil, &ConfigError{Field: "retry_after", Message: fmt.Sprintf("retry_after must be 0 or more, not %s", config.RetryAfter)}
	case config.RetryAfter == 0:
		config.RetryAfter = defaultRetryAfter
	}
	if err := checkSeeded(gate, limit); err != nil {
		return nil, err
	}
	return &Seeder{gate: gate, limit: limit, load: load, config: config,
		flights: map[string]*flight{}, resting: map[string]time.Time{}}, nil
}

func checkSeeded(gate *Gate, limit string) error {
	found := gate.Limits()[limit]
	if quota, ok := found.(Quota); !ok || !quota.MustSeed {
		return &ConfigError{Field: "limit", Limit: limit, Message: fmt.Sprintf(
			"limit must be a Quota of the gate with MustSeed, not %#v", found)}
	}
	for policy, rules := range gate.policies {
		for _, rule := range rules {
			if rule.Limit == limit && rule.Scope != ScopeCaller {
				return &ConfigError{Field: "scope", Limit: limit, Policy: policy, Message: fmt.Sprintf(
					"scope must be ScopeCaller in all policies, since callers are loaded, not %q", rule.Scope)}
			}
		}
	}
	return nil
}

// LoadErrors is how many loads failed.
func (s *Seeder) LoadErrors() uint64 {
	if s == nil || s.gate == nil {
		return 0
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.loadErrors
}

// Admit is Gate.AdmitContext; it waits while the caller is loaded, at most until the context is done.
func (s *Seeder) Admit(ctx context.Context, policy string, call Call) (*Permit, error) {
	permit := new(Permit)
	if err := s.TryAdmit(ctx, &permit.Decision, policy, &call); err != nil {
		return nil, err
	}
	admitted, err := permit.orRefused()
	if err == nil {
		admitted.settleWhenDone(ctx)
	}
	return admitted, err
}

// TryAdmit is Gate.TryAdmit; it waits while the caller is loaded, at most until the context is done, and
// returns its error then. The ledger is asked about the call's Caller, which can't be a key.
func (s *Seeder) TryAdmit(ctx context.Context, d *Decision, policy string, call *Call) error {
	if s == nil || s.gate == nil {
		return ErrClosed
	}
	switch {
	case ctx == nil:
		return &CallError{Field: "ctx", Message: "ctx must be a context, not nil"}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case call != nil && !call.CallerKey.IsZero():
		return &CallError{Field: "caller", Message: "caller must be an identity, which the ledger is asked about, not a key"}
	}
	err := s.gate.TryAdmit(d, policy, call)
	for range rounds {
		if err != nil || !s.isWaiting(d) {
			break
		}
		var flight *flight
		if flight, err = s.join(ctx, d, policy, call); flight == nil {
			break
		}
		select {
		case <-flight.landed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err = s.gate.TryAdmit(d, policy, call)
	}
	return err
}

func (s *Seeder) isWaiting(d *Decision) bool {
	return d.Reason == ReasonUnseeded && d.By == s.limit
}

// join is the flight of the caller's load, which it starts where there is none; nil where there is
// nothing to load. The call is decided anew then: another load may have landed since.
func (s *Seeder) join(ctx context.Context, d *Decision, policy string, call *Call) (*flight, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if known := s.flights[call.Caller]; known != nil {
		return known, nil
	}
	if until, ok := s.resting[call.Caller]; ok && timeOf(call.At).Before(until) {
		return nil, nil
	}
	began := time.Now().Round(0) // by the wall clock, which windows end by
	if err := s.gate.TryAdmit(d, policy, call); err != nil || !s.isWaiting(d) {
		return nil, err
	}
	started := &flight{landed: make(chan struct{})}
	if call.At.IsZero() {
		started.ends = began.Add(d.ResetAfter)
	}
	s.flights[call.Caller] = started
	go s.fly(context.WithoutCancel(ctx), started, call.Caller, call.At)
	return started, nil
}

var errLoadEnded = errors.New("the load ended its goroutine")

// fly loads a caller, beside the calls that wait for it. Whichever way the load ends, the flight lands.
func (s *Seeder) fly(ctx context.Context, f *flight, caller string, at Instant) {
	used, err := uint64(0), errLoadEnded
	defer func() {
		if thrown := recover(); thrown != nil {
			err = fmt.Errorf("the load panicked: %v\n%s", thrown, debug.Stack())
		}
		s.conclude(f, caller, at, used, err)
		s.mutex.Lock()
		delete(s.flights, caller)
		s.mutex.Unlock()
		close(f.landed)
	}()
	used, err = s.load(ctx, caller)
}

func (s *Seeder) conclude(f *flight, caller string, at Instant, used uint64, err error) {
	if err != nil {
		s.fail(err)
		if s.config.OnError == OnErrorRefuse {
			s.rest(caller, at)
			return
		}
		used = 0
	}
	if !f.ends.IsZero() && !time.Now().Round(0).Before(f.ends) {
		return // What was loaded is yesterday's.
	}
	if _, err := s.gate.Seed(s.limit, Usage{Caller: caller, Scope: ScopeCaller, Used: used, At: at}); err != nil {
		s.rest(caller, at) // There is no place for the caller's state, or the gate is closed.
	}
}

func (s *Seeder) fail(err error) {
	s.mutex.Lock()
	s.loadErrors++
	s.mutex.Unlock()
	if s.config.Log != nil {
		s.config.Log(s.limit, fmt.Errorf("loading what was used of quota %q failed: %w", s.limit, err))
	}
}

// rest keeps a caller from being loaded for a while.
func (s *Seeder) rest(caller string, at Instant) {
	now := timeOf(at)
	until := now.Add(s.config.RetryAfter)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.resting[caller] = until
	s.rests = append(s.rests, resting{caller, until})
	// A flood of callers must not fill the memory.
	for len(s.rests) > 0 {
		oldest := s.rests[0]
		if now.Before(oldest.until) && len(s.rests) <= s.gate.capacity {
			break
		}
		if s.resting[oldest.caller].Equal(oldest.until) {
			delete(s.resting, oldest.caller)
		}
		s.rests = s.rests[1:]
	}
}

// timeOf is an instant on one scale: of the system's clock, or of the caller's.
func timeOf(at Instant) time.Time {
	if at.IsZero() {
		return time.Now()
	}
	return time.Unix(0, 0).Add(duration(at.nowNs))
}
