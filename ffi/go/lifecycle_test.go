package callgate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// mapped tells whether any memory of the process has this address.
func mapped(t *testing.T, address uintptr) bool {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Skip("no /proc here")
	}
	defer func() { _ = maps.Close() }()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end uintptr
		if _, err := fmt.Sscanf(strings.Replace(lines.Text(), "-", " ", 1), "%x %x", &start, &end); err != nil {
			t.Fatal(err)
		}
		if start <= address && address < end {
			return true
		}
	}
	return false
}

// addressOf is where a gate's memory is: its handle points there.
func addressOf(t *testing.T, gate *Gate) uintptr {
	t.Helper()
	for _, word := range gate.handle.opaque {
		if address := uintptr(word); address > 4096 && address%uintptr(os.Getpagesize()) == 0 && mapped(t, address) {
			return address
		}
	}
	t.Fatal("the handle of a gate points nowhere")
	return 0
}

func collected(t *testing.T, address uintptr) bool {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		runtime.GC()
		if !mapped(t, address) {
			return true
		}
	}
	return false
}

func TestAForgottenGateGivesItsMemoryBack(t *testing.T) {
	for _, close := range []bool{false, true} {
		gate := newGate(t, Config{
			Limits:   map[string]Limit{"limit": RateLimit{1, time.Second, 1}},
			Policies: map[string]Policy{"default": {{"limit", ScopeCaller}}},
			Capacity: 1_000_000,
		})
		address := addressOf(t, gate)
		if close {
			_ = gate.Close()
		}
		runtime.KeepAlive(gate)
		if !collected(t, address) {
			t.Errorf("closed %v: the memory is still there", close)
		}
	}
}

func TestAPermitKeepsItsGateAlive(t *testing.T) {
	gate := placesOf(t, 1)
	address := addressOf(t, gate)
	permit, err := gate.Admit("default", Call{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		runtime.GC()
	}
	if settled, err := permit.Settle(Success); settled != SettledNow || err != nil {
		t.Error(settled, err)
	}
	runtime.KeepAlive(permit)
	if !collected(t, address) {
		t.Error("the memory is still there")
	}
}

// methods calls everything that a gate has.
func methods(g *Gate) map[string]error {
	call, errs := Call{Caller: "alice"}, map[string]error{}
	var d Decision
	_, errs["Admit"] = g.Admit("default", call)
	_, errs["AdmitContext"] = g.AdmitContext(context.Background(), "default", call)
	errs["TryAdmit"] = g.TryAdmit(&d, "default", &call)
	errs["TryAdmitMany"] = g.TryAdmitMany(make([]Decision, 1), "default", []Call{call})
	_, errs["Peek"] = g.Peek("default", call)
	_, errs["Settle"] = g.Settle(&d, Success, 0)
	_, errs["Seed"] = g.Seed("limit", Usage{Caller: "alice"})
	errs["Reconfigure"] = g.Reconfigure("limit", Off{})
	_, errs["Guards"] = g.Guards("limit")
	_, errs["AllGuards"] = g.AllGuards()
	_, errs["Stats"] = g.Stats()
	errs["Metrics"] = g.Metrics(io.Discard)
	_, errs["Key"] = g.Key("alice")
	_, errs["ToolKey"] = g.ToolKey("search")
	_, errs["NewSeeder"] = NewSeeder(g, "limit", func(context.Context, string) (uint64, error) { return 0, nil }, SeederConfig{})
	return errs
}

func TestAGateThatIsClosedOrNoneSaysSo(t *testing.T) {
	closed := rateOf(t, 1, 1)
	pending := ask(t, closed, Call{Caller: "alice"})
	seeder, err := NewSeeder(gateOf(t, Quota{Limit: 1, Per: time.Hour, MustSeed: true}, ScopeCaller), "limit",
		func(context.Context, string) (uint64, error) { return 0, nil }, SeederConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(closed.Close(), seeder.gate.Close(), (*Gate)(nil).Close(), new(Gate).Close()); err != nil {
			t.Error(err)
		}
	}
	for what, gate := range map[string]*Gate{"closed": closed, "nil": nil, "zero": {}} {
		for method, err := range methods(gate) {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s of a gate that is %s: %v", method, what, err)
			}
		}
		gate.CountInternalError()
		_ = fmt.Sprint(gate, gate.Limits(), gate.Policies(), gate.Capacity(), gate.InternalErrors())
	}
	if _, err := pending.Settle(Success); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for _, seeder := range []*Seeder{nil, {}, seeder} {
		if err := seeder.TryAdmit(t.Context(), new(Decision), "default", &Call{Caller: "alice"}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := seeder.Admit(t.Context(), "default", Call{Caller: "alice"}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		_ = seeder.LoadErrors()
	}
}

func TestWhatIsNilOrZeroIsHarmless(t *testing.T) {
	for _, d := range []*Decision{nil, {}} {
		d.Used(1)
		if settled, err := d.Settle(Success); settled != AlreadySettled || err != nil {
			t.Error(settled, err)
		}
		if settled, err := d.Cancel(); settled != AlreadySettled || err != nil {
			t.Error(settled, err)
		}
		_ = d.String()
	}
	for _, p := range []*Permit{nil, {}} {
		p.Used(1)
		if p.String() == "" {
			t.Error("no words for a permit of none")
		}
		if settled, err := p.Settle(Success); settled != AlreadySettled || err != nil {
			t.Error(settled, err)
		}
		if settled, err := p.Cancel(); settled != AlreadySettled || err != nil {
			t.Error(settled, err)
		}
	}
	for _, r := range []*Refused{nil, {}} {
		if r.Error() == "" || r.By() != "" || r.Reason() != ReasonNone || r.RetryAfter() != 0 {
			t.Error(r)
		}
	}
	for _, err := range []error{(*CallError)(nil), (*ConfigError)(nil), &CallError{}, &ConfigError{}} {
		if err.Error() == "" {
			t.Errorf("%#v has no message", err)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a gate of nothing is none")
	}
	if settled, err := rateOf(t, 1, 1).Settle(&Decision{}, Success, 0); settled != AlreadySettled || err != nil {
		t.Error(settled, err)
	}
}

func TestClosingWhileOthersCallNeverTouchesMemoryThatIsGone(t *testing.T) {
	for range 50 {
		var all, started sync.WaitGroup
		callClosing(t, fullGate(t), &all, &started)
		runtime.GC()
		all.Wait()
	}
}

// callClosing keeps no gate: those who call it hold it alone.
func callClosing(t *testing.T, gate *Gate, all, started *sync.WaitGroup) {
	for n := range 4 {
		started.Add(1)
		all.Go(func() {
			var d Decision
			calls, decisions := make([]Call, 8), make([]Decision, 8)
			for c := range calls {
				calls[c] = Call{Caller: fmt.Sprint(c), Tool: "search"}
			}
			started.Done()
			for err := error(nil); !errors.Is(err, ErrClosed); {
				switch n {
				case 0:
					err = gate.TryAdmitMany(decisions, "default", calls)
				case 1:
					err = gate.Metrics(io.Discard)
				default:
					err = gate.TryAdmit(&d, "default", &calls[n])
					_, _ = d.Settle(Success)
				}
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
					return
				}
			}
		})
	}
	started.Wait()
	if err := gate.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheVersionIsThatOfTheHeader(t *testing.T) {
	if err := checkVersion(); err != nil {
		t.Error(err)
	}
	if headerVersion := versionText(engineVersion); headerVersion != Version {
		t.Errorf("the header is of version %s, the module of %s", headerVersion, Version)
	}
	for library, fits := range map[uint32]bool{engineVersion: true, engineVersion + 1: true, engineVersion + 0x100: false, 0: false} {
		if err := compareVersions(library); (err == nil) != fits {
			t.Errorf("%s: %v", versionText(library), err)
		}
	}
	var word uint64
	if unsafe.Sizeof(enginePermit{})%unsafe.Sizeof(word) != 0 || unsafe.Alignof(Decision{}.permit) != unsafe.Alignof(word) {
		t.Error("a permit is whole words, aligned as such")
	}
}
