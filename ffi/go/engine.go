package callgate

// #cgo noescape crossing_settle
// #cgo nocallback crossing_settle
// #cgo noescape callgate_key_make
// #cgo nocallback callgate_key_make
// #cgo noescape crossing_admit
// #cgo nocallback crossing_admit
// #cgo noescape crossing_admit_many
// #cgo nocallback crossing_admit_many
// #include "crossing.h"
import "C"

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unsafe"
)

// What the engine's structs are in Go. None that cgo is passed holds a Go pointer, so that it has nothing
// to check: of an engineAdmission, which does, it is passed only parts.
type (
	engineGate      = C.callgate_gate
	engineLimit     = C.callgate_limit
	enginePolicy    = C.callgate_policy
	engineCall      = C.callgate_call
	enginePermit    = C.callgate_permit
	engineDecision  = C.callgate_decision
	engineKey       = C.callgate_key
	engineTime      = C.crossing_time
	engineAdmission = C.crossing_admission
	engineNames     = C.crossing_names
	engineStatus    = C.callgate_status
)

const (
	rulesMax      = C.CALLGATE_MAX_RULES
	engineVersion = C.CALLGATE_VERSION
)

// What package direct calls.
var (
	admitDirect        = C.crossing_admit_address()
	admitUnusualDirect = C.crossing_admit_unusual_address()
	settleDirect       = C.crossing_settle_address()
)

// Version of the module and of the library that it is linked with.
const Version = "0.1.0"

func checkVersion() error { return compareVersions(uint32(C.callgate_version())) }

// compareVersions: before 1.0, a library of another minor version is another ABI.
func compareVersions(library uint32) error {
	if library>>8 == engineVersion>>8 {
		return nil
	}
	return fmt.Errorf("callgate: the library is version %s, but its header is version %s: build the library anew",
		versionText(library), versionText(engineVersion))
}

func versionText(version uint32) string {
	return fmt.Sprintf("%d.%d.%d", version>>16&0xff, version>>8&0xff, version&0xff)
}

// sentence says what a status means.
func sentence(status engineStatus) string {
	return C.GoString(C.callgate_strerror(C.int32_t(status)))
}

// fieldOf is the field that a status blames, or "".
func fieldOf(status engineStatus) string {
	name := C.callgate_error_field(C.int32_t(status))
	if name == nil {
		return ""
	}
	return C.GoString(name)
}

// What the engine calls its fields, where a Go program sees them under another name.
var fieldNames = map[string]string{"limit_count": "limits", "policy_count": "policies", "rule_count": "rules"}

func configError(status engineStatus, limit, policy string) error {
	field, text := fieldOf(status), sentence(status)
	if name, ok := fieldNames[field]; ok {
		text = strings.Replace(text, field, name, 1)
		field = name
	}
	return &ConfigError{Field: field, Limit: limit, Policy: policy, Message: text}
}

func callError(status engineStatus) error {
	return &CallError{Field: fieldOf(status), Message: sentence(status)}
}

// check asks the engine, which alone keeps the bounds, and is told how much memory a gate needs.
func (p *plan) check() (size uintptr, err error) {
	limits, policies, err := p.parts()
	if err != nil {
		return 0, err
	}
	var fault C.callgate_fault
	var needed C.size_t
	status := C.crossing_plan(C.uint32_t(p.capacity), (*C.uint8_t)(&p.secret[0]), &limits[0], C.uint32_t(len(limits)),
		&policies[0], C.uint32_t(len(policies)), &fault, &needed)
	if status == C.CALLGATE_OK {
		return uintptr(needed), nil
	}
	limit, policy := "", ""
	if int(fault.limit) < len(limits) {
		limit = p.limitNames[fault.limit]
	}
	if int(fault.policy) < len(policies) {
		policy = p.policyNames[fault.policy]
	}
	return 0, configError(status, limit, policy)
}

// open makes a gate in memory.
func (p *plan) open(memory []byte, gate *engineGate) error {
	limits, policies, err := p.parts()
	if err != nil {
		return err
	}
	status := C.crossing_init(unsafe.Pointer(&memory[0]), C.size_t(len(memory)), C.uint32_t(p.capacity),
		(*C.uint8_t)(&p.secret[0]), &limits[0], C.uint32_t(len(limits)), &policies[0], C.uint32_t(len(policies)), gate)
	if status != C.CALLGATE_OK {
		return configError(status, "", "")
	}
	return nil
}

func (p *plan) parts() ([]engineLimit, []enginePolicy, error) {
	limits := make([]engineLimit, len(p.limits))
	for n, limit := range p.limits {
		var err error
		if limits[n], err = engineLimitOf(p.limitNames[n], limit); err != nil {
			return nil, nil, err
		}
	}
	policies := make([]enginePolicy, len(p.policies))
	for n, rules := range p.policies {
		policies[n].rule_count = C.uint32_t(len(rules))
		for r, rule := range rules {
			index := indexOf(p.limitNames, rule.Limit)
			policies[n].rules[r] = C.callgate_rule{limit: C.uint32_t(index), scope: C.uint32_t(rule.Scope)}
		}
	}
	return limits, policies, nil
}

// engineLimitOf is a limit as the engine takes it. What a field can't hold is handed on as something
// that the engine refuses, too; only of a duration below zero it can't know.
func engineLimitOf(name string, limit Limit) (engineLimit, error) {
	switch l := limit.(type) {
	case RateLimit:
		per, err := nanoseconds(name, "period_ns", l.Per)
		return engineLimit{kind: C.CALLGATE_KIND_RATE, count: C.uint64_t(l.Count), period_ns: per,
			burst: C.uint64_t(l.Burst)}, err
	case ConcurrencyLimit:
		lease, err := nanoseconds(name, "lease_ns", l.Lease)
		if err != nil {
			return engineLimit{}, err
		}
		cooldown, err := nanoseconds(name, "cooldown_ns", l.Cooldown)
		return engineLimit{kind: C.CALLGATE_KIND_CONCURRENCY, max_in_flight: places(l.MaxInFlight), lease_ns: lease,
			reject_trip: places(l.RejectTrip), failure_trip: places(l.FailureTrip), cooldown_ns: cooldown,
			half_open_probes: places(l.HalfOpenProbes)}, err
	case Quota:
		return engineQuota(name, l)
	case Off:
		return engineLimit{kind: C.CALLGATE_KIND_OFF}, nil
	}
	return engineLimit{}, &ConfigError{Field: "kind", Limit: name, Message: fmt.Sprintf(
		"a limit must be a RateLimit, ConcurrencyLimit, Quota or Off (not a pointer to one), not %T", limit)}
}

func engineQuota(name string, l Quota) (engineLimit, error) {
	limit := engineLimit{kind: C.CALLGATE_KIND_QUOTA, limit: C.uint64_t(l.Limit)}
	if l.MustSeed {
		limit.must_seed = 1
	}
	fault := ""
	switch {
	case l.Location != nil && l.Per != 0 && l.Per != 24*time.Hour:
		fault = fmt.Sprintf("Per must be 24 hours (or 0) where there is a Location: windows are its calendar days, not %s", l.Per)
	case l.Location != nil && l.AnchorUnixS != 0:
		return limit, &ConfigError{Field: "anchor_unix_s", Limit: name,
			Message: "AnchorUnixS must be 0 where there is a Location: windows begin at its midnights"}
	case l.Location != nil:
		return limit, nil // A period of 0: its windows are set.
	case l.Per%time.Second != 0 || l.Per < time.Second || l.Per/time.Second > 1<<33:
		fault = fmt.Sprintf("Per must be 1 to 2^33 whole seconds, not %s", l.Per)
	}
	if fault != "" {
		return limit, &ConfigError{Field: "period_s", Limit: name, Message: fault}
	}
	limit.period_s, limit.anchor_unix_s = C.uint64_t(l.Per/time.Second), C.int64_t(l.AnchorUnixS)
	return limit, nil
}

func nanoseconds(limit, field string, d time.Duration) (C.uint64_t, error) {
	if d < 0 {
		return 0, &ConfigError{Field: field, Limit: limit, Message: fmt.Sprintf("%s must be above zero, not %s", field, d)}
	}
	return C.uint64_t(d), nil
}

func places(n int) C.uint32_t { return C.uint32_t(narrow(int64(n))) }

// narrow keeps what is out of every range so.
func narrow(n int64) uint32 {
	if n < 0 || n > math.MaxUint32 {
		return math.MaxUint32
	}
	return uint32(n)
}

func indexOf(names []string, name string) int {
	for n, known := range names {
		if known == name {
			return n
		}
	}
	return -1
}

// bytesOf is where a string's bytes are, for C to look at while it is called.
func bytesOf(s string) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.StringData(s))), C.size_t(len(s))
}

func charsOf(bytes []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(bytes))) }

// put writes the instant as the engine takes it.
func (i Instant) put(t *engineTime) {
	t.now_ns, t.unix_ns, t.is_given = C.uint64_t(i.nowNs), C.uint64_t(i.unixNs), 0
	if i.isGiven {
		t.is_given = 1
	}
}
