package mcp

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"callgate.dev/callgate"
)

func environ(values ...string) Environ {
	set := map[string]string{}
	for n := 0; n < len(values); n += 2 {
		set[values[n]] = values[n+1]
	}
	return func(name string) (string, bool) {
		value, isSet := set[name]
		return value, isSet
	}
}

func envGate(t *testing.T, values ...string) *callgate.Gate {
	t.Helper()
	gate, err := GateFromEnv(environ(values...), callgate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return gate
}

func rate(gate *callgate.Gate, name string) callgate.Limit { return gate.Limits()[name] }

func aSecond(count, burst uint64) callgate.RateLimit {
	return callgate.RateLimit{Count: count, Per: time.Second, Burst: burst}
}

func TestWithoutAnyVariableThereAreSensibleLimits(t *testing.T) {
	log := logged(t)
	gate := envGate(t)
	equal(t, "caller", rate(gate, "caller"), callgate.Limit(aSecond(30, 60)))
	equal(t, "anonymous", rate(gate, "anonymous"), callgate.Limit(aSecond(100, 200)))
	equal(t, "forwarded", rate(gate, "forwarded"), callgate.Limit(aSecond(100, 200)))
	guard := rate(gate, "server").(callgate.ConcurrencyLimit)
	equal(t, "server", guard, callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: 2 * time.Hour, RejectTrip: 5, Cooldown: 30 * time.Second})
	equal(t, "tokens", rate(gate, "tokens").(callgate.Quota).Limit, uint64(50_000))
	equal(t, "warnings", warnings(log), 0)
	equal(t, "policies", gate.Policies(), map[string]callgate.Policy{
		Authenticated:   {byCaller("caller"), byCaller("tokens"), shared("server")},
		Anonymous:       {shared("anonymous"), shared("server")},
		ForwardedBearer: {shared("forwarded"), byCaller("caller"), shared("server")},
	})
}

func TestTheBurstIsTwiceTheRateUnlessItIsSet(t *testing.T) {
	equal(t, "twice", rate(envGate(t, envRate, "7"), "caller"), callgate.Limit(aSecond(7, 14)))
	equal(t, "set", rate(envGate(t, envRate, "7", envBurst, "5"), "caller"), callgate.Limit(aSecond(7, 5)))
	equal(t, "blanks", rate(envGate(t, envBurst, " 90 "), "caller"), callgate.Limit(aSecond(30, 90)))
	anonymous := envGate(t, envAnonymousRate, "5")
	equal(t, "anonymous", rate(anonymous, "anonymous"), callgate.Limit(aSecond(5, 10)))
	equal(t, "forwarded", rate(anonymous, "forwarded"), callgate.Limit(aSecond(5, 10)))
}

// ask is a call that ends at once.
func ask(t *testing.T, gate *callgate.Gate, policy, caller string) bool {
	t.Helper()
	var d callgate.Decision
	at := newClock().instant()
	if err := gate.TryAdmit(&d, policy, &callgate.Call{Caller: caller, At: at}); err != nil {
		t.Fatal(err)
	}
	_, _ = d.Settle(callgate.Success)
	return d.Admitted
}

func liveOf(t *testing.T, gate *callgate.Gate) uint64 {
	t.Helper()
	stats, err := gate.Stats(newClock().instant())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Live
}

func TestZeroAnonymousIsUnlimitedAndMintsNoBucketsForUnverifiedBearers(t *testing.T) {
	gate := envGate(t, envAnonymousRate, "0")
	for n := range 1_000 {
		if !ask(t, gate, Anonymous, "") || !ask(t, gate, ForwardedBearer, fmt.Sprint("b", n)) {
			t.Fatal("refused")
		}
	}
	equal(t, "live", liveOf(t, gate), uint64(0))
	equal(t, "caller", rate(gate, "caller"), callgate.Limit(aSecond(30, 60)))
}

func TestRateZeroSwitchesTheRateLimitsOffAndNothingElse(t *testing.T) {
	log := logged(t)
	gate := envGate(t, envRate, "0", envAnonymousRate, "5")
	for range 1_000 {
		if !ask(t, gate, Authenticated, "user:1") || !ask(t, gate, Anonymous, "") || !ask(t, gate, ForwardedBearer, "b") {
			t.Fatal("refused")
		}
	}
	if _, isThere := rate(gate, "server").(callgate.ConcurrencyLimit); !isThere {
		t.Error("no places")
	}
	if !strings.Contains(log.String(), envAnonymousRate) {
		t.Error("what is set beside it is not warned about")
	}
	off := envGate(t, envRate, "0", envPlaces, "0", envTokens, "0")
	for range 1_000 {
		if _, err := off.Admit(Authenticated, callgate.Call{Caller: "user:1", At: newClock().instant()}); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "live", liveOf(t, off), uint64(0))
}

func TestPlacesTheBreakerAndTheQuotaCanBeSet(t *testing.T) {
	gate := envGate(t, envPlaces, "7", envTrip, "0", envCooldown, "90", envTokens, "7")
	guard := rate(gate, "server").(callgate.ConcurrencyLimit)
	equal(t, "places", guard.MaxInFlight, 7)
	equal(t, "trip", guard.RejectTrip, 0)
	equal(t, "cooldown", guard.Cooldown, 90*time.Second)
	equal(t, "tokens", rate(gate, "tokens").(callgate.Quota).Limit, uint64(7))
	log := logged(t)
	for _, value := range []string{"0", "-1", "-50000", "-99999999999999999999"} {
		if _, isOff := rate(envGate(t, envTokens, value), "tokens").(callgate.Off); !isOff {
			t.Error(value)
		}
	}
	equal(t, "warnings", warnings(log), 0)
}

func TestWhatCannotBeUsedKeepsTheDefaultAndWarns(t *testing.T) {
	numbers := []string{envRate, envBurst, envAnonymousRate, envPlaces, envTrip, envCooldown, envTokens}
	cases := [][2]string{{envPlaces, "4096"}, {envTrip, "64"}, {envCooldown, "0"}, {envBurst, "0"},
		{envTokens, fmt.Sprint(1<<47 + 1)}, {envTrip, "4294967296"}, {envCooldown, "18446744074"}, {envPlaces, "4294967297"},
		// What is left of these in fewer bits would do.
		{envCooldown, "-18446744073"}, {envPlaces, "-4294967293"}, {envTrip, "-4294967291"}, {envRate, "-9223372036854775778"}}
	for _, name := range numbers {
		for _, value := range []string{"", "many", "1.5", "1e3", "0x10", "1_000", "٣", "nan",
			strings.Repeat("9", 19), strings.Repeat("9", 400), "9223372036854775807", "18446744073709551617"} {
			cases = append(cases, [2]string{name, value})
		}
		if name != envTokens {
			cases = append(cases, [2]string{name, "-1"})
		}
	}
	want := envGate(t).Limits()
	for _, each := range cases {
		t.Run(each[0]+"="+each[1], func(t *testing.T) {
			log := logged(t)
			if got := envGate(t, each[0], each[1]).Limits(); !maps.Equal(got, want) {
				t.Error(got)
			}
			if warnings(log) != 1 || !strings.Contains(log.String(), each[0]) {
				t.Error(log)
			}
		})
	}
}

func TestTheLineAtStartSaysWhatHolds(t *testing.T) {
	log := logged(t)
	envGate(t, envRate, "7", envTokens, "0")
	const line = "effective limits: caller 7 calls a second, burst 14; " +
		"anonymous 100 calls a second, burst 200; forwarded 100 calls a second, burst 200; " +
		"tokens unlimited; server 3 calls at once, " +
		"the breaker opens for 30 s after 5 refusals in a row"
	if !strings.Contains(log.String(), line) || strings.Count(log.String(), "\n") != 1 {
		t.Error(log)
	}
}

func TestOptionsOfTheGateAreTaken(t *testing.T) {
	gate, err := GateFromEnv(environ(), callgate.Config{Capacity: 17})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "capacity", gate.Capacity(), 17)
	if _, err := GateFromEnv(environ(), callgate.Config{Capacity: -1}); err == nil {
		t.Error("a capacity below zero was taken")
	}
}

func TestTheDefaultGateIsOneForTheProcess(t *testing.T) {
	one, err := DefaultGate()
	if err != nil {
		t.Fatal(err)
	}
	if two, _ := DefaultGate(); one != two {
		t.Error("two gates")
	}
	handler, err := Protect(&app{}, nil, Options{APIKeys: NoAPIKeys})
	if err != nil || handler.Gate() != one {
		t.Error(err)
	}
}
