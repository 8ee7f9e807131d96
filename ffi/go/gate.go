package callgate

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Gate decides calls: limits, the policies that apply them, and the state of all callers. It is made
// by New. Every method may be called from any goroutine at any time, Close included.
type Gate struct {
	handle engineGate
	isOpen atomic.Bool
	serial uint64 // of which gate a key is

	limitNames  []string
	policyNames []string
	policies    map[string]Policy
	policyIndex map[string]uint32
	// So many as are compared sooner than one is hashed.
	firstPolicies []string
	capacity      int

	calendar atomic.Pointer[calendar] // nil where no quota has a zone
	batches  spareBatches

	changing sync.Mutex // the engine forbids two reconfigurations at once
	known    sync.RWMutex
	limits   map[string]Limit
	kinds    map[string]string // also of limits that are off; not of those that always were

	internalErrors atomic.Uint64
}

var serials atomic.Uint64

// New makes a gate. It fails with a *ConfigError where something is out of its range.
func New(config Config) (*Gate, error) {
	if err := checkVersion(); err != nil {
		return nil, err
	}
	p, err := newPlan(&config)
	if err != nil {
		return nil, err
	}
	size, err := p.check()
	if err != nil {
		return nil, err
	}
	memory, err := syscall.Mmap(-1, 0, int(size), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("callgate: a gate of capacity %d needs %d bytes of memory: %w", p.capacity, size, err)
	}
	g := &Gate{
		serial:        serials.Add(1),
		limitNames:    p.limitNames,
		policyNames:   p.policyNames,
		policies:      make(map[string]Policy, len(p.policies)),
		policyIndex:   make(map[string]uint32, len(p.policies)),
		firstPolicies: p.policyNames[:min(8, len(p.policyNames))],
		capacity:      int(p.capacity),
		limits:        make(map[string]Limit, len(p.limits)),
		kinds:         make(map[string]string, len(p.limits)),
	}
	// Not before nobody can reach the gate, so that no call ever meets memory that is gone.
	runtime.AddCleanup(g, func(memory []byte) { _ = syscall.Munmap(memory) }, memory)
	if err := p.open(memory, &g.handle); err != nil {
		return nil, err
	}
	for n, name := range p.policyNames {
		g.policies[name], g.policyIndex[name] = p.policies[n], uint32(n)
	}
	for n, name := range p.limitNames {
		g.note(name, p.limits[n])
	}
	g.calendar.Store(newCalendar(g.limitNames, g.limits))
	g.isOpen.Store(true)
	return g, nil
}

// Close ends the gate: every later call fails with ErrClosed, those that are under way end as they
// would have. Its memory is given back when the gate and its permits are out of reach. A gate that is
// forgotten need not be closed. Closing twice does nothing.
func (g *Gate) Close() error {
	if g != nil {
		g.isOpen.Store(false)
	}
	return nil
}

// usable is ErrClosed where nothing may be asked of the gate.
func (g *Gate) usable() error {
	if g == nil || !g.isOpen.Load() {
		return ErrClosed
	}
	return nil
}

// Limits are the limits by name, as they were last set: a copy.
func (g *Gate) Limits() map[string]Limit {
	if g == nil {
		return nil
	}
	g.known.RLock()
	defer g.known.RUnlock()
	return maps.Clone(g.limits)
}

// Policies are the policies by name: a copy.
func (g *Gate) Policies() map[string]Policy {
	if g == nil {
		return nil
	}
	policies := make(map[string]Policy, len(g.policies))
	for name, rules := range g.policies {
		policies[name] = slices.Clone(rules)
	}
	return policies
}

// Capacity is how many distinct callers are sure to find a place.
func (g *Gate) Capacity() int {
	if g == nil {
		return 0
	}
	return g.capacity
}

// InternalErrors is how many failures of the limiter itself middleware has counted here.
func (g *Gate) InternalErrors() uint64 {
	if g == nil {
		return 0
	}
	return g.internalErrors.Load()
}

// CountInternalError is for middleware: the limiter itself failed, and a call was decided without it.
func (g *Gate) CountInternalError() {
	if g != nil {
		g.internalErrors.Add(1)
	}
}

// String says what the gate is.
func (g *Gate) String() string {
	if g == nil || g.limits == nil {
		return "<callgate.Gate, not made by New>"
	}
	return fmt.Sprintf("<callgate.Gate of %d limits, %d policies, capacity %d>", len(g.limitNames), len(g.policyNames), g.capacity)
}

// note keeps what a limit is now.
func (g *Gate) note(name string, limit Limit) {
	g.limits[name] = limit
	if _, isOff := limit.(Off); !isOff {
		g.kinds[name] = limit.kind()
	}
}
