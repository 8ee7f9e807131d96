package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"callgate.dev/callgate"
)

// number is an integer, which stands in the files as a decimal string.
type number uint64

func (n *number) UnmarshalJSON(text []byte) error {
	value, err := strconv.ParseUint(strings.Trim(string(text), `"`), 10, 64)
	*n = number(value)
	return err
}

type scenario struct {
	Name        string                 `json:"name"`
	Source      string                 `json:"source"`
	Limits      []limit                `json:"limits"`
	Policies    map[string][][2]string `json:"policies"`
	UnixBaseNs  number                 `json:"unix_base_ns"`
	ConfigError string                 `json:"config_error"`
	Steps       []step                 `json:"steps"`
}

type limit struct {
	Kind           string `json:"kind"`
	Count          number `json:"count"`
	PeriodNs       number `json:"period_ns"`
	Burst          number `json:"burst"`
	MaxInFlight    number `json:"max_in_flight"`
	LeaseNs        number `json:"lease_ns"`
	RejectTrip     number `json:"reject_trip"`
	FailureTrip    number `json:"failure_trip"`
	CooldownNs     number `json:"cooldown_ns"`
	HalfOpenProbes number `json:"half_open_probes"`
	Limit          number `json:"limit"`
	PeriodS        number `json:"period_s"`
	AnchorUnixS    int64  `json:"anchor_unix_s,string"`
	MustSeed       bool   `json:"must_seed"`
}

type step struct {
	Op      string       `json:"op"`
	At      number       `json:"at"`
	Ats     []number     `json:"ats"`
	Repeat  *number      `json:"repeat"`
	EveryNs number       `json:"every_ns"`
	Policy  *string      `json:"policy"`
	Caller  *string      `json:"caller"`
	Tool    string       `json:"tool"`
	Cost    *number      `json:"cost"`
	Reserve number       `json:"reserve"`
	Permit  string       `json:"permit"`
	Outcome string       `json:"outcome"`
	Actual  number       `json:"actual"`
	Limit   string       `json:"limit"`
	Used    number       `json:"used"`
	Expect  *expectation `json:"expect"`
}

type expectation struct {
	Verdict      *string      `json:"verdict"`
	Reason       *string      `json:"reason"`
	By           *string      `json:"by"`
	RetryAfterNs *number      `json:"retry_after_ns"`
	Limit        *number      `json:"limit"`
	Remaining    *number      `json:"remaining"`
	ResetAfterNs *number      `json:"reset_after_ns"`
	Admitted     *number      `json:"admitted"`
	Last         *expectation `json:"last"`
	Status       *string      `json:"status"`
	Seeded       *bool        `json:"seeded"`
}

// readFile reads scenarios, one a line. A field that is not known here is an error, so that no
// expectation passes unread.
func readFile(path string) ([]scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var scenarios []scenario
	for n, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		s, err := read(line)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n+1, err)
		}
		scenarios = append(scenarios, s)
	}
	return scenarios, nil
}

func read(line []byte) (scenario, error) {
	var s scenario
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	return s, decoder.Decode(&s)
}

func (s *scenario) isSupported() bool {
	for _, l := range s.Limits {
		if !slices.Contains([]string{"rate", "concurrency", "quota"}, l.Kind) {
			return false
		}
	}
	for _, each := range s.Steps {
		if !slices.Contains([]string{"admit", "settle", "seed"}, each.Op) {
			return false
		}
	}
	return true
}

var scopes = map[string]callgate.Scope{"CALLER": callgate.ScopeCaller, "TOOL": callgate.ScopeTool,
	"CALLER_TOOL": callgate.ScopeCallerTool, "SHARED": callgate.ScopeShared}

// gate makes the scenario's gate. Limits are named by their index.
func (s *scenario) gate() (*callgate.Gate, error) {
	config := callgate.Config{
		Limits:   map[string]callgate.Limit{},
		Policies: map[string]callgate.Policy{},
		Capacity: 1000,
		Secret:   []byte("0123456789abcdef"),
	}
	for n, l := range s.Limits {
		config.Limits[strconv.Itoa(n)] = l.limit()
	}
	for name, rules := range s.Policies {
		var policy callgate.Policy
		for _, rule := range rules {
			policy = append(policy, callgate.Rule{Limit: rule[0], Scope: scopes[rule[1]]})
		}
		config.Policies[name] = policy
	}
	return callgate.New(config)
}

func (l *limit) limit() callgate.Limit {
	switch l.Kind {
	case "rate":
		count, period := shortened(l.Count, l.PeriodNs)
		return callgate.RateLimit{Count: uint64(count), Per: duration(period), Burst: uint64(l.Burst)}
	case "concurrency":
		return callgate.ConcurrencyLimit{MaxInFlight: integer(l.MaxInFlight), Lease: duration(l.LeaseNs),
			RejectTrip: integer(l.RejectTrip), FailureTrip: integer(l.FailureTrip), Cooldown: duration(l.CooldownNs),
			HalfOpenProbes: integer(l.HalfOpenProbes)}
	}
	return callgate.Quota{Limit: uint64(l.Limit), Per: seconds(l.PeriodS), AnchorUnixS: l.AnchorUnixS, MustSeed: l.MustSeed}
}

// shortened is the same rate over a shorter period, where the period is longer than the longest
// time.Duration, 292 years: only their ratio counts.
func shortened(count, periodNs number) (number, number) {
	if periodNs <= math.MaxInt64 || count == 0 {
		return count, periodNs
	}
	divisor, rest := periodNs, count
	for rest != 0 {
		divisor, rest = rest, divisor%rest
	}
	return count / divisor, periodNs / divisor
}

// What is still longer than a time.Duration becomes the longest one: see isExpressible.
func duration(ns number) time.Duration { return time.Duration(min(ns, math.MaxInt64)) }

func integer(n number) int { return int(min(n, math.MaxInt64)) }

func seconds(n number) time.Duration {
	if n > math.MaxInt64/number(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

// isExpressible is false where a rate's period is longer than a time.Duration. A shorter one that can't
// be configured says that the longer one can't be, and for the same reason; but of a gate that could be
// made nothing would follow. (Leases, cooldowns and windows that long are out of range anyhow.)
func (s *scenario) isExpressible() bool {
	return !slices.ContainsFunc(s.Limits, func(l limit) bool {
		_, period := shortened(l.Count, l.PeriodNs)
		return period > math.MaxInt64
	})
}
