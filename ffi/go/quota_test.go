package callgate

import (
	"fmt"
	"sync"
	"sync/atomic"
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

func TestADayIsAsLongAsTheZoneMakesIt(t *testing.T) {
	for _, each := range []struct {
		zone, day, next string
		hours           uint64
	}{
		{"Europe/Berlin", "2026-03-28", "2026-03-29", 24},
		{"Europe/Berlin", "2026-03-29", "2026-03-30", 23},
		{"Europe/Berlin", "2026-10-25", "2026-10-26", 25},
		{"America/New_York", "2026-03-08", "2026-03-09", 23},
		{"America/New_York", "2026-11-01", "2026-11-02", 25},
		{"Asia/Kathmandu", "2026-07-01", "2026-07-02", 24},
		{"UTC", "2026-07-01", "2026-07-02", 24},
	} {
		zone := zoneOf(t, each.zone)
		start, end := unixNs(t, zone, each.day+" 00:00:00"), unixNs(t, zone, each.next+" 00:00:00")
		checkDay(t, zone, start, end, each.hours)
	}
}

func TestWhereTheClockIsMovedAtMidnightADayBeginsAtTheFirstOrAtTheJump(t *testing.T) {
	for _, each := range []struct {
		zone, before string // an hour before the day begins, by that zone's clock
		hours        uint64
	}{
		{"Africa/Cairo", "2026-04-23 23:00:00", 23},     // 00:00 is 01:00
		{"Africa/Cairo", "2026-10-28 23:00:00", 25},     // the day ends with 23:00 twice
		{"America/Havana", "2026-10-31 23:00:00", 25},   // 01:00 is 00:00: two midnights
		{"America/Santiago", "2026-09-05 23:00:00", 23}, // 00:00 is 01:00
	} {
		zone := zoneOf(t, each.zone)
		start := unixNs(t, zone, each.before) + hour
		checkDay(t, zone, start, start+each.hours*hour, each.hours)
	}
}

func checkDay(t *testing.T, zone *time.Location, start, end, hours uint64) {
	t.Helper()
	if end-start != hours*hour {
		t.Fatalf("%v: the day has %v", zone, time.Duration(end-start))
	}
	gate := unitsOf(t, Quota{Limit: 10, Location: zone})
	if d := askUnits(t, gate, start-1, 0); d.Remaining != 10 || d.ResetAfter != 1 {
		t.Errorf("%v: just before: %v, %v", zone, d, d.ResetAfter)
	}
	if d := askUnits(t, gate, start, 10); !d.Admitted || uint64(d.ResetAfter) != end-start {
		t.Errorf("%v: first: %v, %v", zone, d, d.ResetAfter)
	}
	for at := start; at < end; at += hour {
		if d := askUnits(t, gate, at, 0); uint64(d.RetryAfter) != end-at {
			t.Errorf("%v: after %v: %v", zone, time.Duration(at-start), d)
		}
	}
	if d := askUnits(t, gate, end-1, 0); d.RetryAfter != 1 {
		t.Errorf("%v: last: %v", zone, d)
	}
	if d := askUnits(t, gate, end, 0); d.Remaining != 10 {
		t.Errorf("%v: next: %v", zone, d)
	}
}

func TestEveryDayOfAYearEndsAtTheMidnightOfItsZone(t *testing.T) {
	for _, name := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		zone := zoneOf(t, name)
		gate := unitsOf(t, Quota{Limit: 10, Location: zone})
		for n := range 365 {
			start := uint64(time.Date(2026, 1, 1+n, 0, 0, 0, 0, zone).UnixNano())
			end := uint64(time.Date(2026, 1, 2+n, 0, 0, 0, 0, zone).UnixNano())
			if d := askUnits(t, gate, start+12*hour, 10); uint64(d.ResetAfter) != end-start-12*hour {
				t.Errorf("%s, day %d: %v", name, n, d.ResetAfter)
			}
			late := ask(t, gate, Call{Caller: fmt.Sprint("late ", n%3), At: At(0, end-1)})
			if late.ResetAfter != 1 {
				t.Errorf("%s, day %d: %v", name, n, late.ResetAfter)
			}
		}
	}
}

func TestMidnightsAreThoseOfTheCalendar(t *testing.T) {
	for _, each := range []struct {
		zone, day, start, end string
	}{
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"}, // no 30th there
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"America/St_Johns", "2006-10-28", "2006-10-28T02:30:00Z", "2006-10-29T02:30:00Z"}, // 00:01 is 23:01
		{"Etc/GMT+12", "2026-01-01", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"},
		{"Pacific/Kiritimati", "2026-01-01", "2025-12-31T10:00:00Z", "2026-01-01T10:00:00Z"},
	} {
		zone := zoneOf(t, each.zone)
		noon, err := time.ParseInLocation(time.DateTime, each.day+" 12:00:00", zone)
		if err != nil {
			t.Fatal(err)
		}
		start, end := dayOf(zone, noon.Unix())
		found := [2]string{time.Unix(start, 0).UTC().Format(time.RFC3339), time.Unix(end, 0).UTC().Format(time.RFC3339)}
		if found != [2]string{each.start, each.end} {
			t.Errorf("%s, %s: %v", each.zone, each.day, found)
		}
	}
}

func TestAClockThatJumpsFindsTheRightDayAndMintsNothing(t *testing.T) {
	zone := zoneOf(t, "Europe/Berlin")
	gate := unitsOf(t, Quota{Limit: 10, Location: zone})
	for text, hours := range map[string]uint64{"2026-03-29 00:00:00": 23, "2026-10-25 00:00:00": 25} {
		gate := unitsOf(t, Quota{Limit: 10, Location: zone})
		if d := askUnits(t, gate, unixNs(t, zone, text), 0); uint64(d.ResetAfter) != hours*hour {
			t.Error(text, d.ResetAfter)
		}
	}
	midnight := unixNs(t, zone, "2026-05-02 00:00:00")
	askUnits(t, gate, midnight+second, 10)
	for _, at := range []uint64{midnight - second, midnight + second} {
		if d := askUnits(t, gate, at, 0); d.Reason != ReasonQuota {
			t.Error(d)
		}
	}
	if d := ask(t, gate, Call{Caller: "bob", At: At(0, midnight-second)}); uint64(d.ResetAfter) != second {
		t.Error(d.ResetAfter)
	}
}

func TestBySystemsClockADayEndsAtTheNextMidnightToo(t *testing.T) {
	for _, name := range []string{"Asia/Tokyo", "America/Los_Angeles"} {
		zone := zoneOf(t, name)
		gate := unitsOf(t, Quota{Limit: 10, Location: zone})
		d := ask(t, gate, Call{Caller: "alice"})
		now := time.Now().In(zone)
		_, end := dayOf(zone, now.Unix())
		off := d.ResetAfter - time.Unix(end, 0).Sub(now)
		if off.Abs() > time.Minute && off.Abs() < 22*time.Hour { // midnight may be now
			t.Errorf("%s: %v", name, d.ResetAfter)
		}
	}
}

func TestSeveralZonesInOneGateDoNotMix(t *testing.T) {
	gate := newGate(t, Config{
		Limits: map[string]Limit{
			"berlin": Quota{Limit: 10, Location: zoneOf(t, "Europe/Berlin")},
			"tokyo":  Quota{Limit: 10, Location: zoneOf(t, "Asia/Tokyo")},
			"fixed":  Quota{Limit: 10, Location: time.FixedZone("", 8*3600)},
			"utc":    Quota{Limit: 10, Per: 24 * time.Hour},
		},
		Policies: map[string]Policy{
			"berlin": {{"berlin", ScopeCaller}}, "tokyo": {{"tokyo", ScopeCaller}}, "utc": {{"utc", ScopeCaller}}, "fixed": {{"fixed", ScopeCaller}},
		},
	})
	noon := unixNs(t, time.UTC, "2026-05-01 12:00:00")
	for _, each := range []struct {
		policy, caller string
		at, hours      uint64
	}{
		{"berlin", "alice", noon, 10}, {"tokyo", "alice", noon, 3}, {"utc", "alice", noon, 12}, {"fixed", "alice", noon, 4}, {"berlin", "alice", noon, 10},
		{"tokyo", "bob", noon + 11*hour, 16}, {"berlin", "bob", noon + 11*hour, 23}, {"utc", "bob", noon + 11*hour, 1},
	} {
		var d Decision
		if err := gate.TryAdmit(&d, each.policy, &Call{Caller: each.caller, At: At(0, each.at)}); err != nil || uint64(d.ResetAfter) != each.hours*hour {
			t.Errorf("%+v: %v, %v", each, d.ResetAfter, err)
		}
	}
}

func TestTheCalendarIsLookedAtOnceADayAndNotForEveryCall(t *testing.T) {
	zone := zoneOf(t, "Asia/Tokyo")
	gate := unitsOf(t, Quota{Limit: 10, Location: zone})
	midnight := unixNs(t, zone, "2026-05-01 00:00:00")
	looks, until := 0, uint64(0)
	for minute := uint64(1); minute < 3*24*60; minute++ {
		askUnits(t, gate, midnight+minute*60*second, 0)
		if now := gate.calendar.Load().untilS.Load(); now != until {
			looks, until = looks+1, now
		}
	}
	if looks != 4 {
		t.Errorf("%d looks", looks)
	}
	if n := testing.AllocsPerRun(100, func() { askUnits(t, gate, midnight, 0) }); n > 1 { // the decision
		t.Errorf("%v allocations", n)
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

func TestALimitThatBecomesAQuotaWithAZoneFollowsIt(t *testing.T) {
	gate := gateOf(t, Off{}, ScopeCaller)
	if err := gate.Reconfigure("limit", Quota{Limit: 10, Location: zoneOf(t, "Asia/Tokyo")}, At(0, 0)); err != nil {
		t.Fatal(err)
	}
	if d := askUnits(t, gate, 0, 0); uint64(d.ResetAfter) != 15*hour {
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

func TestASeedIsOfTheDayInTheZone(t *testing.T) {
	zone := zoneOf(t, "Asia/Shanghai")
	gate := unitsOf(t, Quota{Limit: 10, Location: zone, MustSeed: true})
	late := unixNs(t, zone, "2026-05-01 23:59:59")
	if told, err := gate.Seed("limit", Usage{Caller: "alice", Used: 10, At: At(0, late)}); !told || err != nil {
		t.Error(told, err)
	}
	if d := askUnits(t, gate, late, 0); d.RetryAfter != time.Second {
		t.Error(d)
	}
	if d := askUnits(t, gate, late+second, 0); d.Reason != ReasonUnseeded {
		t.Error(d)
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

func TestGoroutinesThatCrossMidnightTogetherChargeTwoDaysExactly(t *testing.T) {
	zone := zoneOf(t, "Europe/Berlin")
	gate := unitsOf(t, Quota{Limit: 1000, Location: zone})
	midnight := unixNs(t, zone, "2026-03-29 00:00:00")
	var count atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var d Decision
			for n := range uint64(2000) {
				at := midnight - 1000*(1000-n)
				if err := gate.TryAdmit(&d, "default", &Call{Caller: "alice", Reserve: 1, At: At(0, at)}); err != nil {
					t.Error(err)
				}
				if d.Admitted {
					count.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := count.Load(); n > 2000 || n < 1000 || left(t, gate, "alice", At(0, midnight)) != 0 {
		t.Errorf("%d of two days of 1000, %d left", n, left(t, gate, "alice", At(0, midnight)))
	}
	if d := askUnits(t, gate, midnight, 0); uint64(d.RetryAfter) != 23*hour {
		t.Error(d)
	}
}
