package callgate

// #include "crossing.h"
import "C"

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"
)

// Reconfigure changes a limit, for all callers at once.
//
// Every caller keeps its debt, but never more than the new limit can express; nobody gets tokens by it,
// except those by which a burst is larger. What a rate limit was charged before is not given back on a
// cancellation any more. More calls in flight than a new limit allows end as they would have; an open
// breaker stays open until it was to be. A caller's window stays what it is; another Location is followed
// from its next midnight on.
//
// The limit becomes Off{}, or one of its kind; a concurrency limit keeps its lease. It fails with a
// *CallError where there is no such limit, and with a *ConfigError where it can't become that.
func (g *Gate) Reconfigure(name string, limit Limit, at ...Instant) error {
	if err := g.usable(); err != nil {
		return err
	}
	index, err := g.indexOfLimit("name", name, "")
	if err != nil {
		return err
	}
	to, err := engineLimitOf(name, limit)
	if err != nil {
		return err
	}
	g.changing.Lock()
	defer g.changing.Unlock()
	if err := g.checkChange(name, limit); err != nil {
		return err
	}
	var status engineStatus
	if when := instantOf(at); when.isGiven {
		status = C.callgate_reconfigure_at(&g.handle, C.uint32_t(index), &to, C.uint64_t(when.nowNs), C.uint64_t(when.unixNs))
	} else {
		status = C.callgate_reconfigure(&g.handle, C.uint32_t(index), &to)
	}
	runtime.KeepAlive(g)
	switch {
	case status >= C.CALLGATE_CONFIG_CAPACITY:
		return configError(status, name, "")
	case status != C.CALLGATE_OK:
		return callError(status)
	}
	g.known.Lock()
	defer g.known.Unlock()
	g.note(name, limit)
	g.calendar.Store(newCalendar(g.limitNames, g.limits))
	return nil
}

func (g *Gate) checkChange(name string, limit Limit) error {
	g.known.RLock()
	defer g.known.RUnlock()
	kind, ok := g.kinds[name]
	if _, isOff := limit.(Off); !ok || isOff || limit.kind() == kind {
		return nil
	}
	return &ConfigError{Field: "kind", Limit: name, Message: fmt.Sprintf(
		"kind must stay what it is, %s, or be Off; not %s", kind, limit.kind())}
}

// Usage is what a ledger knows of one state of a quota.
type Usage struct {
	// Caller is whose state it is, as in Call; "" where the scope has no caller.
	Caller string
	// Tool is the tool, where the scope has one.
	Tool string
	// CallerKey takes the place of Caller where the key was made beforehand.
	CallerKey Key
	// ToolKey takes the place of Tool where the key was made beforehand.
	ToolKey Key
	// Scope: the state is the one that the policies keep under this scope; needed where they use the
	// quota with several.
	Scope Scope
	// Used is how many units: they are added to what was used since the restart.
	Used uint64
	// At is the time, where it is not the system's.
	At Instant
}

// Seed tells a quota what a ledger knows to have been used in the present window: once for each caller
// and window, after a restart. It is false where the quota had been told; nothing is done then. A
// Seeder does this by itself.
//
// It fails with a *CallError where there is no such quota, and where the table has no place for the
// caller.
func (g *Gate) Seed(limit string, usage Usage) (bool, error) {
	if err := g.usable(); err != nil {
		return false, err
	}
	index, err := g.indexOfLimit("limit", limit, Quota{}.kind())
	if err != nil {
		return false, err
	}
	scope, err := g.scopeOf(limit, usage.Scope)
	if err != nil {
		return false, err
	}
	of := engineCall{struct_size: C.uint32_t(unsafe.Sizeof(engineCall{}))}
	if !usage.CallerKey.put(&of.caller, g.keysOf(false), usage.Caller) || !usage.ToolKey.put(&of.tool, g.keysOf(true), usage.Tool) {
		return false, g.misplaced(usage.Caller, usage.CallerKey, usage.Tool, usage.ToolKey)
	}
	if calendar := g.calendar.Load(); calendar != nil {
		if err := g.followZones(calendar, usage.At); err != nil {
			return false, err
		}
	}
	caller, callerSize := bytesOf(usage.Caller)
	tool, toolSize := bytesOf(usage.Tool)
	at := usage.At.engine()
	status := C.crossing_seed(&g.handle, C.uint32_t(index), C.uint32_t(scope), &of, caller, callerSize, tool, toolSize, &at, C.uint64_t(usage.Used))
	runtime.KeepAlive(g)
	switch status {
	case C.CALLGATE_OK:
		return true, nil
	case C.CALLGATE_ALREADY_SEEDED:
		return false, nil
	}
	return false, callError(status)
}

// scopeOf is the scope with which the policies use a limit; where there are several, the given one.
func (g *Gate) scopeOf(limit string, scope Scope) (Scope, error) {
	var known []Scope
	for _, policy := range g.policyNames {
		for _, rule := range g.policies[policy] {
			if rule.Limit == limit && !slices.Contains(known, rule.Scope) {
				known = append(known, rule.Scope)
			}
		}
	}
	if slices.Contains(known, scope) {
		return scope, nil
	}
	if scope == 0 && len(known) == 1 {
		return known[0], nil
	}
	if len(known) == 0 {
		return 0, &CallError{Field: "limit", Message: fmt.Sprintf("limit %q is in no policy of this gate: it has no state", limit)}
	}
	said := "is missing"
	if scope != 0 {
		said = fmt.Sprintf("can't be %d", scope)
	}
	names := make([]string, len(known))
	for n, each := range known {
		names[n] = each.String()
	}
	return 0, &CallError{Field: "scope", Message: fmt.Sprintf("scope %s: the policies keep limit %q by %s", said, limit, listed(names))}
}

// indexOfLimit is the index of a limit; kind is what it must be, or "".
func (g *Gate) indexOfLimit(argument, name, kind string) (int, error) {
	index, ok := slices.BinarySearch(g.limitNames, name)
	if !ok {
		return 0, &CallError{Field: argument, Message: fmt.Sprintf(
			"limit %q is unknown; this gate has %s", name, listed(g.limitNames))}
	}
	if kind == "" {
		return index, nil
	}
	if names := g.namesOf(kind); !slices.Contains(names, name) {
		return 0, &CallError{Field: argument, Message: fmt.Sprintf(
			"%q is no %s; of these this gate has %s", name, kind, listed(names))}
	}
	return index, nil
}

// namesOf is the limits of a kind, also those that are off.
func (g *Gate) namesOf(kind string) []string {
	g.known.RLock()
	defer g.known.RUnlock()
	var names []string
	for _, name := range g.limitNames {
		if g.kinds[name] == kind {
			names = append(names, name)
		}
	}
	return names
}
