package mcp

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"callgate.dev/callgate"
)

const (
	envRate          = "MCP_RATE_LIMIT"
	envBurst         = "MCP_RATE_LIMIT_BURST"
	envAnonymousRate = "MCP_RATE_LIMIT_ANONYMOUS"
	envPlaces        = "MCP_MAX_CONCURRENCY"
	envTrip          = "MCP_BREAKER_TRIP_THRESHOLD"
	envCooldown      = "MCP_BREAKER_COOLDOWN_SECONDS"
	envTokens        = "MCP_DAILY_TOKEN_LIMIT"
	envKeys          = "MCP_API_KEYS"
	envAuth          = "MCP_AUTH_ENABLED"
)

const (
	defaultRate          = 30
	defaultAnonymousRate = 100
	defaultPlaces        = 3
	defaultTrip          = 5
	defaultCooldownS     = 30
	defaultTokens        = 50_000
	lease                = 2 * time.Hour
	day                  = 24 * time.Hour
)

// Environ looks a variable up, as os.LookupEnv does; nil is os.LookupEnv.
type Environ func(name string) (value string, isSet bool)

func (e Environ) lookup(name string) (string, bool) {
	if e == nil {
		return os.LookupEnv(name)
	}
	return e(name)
}

// GateFromEnv makes a gate from the environment: sensible without any variable. It has the policies
// Authenticated, Anonymous and ForwardedBearer.
//
//	MCP_RATE_LIMIT                tool calls a second, per caller (30); 0 switches the rate limits off,
//	                              for every class of callers
//	MCP_RATE_LIMIT_BURST          tool calls at once after a rest, per caller (2 x rate)
//	MCP_RATE_LIMIT_ANONYMOUS      tool calls a second of all anonymous callers together, burst 2 x
//	                              (100); 0 is unlimited
//	MCP_MAX_CONCURRENCY           tool calls that may run at once, of all callers (3); 0 is unlimited
//	MCP_BREAKER_TRIP_THRESHOLD    so many calls in a row for which there is no place open the breaker
//	                              (5); 0: they never do
//	MCP_BREAKER_COOLDOWN_SECONDS  for how long it then refuses every call (30)
//	MCP_DAILY_TOKEN_LIMIT         units a day (UTC) that a caller's tools may report, see ReportUsage
//	                              (50000); 0 and less switch it off
//	MCP_API_KEYS                  key:user,key2:user2, see APIKeys (none)
//	MCP_AUTH_ENABLED              whether a key is demanded (true where there are any)
//
// What cannot be parsed, or is out of range, keeps its default, with a warning to slog.Default() at
// start. The limits that come of it are logged as one line at level INFO.
//
// environ may be nil, see [Environ]. Of config everything but Limits and Policies is taken.
func GateFromEnv(environ Environ, config callgate.Config) (*callgate.Gate, error) {
	config.Limits = environ.rates()
	config.Limits["tokens"] = environ.tokens()
	config.Limits["server"] = environ.server()
	_, isUnlimited := config.Limits["anonymous"].(callgate.Off)
	config.Policies = policiesFor(isUnlimited)
	if isUnlimited {
		delete(config.Limits, "forwarded")
	}
	slog.Info("effective limits: " + strings.Join(inWords(config.Limits), "; "))
	return callgate.New(config)
}

// DefaultGate is the process's one gate from its environment: what every middleware uses that is given
// none. One gate, so that a call which passes two middlewares on its way is charged once.
func DefaultGate() (*callgate.Gate, error) { return defaultGate() }

var defaultGate = sync.OnceValues(func() (*callgate.Gate, error) {
	return GateFromEnv(nil, callgate.Config{})
})

// policiesFor has the limits in this order: a bearer that nobody verified has a bucket of its own only
// once the shared allowance admits it, so that rotating bearers mints no buckets beyond that allowance.
// Where anonymous calls are unlimited so are unverified ones: a limit that a caller escapes by leaving
// out a header is none, and buckets for such callers would only fill the table. They have no daily quota
// for the same reason. Places come last, so that none is taken by a call that another limit refuses.
func policiesFor(isUnlimited bool) map[string]callgate.Policy {
	anonymous := callgate.Rule{Limit: "anonymous", Scope: callgate.ScopeShared}
	caller := callgate.Rule{Limit: "caller", Scope: callgate.ScopeCaller}
	forwarded := callgate.Rule{Limit: "forwarded", Scope: callgate.ScopeShared}
	server := callgate.Rule{Limit: "server", Scope: callgate.ScopeShared}
	tokens := callgate.Rule{Limit: "tokens", Scope: callgate.ScopeCaller}
	policies := map[string]callgate.Policy{
		Authenticated:   {caller, tokens, server},
		Anonymous:       {anonymous, server},
		ForwardedBearer: {forwarded, caller, server},
	}
	if isUnlimited {
		policies[ForwardedBearer] = policies[Anonymous]
	}
	return policies
}

func (e Environ) rates() map[string]callgate.Limit {
	rate := e.number(envRate, defaultRate, isRate)
	if rate == 0 {
		for _, name := range []string{envBurst, envAnonymousRate} {
			if _, isSet := e.lookup(name); isSet {
				slog.Warn(fmt.Sprintf("%s is set, but %s=0 switches rate limiting off", name, envRate))
			}
		}
		return map[string]callgate.Limit{"caller": callgate.Off{}, "anonymous": callgate.Off{}}
	}
	burst := e.number(envBurst, 2*rate, func(n int64) bool { return isBucket(rate, n) })
	var shared callgate.Limit = callgate.Off{}
	if anonymous := e.number(envAnonymousRate, defaultAnonymousRate, isRate); anonymous != 0 {
		shared = bucket(anonymous, 2*anonymous)
	}
	return map[string]callgate.Limit{"caller": bucket(rate, burst), "anonymous": shared, "forwarded": shared}
}

func (e Environ) server() callgate.Limit {
	places := e.number(envPlaces, defaultPlaces, func(n int64) bool { return n == 0 || isGuard(n, 0, 1) })
	trip := e.number(envTrip, defaultTrip, func(n int64) bool { return isGuard(1, n, 1) })
	cooldownS := e.number(envCooldown, defaultCooldownS, func(n int64) bool { return isGuard(1, 1, n) })
	if places == 0 {
		return callgate.Off{}
	}
	return guard(places, trip, cooldownS)
}

func (e Environ) tokens() callgate.Limit {
	units := e.number(envTokens, defaultTokens, func(n int64) bool { return n <= 0 || isMade(quota(n)) })
	if units <= 0 {
		return callgate.Off{}
	}
	return quota(units)
}

var wholeNumber = regexp.MustCompile(`^[+-]?[0-9]{1,20}$`)

func (e Environ) number(name string, byDefault int64, isInRange func(int64) bool) int64 {
	text, isSet := e.lookup(name)
	if !isSet {
		return byDefault
	}
	trimmed := strings.TrimSpace(text)
	if !wholeNumber.MatchString(trimmed) {
		slog.Warn(fmt.Sprintf("%s=%s is not a whole number: using the default, %d", name, quoted(text), byDefault))
		return byDefault
	}
	// Beyond 64 bits it is the largest or the smallest of them: out of range, or switched off, too.
	value, _ := strconv.ParseInt(trimmed, 10, 64)
	if !isInRange(value) {
		slog.Warn(fmt.Sprintf("%s=%s is out of range: using the default, %d", name, trimmed, byDefault))
		return byDefault
	}
	return value
}

func isAuthEnabled(environ Environ, hasKeys bool) bool {
	text, isSet := environ.lookup(envAuth)
	if !isSet {
		return hasKeys
	}
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "1", "true", "yes", "on":
		return true
	case "0", "false", "no", "off":
		return false
	}
	slog.Warn(fmt.Sprintf("%s=%s is neither true nor false: using the default, %t", envAuth, quoted(text), hasKeys))
	return hasKeys
}

// What the engine takes is asked of the engine, which alone keeps the bounds.

func isRate(n int64) bool {
	// Twice too much is below zero.
	return n == 0 || isBucket(n, 2*n)
}

func isBucket(rate, burst int64) bool {
	return rate >= 0 && burst >= 0 && isMade(bucket(rate, burst))
}

// isGuard looks first at what the limit's fields can't hold: it would be another number there.
func isGuard(places, trip, cooldownS int64) bool {
	const mostS = math.MaxInt64 / int64(time.Second)
	isHeld := min(places, trip, cooldownS) >= 0 && max(places, trip) <= math.MaxInt32 && cooldownS <= mostS
	return isHeld && isMade(guard(places, trip, cooldownS))
}

func isMade(limit callgate.Limit) bool {
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{"x": limit},
		Policies: map[string]callgate.Policy{"x": {{Limit: "x", Scope: callgate.ScopeShared}}},
		Capacity: 1,
	})
	if err != nil {
		return false
	}
	return gate.Close() == nil
}

func bucket(rate, burst int64) callgate.Limit {
	return callgate.RateLimit{Count: uint64(rate), Per: time.Second, Burst: uint64(burst)}
}

func guard(places, trip, cooldownS int64) callgate.Limit {
	return callgate.ConcurrencyLimit{MaxInFlight: int(places), Lease: lease, RejectTrip: int(trip),
		Cooldown: time.Duration(cooldownS) * time.Second}
}

func quota(units int64) callgate.Limit {
	return callgate.Quota{Limit: uint64(units), Per: day}
}

// inWords says what holds, for the line at start.
func inWords(limits map[string]callgate.Limit) []string {
	var words []string
	for _, name := range []string{"caller", "anonymous", "forwarded", "tokens", "server"} {
		limit, isThere := limits[name]
		if !isThere {
			continue
		}
		switch l := limit.(type) {
		case callgate.RateLimit:
			words = append(words, fmt.Sprintf("%s %d calls a second, burst %d", name, l.Count, l.Burst))
		case callgate.Quota:
			words = append(words, fmt.Sprintf("%s %d a day", name, l.Limit))
		case callgate.ConcurrencyLimit:
			words = append(words, fmt.Sprintf("%s %d calls at once, %s", name, l.MaxInFlight, breakerInWords(l)))
		default:
			words = append(words, name+" unlimited")
		}
	}
	return words
}

func breakerInWords(l callgate.ConcurrencyLimit) string {
	if l.RejectTrip == 0 {
		return "no breaker"
	}
	return fmt.Sprintf("the breaker opens for %d s after %d refusals in a row", l.Cooldown/time.Second, l.RejectTrip)
}
