package callgate

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func TestABadLimitNamesTheFieldAndWhatIsAllowed(t *testing.T) {
	hour := time.Hour
	for _, bad := range []struct {
		limit          Limit
		field, message string
	}{
		{RateLimit{0, time.Second, 1}, "count", "must be 1 to 2^64-1 tokens"},
		{RateLimit{1, 0, 1}, "period_ns", "must be 1 to"},
		{RateLimit{1, -1, 1}, "period_ns", "must be above zero, not -1ns"},
		{RateLimit{1, time.Second, 0}, "burst", "must be 1 or more"},
		{RateLimit{1, math.MaxInt64, 1}, "burst", "at most 2^61 ns"},
		{RateLimit{1, time.Second, math.MaxUint64}, "burst", "at most 2^61 ns"},
		{ConcurrencyLimit{MaxInFlight: 0, Lease: hour}, "max_in_flight", "1 to 4095"},
		{ConcurrencyLimit{MaxInFlight: -1, Lease: hour}, "max_in_flight", "1 to 4095"},
		{ConcurrencyLimit{MaxInFlight: 4096, Lease: hour}, "max_in_flight", "1 to 4095"},
		{ConcurrencyLimit{MaxInFlight: math.MaxInt, Lease: hour}, "max_in_flight", "1 to 4095"},
		{ConcurrencyLimit{MaxInFlight: 1}, "lease_ns", "1 ms to 2^61 ns"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: -hour}, "lease_ns", "above zero"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: math.MaxInt64}, "lease_ns", "1 ms to 2^61 ns"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, RejectTrip: 64, Cooldown: hour}, "reject_trip", "0 to 63"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, RejectTrip: -1, Cooldown: hour}, "reject_trip", "0 to 63"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, FailureTrip: 64, Cooldown: hour}, "failure_trip", "0 to 63"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, RejectTrip: 1}, "cooldown_ns", "1 ms"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, Cooldown: -1}, "cooldown_ns", "above zero"},
		{ConcurrencyLimit{MaxInFlight: 1, Lease: hour, HalfOpenProbes: 16}, "half_open_probes", "0 to 15"},
		{Quota{Limit: 0, Per: hour}, "limit", "1 to 2^47"},
		{Quota{Limit: 1<<47 + 1, Per: hour}, "limit", "1 to 2^47"},
		{Quota{Limit: 1}, "period_s", "1 to 2^33 whole seconds"},
		{Quota{Limit: 1, Per: -hour}, "period_s", "1 to 2^33 whole seconds"},
		{Quota{Limit: 1, Per: 1500 * time.Millisecond}, "period_s", "1 to 2^33 whole seconds"},
		{Quota{Limit: 1, Per: math.MaxInt64}, "period_s", "1 to 2^33 whole seconds"},
		{Quota{Limit: 1, Per: (1<<33 + 1) * time.Second}, "period_s", "1 to 2^33 whole seconds"},
		{Quota{Limit: 1, Per: hour, Location: time.UTC}, "period_s", "24 hours"},
		{Quota{Limit: 1, Location: time.UTC, AnchorUnixS: 1}, "anchor_unix_s", "must be 0"},
		{nil, "kind", "must be a RateLimit"},
		{&RateLimit{1, time.Second, 1}, "kind", "not a pointer to one"},
		{(*Quota)(nil), "kind", "not *callgate.Quota"},
	} {
		_, err := New(Config{Limits: map[string]Limit{"x": bad.limit}, Policies: map[string]Policy{"default": {{"x", ScopeShared}}}})
		wantConfigError(t, err, bad.field, bad.message)
		if !strings.Contains(fmt.Sprint(err), `limit "x"`) {
			t.Errorf("%v doesn't name its limit", err)
		}
	}
}

func TestTheBoundsThemselvesAreAllowed(t *testing.T) {
	for _, limit := range []Limit{
		RateLimit{1, 1, 1},
		RateLimit{1, 1 << 61, 1},
		RateLimit{math.MaxUint64, math.MaxInt64, 1 << 61},
		ConcurrencyLimit{MaxInFlight: 4095, Lease: 1 << 61, RejectTrip: 63, FailureTrip: 63, Cooldown: 1 << 61, HalfOpenProbes: 15},
		ConcurrencyLimit{MaxInFlight: 1, Lease: time.Millisecond, RejectTrip: 1, Cooldown: time.Millisecond},
		Quota{Limit: 1 << 47, Per: (1 << 33) * time.Second, AnchorUnixS: math.MinInt64},
		Quota{Limit: 1, Per: time.Second, AnchorUnixS: math.MaxInt64},
		Quota{Limit: 1, Location: time.UTC},
		Off{},
	} {
		gate := gateOf(t, limit, ScopeShared)
		if found := gate.Limits()["limit"]; found != limit {
			t.Errorf("%#v was kept as %#v", limit, found)
		}
	}
}

func TestABadGateNamesTheFieldAndWhatIsAllowed(t *testing.T) {
	good := func() Config {
		return Config{
			Limits:   map[string]Limit{"rate": RateLimit{1, time.Second, 1}},
			Policies: map[string]Policy{"default": {{"rate", ScopeCaller}}},
		}
	}
	for _, bad := range []struct {
		change         func(c *Config)
		field, message string
	}{
		{func(c *Config) { c.Capacity = -1 }, "capacity", "1 to 67108864"},
		{func(c *Config) { c.Capacity = 67_108_865 }, "capacity", "1 to 67108864"},
		{func(c *Config) { c.Capacity = math.MaxInt }, "capacity", "1 to 67108864"},
		{func(c *Config) { c.Secret = make([]byte, 16) }, "secret", "not all zero"},
		{func(c *Config) { c.Secret = make([]byte, 15) }, "secret", "16 random bytes, not 15"},
		{func(c *Config) { c.Secret = []byte{} }, "secret", "16 random bytes, not 0"},
		{func(c *Config) { c.Limits = nil }, "limits", "1 to 64, not 0"},
		{func(c *Config) { c.Policies = nil }, "policies", "1 to 64, not 0"},
		{func(c *Config) { c.Limits[""] = Off{} }, "limits", "a name is empty"},
		{func(c *Config) { c.Limits["a\xffb"] = Off{} }, "limits", "not UTF-8"},
		{func(c *Config) { c.Policies["a\x00b"] = nil }, "policies", "a NUL character"},
		{func(c *Config) { c.Policies["default"] = nil }, "rules", "1 to 8, not 0"},
		{func(c *Config) { c.Policies["default"] = make(Policy, 9) }, "rules", "1 to 8, not 9"},
		{func(c *Config) { c.Policies["default"] = Policy{{"rat", ScopeCaller}} }, "limit", `"rat" is unknown; the gate has "rate"`},
		{func(c *Config) { c.Policies["default"] = Policy{{"rate", 0}} }, "scope", "scope 0 must be one of"},
		{func(c *Config) { c.Policies["default"] = Policy{{"rate", 5}} }, "scope", "scope 5 must be one of"},
		{func(c *Config) { c.Policies["default"] = Policy{{"rate", 1}, {"rate", 1}} }, "rules", "only once"},
		{func(c *Config) {
			for n := range 65 {
				c.Limits[fmt.Sprint(n)] = Off{}
			}
		}, "limits", "1 to 64, not 66"},
		{func(c *Config) {
			for n := range 64 {
				c.Policies[fmt.Sprint(n)] = c.Policies["default"]
			}
		}, "policies", "1 to 64, not 65"},
	} {
		config := good()
		bad.change(&config)
		_, err := New(config)
		wantConfigError(t, err, bad.field, bad.message)
	}
}

func TestAFullGateIsMade(t *testing.T) {
	config := Config{Limits: map[string]Limit{}, Policies: map[string]Policy{}, Capacity: 1}
	for n := range 64 {
		name := fmt.Sprintf("ñame %d", n)
		config.Limits[name] = RateLimit{uint64(n) + 1, time.Second, uint64(n) + 1}
		config.Policies[name] = Policy{{name, ScopeShared}}
	}
	gate := newGate(t, config)
	for n := range 64 {
		var d Decision
		if err := gate.TryAdmit(&d, fmt.Sprintf("ñame %d", n), &Call{}); err != nil || d.Limit != uint64(n)+1 {
			t.Errorf("%d: %v, %v", n, &d, err)
		}
	}
}

func TestWhatAGateWasMadeFromIsACopy(t *testing.T) {
	config := Config{
		Limits:   map[string]Limit{"rate": RateLimit{1, time.Second, 1}},
		Policies: map[string]Policy{"default": {{"rate", ScopeCaller}}},
		Secret:   []byte("0123456789abcdef"),
	}
	gate := newGate(t, config)
	config.Policies["default"][0].Limit = "other"
	gate.Policies()["default"][0].Limit = "other"
	delete(gate.Limits(), "rate")
	delete(config.Limits, "rate")
	if gate.Policies()["default"][0].Limit != "rate" || len(gate.Limits()) != 1 || gate.Capacity() != 10_000 {
		t.Error(gate.Policies(), gate.Limits(), gate.Capacity())
	}
}
