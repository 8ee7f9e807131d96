package mcp

import (
	"context"
	"encoding/json"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"sync"
)

// ReportUsage says, from within a tool, that its call has used up so many units more of its quotas.
//
// It counts when the call ends; until then the call has set aside its reserve, which is also what it
// costs where nothing is said. ctx is the one that the tool's handler got, or one made of it; any
// goroutine may report. The answer tells whether there is a metered call that goes on.
//
// Sessions of go-sdk need gosdk.New(gate, …).Receiving beside Protect, or MeterOptions.UsageMeta: the SDK
// runs their tools in the context of the request that opened the session, where nothing is counted.
func ReportUsage(ctx context.Context, units uint64) (isMetered bool) {
	for _, call := range usagesOf(ctx) {
		if call.report(units) {
			isMetered = true
		}
	}
	return isMetered
}

// Usage is the units that were reported so far in the present call; 0 outside of one.
func Usage(ctx context.Context) uint64 {
	calls := usagesOf(ctx)
	if len(calls) == 0 {
		return 0
	}
	return calls[len(calls)-1].reportedSoFar()
}

// usage is the units that the calls of one message have used, as far as anybody has said. What a result
// states is the whole of it, and is taken in place of what the tool reported.
type usage struct {
	mutex      sync.Mutex
	reported   uint64
	stated     uint64
	isReported bool
	isStated   bool
	isOver     bool
}

func (u *usage) report(units uint64) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.reported, u.isReported = add(u.reported, units), true
	return !u.isOver
}

// state adds what one result states; a batch has several.
func (u *usage) state(units uint64) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.stated, u.isStated = add(u.stated, units), true
}

// stateAll takes what all results of the message state together, whoever has read some of them before.
func (u *usage) stateAll(units uint64) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.stated, u.isStated = units, true
}

func (u *usage) reportedSoFar() uint64 {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	return u.reported
}

// end gives what was used, and false where nobody has said anything.
func (u *usage) end() (uint64, bool) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.isOver = true
	if u.isStated {
		return u.stated, true
	}
	return u.reported, u.isReported
}

// add is the sum, or as much as the engine takes.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

type usagesKey struct{}

// withUsage has ReportUsage count there, too.
func withUsage(ctx context.Context, call *usage) context.Context {
	known := usagesOf(ctx)
	if slices.Contains(known, call) {
		return ctx
	}
	return context.WithValue(ctx, usagesKey{}, append(slices.Clone(known), call))
}

func usagesOf(ctx context.Context) []*usage {
	known, _ := ctx.Value(usagesKey{}).([]*usage)
	return known
}

// UnitsOf is the units that a value of a result's _meta states, and false where it is anything but a
// whole number from zero on.
func UnitsOf(value any) (units uint64, isStated bool) {
	if number, ok := value.(json.Number); ok {
		return unitsIn(string(number))
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return uint64(v.Int()), v.Int() >= 0
	case v.CanUint():
		return v.Uint(), true
	case v.CanFloat():
		// What encoding/json makes of every number.
		whole := v.Float() >= 0 && v.Float() < 1<<53 && v.Float() == math.Trunc(v.Float())
		return uint64(max(0, v.Float())), whole
	}
	return 0, false
}

// unitsIn reads digits; more than the engine takes is as much as it takes.
func unitsIn(digits string) (uint64, bool) {
	for _, digit := range digits {
		if digit < '0' || digit > '9' {
			return 0, false
		}
	}
	units, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return math.MaxUint64, digits != ""
	}
	return units, true
}
