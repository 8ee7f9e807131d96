package callgate

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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
	// Whoever looks takes the lock; a call of the day that is set does not wait for it.
	gate.calendar.Load().setting.Lock()
	var done atomic.Bool
	go func() {
		var d Decision
		_ = gate.TryAdmit(&d, "default", &Call{Caller: "alice", At: At(0, midnight+3*day)})
		done.Store(true)
	}()
	eventually(t, "a call without a look", done.Load)
	gate.calendar.Load().setting.Unlock()
	if n := testing.AllocsPerRun(100, func() { askUnits(t, gate, midnight+3*day, 0) }); n > 1 { // the decision
		t.Errorf("%v allocations", n)
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
