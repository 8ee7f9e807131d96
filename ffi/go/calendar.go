package callgate

// #include "crossing.h"
import "C"

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// aheadS: a day is set that long before it begins. Until then the engine's windows have its length, but
// end when it begins, as they should.
const aheadS = 60

// calendar sets the windows of quotas with a Location, whose days the engine can't know.
type calendar struct {
	zones map[uint32]*time.Location // by the limit's index

	setting sync.Mutex
	// The windows are right for calls from this second on, and before that one.
	fromS, untilS atomic.Uint64
}

// newCalendar is nil where no quota has a zone.
func newCalendar(names []string, limits map[string]Limit) *calendar {
	zones := map[uint32]*time.Location{}
	for n, name := range names {
		if quota, ok := limits[name].(Quota); ok && quota.Location != nil {
			zones[uint32(n)] = quota.Location
		}
	}
	if len(zones) == 0 {
		return nil
	}
	return &calendar{zones: zones}
}

// followZones sets the windows of the time at which a call is to be decided, once a day.
func (g *Gate) followZones(c *calendar, at Instant) error {
	second := at.unixSeconds()
	if c.isSetFor(second) {
		return nil
	}
	c.setting.Lock()
	defer c.setting.Unlock()
	if c.isSetFor(second) { // by another goroutine, meanwhile
		return nil
	}
	var fromS, untilS int64 = 0, 1 << 62
	for limit, zone := range c.zones {
		start, end := dayOf(zone, int64(second)+aheadS)
		status := C.callgate_window_set(&g.handle, C.uint32_t(limit), C.uint64_t(max(0, start)), C.uint64_t(max(0, end)))
		if status != C.CALLGATE_OK && status != C.CALLGATE_NOT_A_QUOTA { // reconfigured meanwhile
			return callError(status)
		}
		fromS, untilS = max(fromS, start-aheadS), min(untilS, end-aheadS)
	}
	runtime.KeepAlive(g)
	// In between, a second may look as if it was in neither day's span: it is then set anew.
	c.untilS.Store(0)
	c.fromS.Store(uint64(max(0, fromS)))
	c.untilS.Store(uint64(max(0, untilS)))
	return nil
}

func (c *calendar) isSetFor(second uint64) bool {
	return c.fromS.Load() <= second && second < c.untilS.Load()
}

// dayOf is when the calendar day of that second begins and ends, in seconds since the Unix epoch.
func dayOf(zone *time.Location, unixS int64) (start, end int64) {
	year, month, day := time.Unix(unixS, 0).In(zone).Date()
	return midnight(zone, year, month, day), midnight(zone, year, month, day+1)
}

// midnight is when a day begins: of two midnights the first, of a midnight that is skipped the instant
// at which the clock jumps over it.
func midnight(zone *time.Location, year int, month time.Month, day int) int64 {
	clock := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix()
	at := time.Unix(clock, 0).Add(-48 * time.Hour).In(zone) // further than any zone is from Greenwich
	for {
		_, offset := at.Zone()
		start, end := at.ZoneBounds()
		found := clock - int64(offset)
		if !start.IsZero() && found < start.Unix() {
			return start.Unix()
		}
		if end.IsZero() || found < end.Unix() {
			return found
		}
		at = end
	}
}
