package callgate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestScopesSayWhoseStateItIs(t *testing.T) {
	calls := []Call{{Caller: "alice", Tool: "search"}, {Caller: "alice", Tool: "fetch"}, {Caller: "bob", Tool: "search"}, {Caller: "bob", Tool: "fetch"}}
	for scope, wanted := range map[Scope][]bool{
		ScopeCaller:     {true, false, true, false},
		ScopeTool:       {true, true, false, false},
		ScopeCallerTool: {true, true, true, true},
		ScopeShared:     {true, false, false, false},
	} {
		gate := gateOf(t, RateLimit{1, time.Hour, 1}, scope)
		var found []bool
		for _, call := range calls {
			found = append(found, ask(t, gate, call).Admitted)
		}
		if !slices.Equal(found, wanted) {
			t.Errorf("%v: %v", scope, found)
		}
	}
	shared := gateOf(t, RateLimit{1, time.Hour, 2}, ScopeShared)
	if !ask(t, shared, Call{}).Admitted || !ask(t, shared, Call{Caller: "alice"}).Admitted || ask(t, shared, Call{}).Admitted {
		t.Error("a shared bucket is everybody's, with a caller or without")
	}
}

func TestAKeyIsItsIdentityMadeOnce(t *testing.T) {
	gate := gateOf(t, RateLimit{1, time.Hour, 1}, ScopeCallerTool)
	caller, err := gate.Key("alice")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := gate.ToolKey("search")
	if err != nil {
		t.Fatal(err)
	}
	if !ask(t, gate, Call{CallerKey: caller, ToolKey: tool}).Admitted {
		t.Error("the first is admitted")
	}
	for _, call := range []Call{{Caller: "alice", ToolKey: tool}, {CallerKey: caller, Tool: "search"}, {Caller: "alice", Tool: "search"}} {
		if ask(t, gate, call).Admitted {
			t.Errorf("%+v is another", call)
		}
	}
	again, _ := gate.Key("alice")
	other, _ := gate.Key("bob")
	asTool, _ := gate.ToolKey("alice")
	if again != caller || other == caller || asTool == caller || caller.IsZero() || !(Key{}).IsZero() {
		t.Error("keys are equal where gate, domain and identity are")
	}
	long := strings.Repeat("x", 1<<20)
	for _, identity := range []string{"a", "\x00", "\xff\xfe", long, long + "x"} {
		key, err := gate.Key(identity)
		if err != nil || !ask(t, gate, Call{CallerKey: key, Tool: "t"}).Admitted || ask(t, gate, Call{Caller: identity, Tool: "t"}).Admitted {
			t.Errorf("%.10q: %v", identity, err)
		}
	}
}

func TestABadCallNamesTheArgumentAndWhatIsAllowed(t *testing.T) {
	gate, another := gateOf(t, RateLimit{1, time.Hour, 1}, ScopeCallerTool), rateOf(t, 1, 1)
	caller, _ := gate.Key("alice")
	tool, _ := gate.ToolKey("search")
	foreign, _ := another.Key("alice")
	good := Call{Caller: "alice", Tool: "search"}
	for _, bad := range []struct {
		policy         string
		call           Call
		field, message string
	}{
		{"defaults", good, "policy", `policy "defaults" is unknown: this gate has "default"`},
		{"", good, "policy", "is unknown"},
		{"default", Call{Tool: "search"}, "caller", `caller is missing, but a limit of the policy "default" is kept by caller`},
		{"default", Call{Caller: "alice"}, "tool", `tool is missing, but a limit of the policy "default" is kept by tool`},
		{"default", Call{CallerKey: foreign, Tool: "search"}, "caller", "the key is one of another gate"},
		{"default", Call{CallerKey: tool, Tool: "search"}, "caller", "the key is one of a tool, where a caller's is needed"},
		{"default", Call{Caller: "alice", ToolKey: caller}, "tool", "the key is one of a caller, where a tool's is needed"},
		{"default", Call{Caller: "alice", CallerKey: caller, Tool: "search"}, "caller", "there twice"},
		{"default", Call{Caller: "alice", ToolKey: tool, Tool: "search"}, "tool", "there twice"},
		{"default", Call{Caller: "alice", Tool: "search", At: At(1<<61, 0)}, "now_ns", "below 2^61"},
		{"default", Call{Caller: "alice", Tool: "search", At: At(math.MaxUint64, 0)}, "now_ns", "below 2^61"},
	} {
		d := Decision{Limit: 99}
		wantCallError(t, gate.TryAdmit(&d, bad.policy, &bad.call), bad.field, bad.message)
		if d.Limit != 99 || d.Admitted {
			t.Error("a decision is written only where there is one")
		}
		_, err := gate.Admit(bad.policy, bad.call)
		wantCallError(t, err, bad.field, bad.message)
		_, err = gate.Peek(bad.policy, bad.call)
		wantCallError(t, err, bad.field, bad.message)
		err = gate.TryAdmitMany(make([]Decision, 2), bad.policy, []Call{{Caller: "alice", Tool: "search", At: bad.call.At}, bad.call})
		wantCallError(t, err, bad.field, bad.message)
	}
	_, err := gate.Key("")
	wantCallError(t, err, "caller", "an empty identity would be one that all strangers share")
	_, err = gate.ToolKey("")
	wantCallError(t, err, "tool", "an empty identity")
	wantCallError(t, gate.TryAdmit(nil, "default", &good), "decision", "not nil")
	wantCallError(t, gate.TryAdmit(new(Decision), "default", nil), "call", "not nil")
	if !ask(t, gate, good).Admitted {
		t.Error("none of these has charged anything")
	}
}

func TestARefusalIsAnErrorThatSaysEverythingInASentence(t *testing.T) {
	gate := newGate(t, Config{
		Limits: map[string]Limit{
			"rate":   RateLimit{30, time.Second, 1},
			"server": ConcurrencyLimit{MaxInFlight: 1, Lease: time.Hour, HalfOpenProbes: 1, FailureTrip: 1, Cooldown: time.Second},
			"tokens": Quota{Limit: 1, Per: 24 * time.Hour, MustSeed: true},
		},
		Policies: map[string]Policy{"rate": {{"rate", ScopeCaller}}, "server": {{"server", ScopeShared}}, "tokens": {{"tokens", ScopeCaller}}},
	})
	at := At(0, 0)
	for _, policy := range []string{"rate", "server"} {
		if _, err := gate.Admit(policy, Call{Caller: "alice", At: at}); err != nil {
			t.Fatal(err)
		}
	}
	for _, wanted := range []struct {
		policy string
		cost   uint64
		text   string
	}{
		{"rate", 1, `callgate: refused by limit "rate" (rate): retry in 33.4 ms`},
		{"rate", 2, `callgate: refused by limit "rate" (never): the call asks for more than the 1 that it can ever hold`},
		{"server", 1, `callgate: refused by limit "server" (concurrency): all of its 1 places are taken`},
		{"tokens", 1, `callgate: refused by limit "tokens" (unseeded): it waits to be told what was used before`},
	} {
		permit, err := gate.Admit(wanted.policy, Call{Caller: "alice", Cost: wanted.cost, At: at})
		var refused *Refused
		if permit != nil || !errors.As(err, &refused) {
			t.Fatal(permit, err)
		}
		if err.Error() != wanted.text || refused.By() != wanted.policy || refused.Reason() == ReasonNone || refused.RetryAfter() != refused.Decision.RetryAfter {
			t.Errorf("%q", err)
		}
	}
	for wait, text := range map[time.Duration]string{
		1: "1 ns", 999: "999 ns", 1000: "1 us", 1001: "1.01 us", 1500: "1.5 us", 33_333_334: "33.4 ms", 999_000_001: "1 s",
		time.Second: "1 s", 1_010_000_000: "1.01 s", 9_990_000_001: "10 s", 59_900_000_001: "1 m", 61 * time.Second: "1.02 m",
		90 * time.Minute: "1.5 h", 6000 * time.Second: "1.67 h", 86_399_999_999_999: "1 d", 48 * time.Hour: "2 d",
		1000 * 24 * time.Hour: "1000 d", 1 << 61: "26700 d", math.MaxInt64: "107000 d",
	} {
		if found := durationText(wait); found != text {
			t.Errorf("%d ns is %q", wait, found)
		}
	}
}

func TestWordsAreThoseOfEveryLanguage(t *testing.T) {
	found := fmt.Sprint(ScopeCaller, ScopeTool, ScopeCallerTool, ScopeShared, ReasonNone, ReasonRate, ReasonConcurrency, ReasonBreakerOpen,
		ReasonQuota, ReasonUnseeded, ReasonTableFull, ReasonNever, Success, Failure, Abandoned, Cancelled, SettledNow, AlreadySettled, Lapsed)
	wanted := "caller tool caller_tool shared  rate concurrency breaker_open quota unseeded table_full never success failure abandoned cancelled ok already_settled lapsed"
	if found != wanted {
		t.Error(found)
	}
	if fmt.Sprint(Scope(0), Scope(9), Reason(99), Outcome(200), Settled(4)) != "    " {
		t.Error("what is none has no word")
	}
	gate := rateOf(t, 1, 1)
	at := At(0, 0)
	if s := ask(t, gate, Call{Caller: "alice", At: at}).String(); s != `<callgate.Decision admitted, "limit": 0 of 1 left>` {
		t.Error(s)
	}
	if s := ask(t, gate, Call{Caller: "alice", At: at}).String(); s != `<callgate.Decision refused by "limit": rate, retry after 1s>` {
		t.Error(s)
	}
	if s := gate.String(); s != "<callgate.Gate of 1 limits, 1 policies, capacity 100>" {
		t.Error(s)
	}
}
