package callgate

import (
	"fmt"
	"testing"
	"time"
)

const hour, day = 3600 * second, 24 * 3600 * second

// unitsOf is a gate of one quota, kept by caller.
func unitsOf(t testing.TB, quota Quota) *Gate {
	t.Helper()
	if quota.Per == 0 && quota.Location == nil {
		quota.Per = 24 * time.Hour
	}
	return gateOf(t, quota, ScopeCaller)
}

func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// unixNs is the instant that a clock on the wall of that zone shows, which must be one.
func unixNs(t testing.TB, zone *time.Location, text string) uint64 {
	t.Helper()
	at, err := time.ParseInLocation(time.DateTime, text, zone)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(at.UnixNano())
}

func askUnits(t testing.TB, g *Gate, unixNs, reserve uint64) *Decision {
	t.Helper()
	return ask(t, g, Call{Caller: "alice", Reserve: reserve, At: At(0, unixNs)})
}

func settleUnits(t testing.TB, g *Gate, d *Decision, outcome Outcome, used, unixNs uint64) {
	t.Helper()
	if settled, err := g.Settle(d, outcome, used, At(0, unixNs)); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
}

func TestWhatWasUsedRefusesTheNextCallAndMayOverdraw(t *testing.T) {
	gate, noon := unitsOf(t, Quota{Limit: 10}), day/2
	settleUnits(t, gate, askUnits(t, gate, noon, 0), Success, 12, noon)
	refused := askUnits(t, gate, noon+second, 0)
	if refused.Reason != ReasonQuota || refused.Remaining != 0 || uint64(refused.RetryAfter) != noon-second || refused.ResetAfter != refused.RetryAfter {
		t.Error(refused)
	}
	if d := askUnits(t, gate, day-1, 0); d.RetryAfter != 1 {
		t.Error(d)
	}
	if d := askUnits(t, gate, day, 0); !d.Admitted || d.Remaining != 10 {
		t.Error(d)
	}
}

func TestEveryOutcomeIsChargedAsItShouldBe(t *testing.T) {
	for _, each := range []struct {
		outcome    Outcome
		used, left uint64
	}{{Success, 3, 7}, {Failure, 3, 7}, {Abandoned, 3, 7}, {Abandoned, 0, 4}, {Success, 0, 10}, {Cancelled, 3, 10}} {
		gate := unitsOf(t, Quota{Limit: 10})
		d := askUnits(t, gate, 0, 6)
		if refused := askUnits(t, gate, 0, 5); refused.Reason != ReasonQuota {
			t.Error("the reserve is set aside:", refused)
		}
		settleUnits(t, gate, d, each.outcome, each.used, 0)
		if n := left(t, gate, "alice", At(0, 0)); n != each.left {
			t.Errorf("%+v: %d left", each, n)
		}
	}
	if d := askUnits(t, unitsOf(t, Quota{Limit: 10}), 0, 11); d.Reason != ReasonNever {
		t.Error(d)
	}
}

func TestACallThatNeverSaysWhatItUsedPaysWhatItReserved(t *testing.T) {
	gate := unitsOf(t, Quota{Limit: 100})
	for _, each := range []struct {
		end  func(p *Permit)
		left uint64
	}{
		{func(p *Permit) { _, _ = p.Settle(Success) }, 90},
		{func(p *Permit) { _, _ = p.Settle(Failure) }, 80},
		{func(p *Permit) { p.Used(0); _, _ = p.Settle(Success) }, 80},
		{func(p *Permit) { p.Used(20); p.Used(30); _, _ = p.Settle(Success) }, 50},
		{func(p *Permit) { p.Used(20); _, _ = p.Cancel() }, 50},
		{func(p *Permit) {}, 40},
	} {
		permit, err := gate.Admit("default", Call{Caller: "alice", Reserve: 10, At: At(0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		each.end(permit)
		if n := left(t, gate, "alice", At(0, 0)); n != each.left {
			t.Errorf("%d left, wanted %d", n, each.left)
		}
	}
}

func TestTwoCallsAroundMidnightAreChargedToTheirOwnDays(t *testing.T) {
	zone := zoneOf(t, "Asia/Shanghai")
	gate := unitsOf(t, Quota{Limit: 10, Location: zone})
	late, early := unixNs(t, zone, "2026-05-01 23:59:59"), unixNs(t, zone, "2026-05-02 00:00:01")
	yesterday := askUnits(t, gate, late, 10)
	today := askUnits(t, gate, early, 4)
	settleUnits(t, gate, yesterday, Success, 9, early+second)
	if n := left(t, gate, "alice", At(0, early)); n != 6 {
		t.Errorf("%d left", n)
	}
	settleUnits(t, gate, today, Success, 5, early+second)
	if n := left(t, gate, "alice", At(0, early)); n != 5 {
		t.Errorf("%d left", n)
	}
}

func TestWindowsOfAnyLengthBeginAtTheirAnchor(t *testing.T) {
	if d := askUnits(t, unitsOf(t, Quota{Limit: 10, Per: time.Hour, AnchorUnixS: -600}), 0, 0); d.ResetAfter != 50*time.Minute {
		t.Error(d.ResetAfter)
	}
	if d := askUnits(t, unitsOf(t, Quota{Limit: 10, Per: 7 * time.Second}), 8*second, 0); d.ResetAfter != 6*time.Second {
		t.Error(d.ResetAfter)
	}
}

func TestAChangedQuotaKeepsWhatWasUsed(t *testing.T) {
	zone := zoneOf(t, "Asia/Tokyo")
	gate := unitsOf(t, Quota{Limit: 10, Location: zone})
	noon := unixNs(t, zone, "2026-05-01 12:00:00")
	settleUnits(t, gate, askUnits(t, gate, noon, 0), Success, 8, noon)
	change := func(to Limit) {
		t.Helper()
		if err := gate.Reconfigure("limit", to, At(0, noon)); err != nil {
			t.Fatal(err)
		}
	}
	change(Quota{Limit: 20, Location: zone})
	if n := left(t, gate, "alice", At(0, noon)); n != 12 {
		t.Errorf("%d left", n)
	}
	change(Off{})
	if !askUnits(t, gate, noon, 1000).Admitted {
		t.Error("it is off")
	}
	change(Quota{Limit: 10, Location: zone})
	if n, tomorrow := left(t, gate, "alice", At(0, noon)), left(t, gate, "alice", At(0, noon+12*hour)); n != 2 || tomorrow != 10 {
		t.Errorf("%d left, %d tomorrow", n, tomorrow)
	}
	berlin := zoneOf(t, "Europe/Berlin")
	change(Quota{Limit: 10, Location: berlin})
	midnight := unixNs(t, berlin, "2026-05-02 00:00:00")
	if d := ask(t, gate, Call{Caller: "bob", At: At(0, midnight)}); uint64(d.ResetAfter) != day {
		t.Error(d.ResetAfter)
	}
}

func TestASeedTellsWhatWasUsedOnceAWindow(t *testing.T) {
	gate := unitsOf(t, Quota{Limit: 10, MustSeed: true})
	seed := func(used, unixNs uint64) bool {
		t.Helper()
		told, err := gate.Seed("limit", Usage{Caller: "alice", Used: used, At: At(0, unixNs)})
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	if d := askUnits(t, gate, 0, 0); d.Reason != ReasonUnseeded || d.RetryAfter != 0 {
		t.Error(d)
	}
	if !seed(7, 0) || seed(7, 0) || left(t, gate, "alice", At(0, 0)) != 3 {
		t.Error(left(t, gate, "alice", At(0, 0)))
	}
	if d := askUnits(t, gate, day, 0); d.Reason != ReasonUnseeded {
		t.Error(d)
	}
	if !seed(0, day) || left(t, gate, "alice", At(0, day)) != 10 {
		t.Error("a new day is told anew")
	}
}

func TestASeedByScopeFillsInTheStateOfThatScope(t *testing.T) {
	gate := newGate(t, Config{
		Limits: map[string]Limit{"tokens": Quota{Limit: 10, Per: 24 * time.Hour}, "rate": RateLimit{1, time.Second, 1}, "spare": Quota{Limit: 10, Per: time.Hour}},
		Policies: map[string]Policy{
			"own": {{"tokens", ScopeCaller}}, "all": {{"tokens", ScopeShared}}, "pair": {{"tokens", ScopeCallerTool}}, "rate": {{"rate", ScopeShared}},
		},
		Capacity: 16,
	})
	another := unitsOf(t, Quota{Limit: 1})
	foreign, _ := another.Key("alice")
	alice, _ := gate.Key("alice")
	for _, bad := range []struct {
		limit          string
		usage          Usage
		field, message string
	}{
		{"tokens", Usage{Caller: "alice"}, "scope", `scope is missing: the policies keep limit "tokens" by "shared", "caller", "caller_tool"`},
		{"tokens", Usage{Caller: "alice", Scope: ScopeTool}, "scope", "scope can't be"},
		{"tokens", Usage{Scope: ScopeCaller}, "caller", "caller is absent"},
		{"tokens", Usage{Caller: "alice", Scope: ScopeCallerTool}, "tool", "tool is absent"},
		{"tokens", Usage{CallerKey: foreign, Scope: ScopeCaller}, "caller", "another gate"},
		{"tokens", Usage{CallerKey: alice, Scope: ScopeCaller, At: At(1<<62, 0)}, "now_ns", "below 2^61"},
		{"token", Usage{Caller: "alice"}, "limit", `limit "token" is unknown; this gate has "rate", "spare", "tokens"`},
		{"rate", Usage{Caller: "alice"}, "limit", `"rate" is no Quota; of these this gate has "spare", "tokens"`},
		{"spare", Usage{Caller: "alice"}, "limit", `limit "spare" is in no policy`},
	} {
		_, err := gate.Seed(bad.limit, bad.usage)
		wantCallError(t, err, bad.field, bad.message)
	}
	for policy, usage := range map[string]Usage{
		"own":  {CallerKey: alice, Used: 1, Scope: ScopeCaller},
		"all":  {Used: 2, Scope: ScopeShared},
		"pair": {Caller: "alice", Tool: "search", Used: 3, Scope: ScopeCallerTool},
	} {
		if told, err := gate.Seed("tokens", usage); !told || err != nil {
			t.Error(policy, told, err)
		}
		reports, err := gate.Peek(policy, Call{Caller: "alice", Tool: "search"})
		if err != nil || reports[0].Remaining != 10-usage.Used {
			t.Error(policy, reports, err)
		}
	}
	var err error
	for n := 0; n < 1000 && err == nil; n++ {
		_, err = gate.Seed("tokens", Usage{Caller: fmt.Sprint(n), Scope: ScopeCaller})
	}
	wantCallError(t, err, "", "no place for the state of a new caller")
}
