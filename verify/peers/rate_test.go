package peers

import "testing"

const (
	histories = 300
	calls     = 300
)

// The same traffic through both: what differs is of the classes that doc.go lists, each of which is met.
func TestEveryDifferenceIsExplained(t *testing.T) {
	for _, w := range []way{allow, reserve} {
		t.Run(w.name, func(t *testing.T) {
			found := newFound()
			for seed := range uint64(histories) {
				if err := found.compare(newDraw(seed), calls, askCallgate(t), w); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			t.Logf("%d calls, %d admitted by callgate, %d differ: %v", found.calls, found.admitted, found.differ, found.classes)
			for _, class := range classes {
				if found.classes[class] == 0 {
					t.Errorf("no difference is of class %q", class)
				}
			}
		})
	}
}

// Where either says something else than it does, no class explains that.
func TestWhatIsNotExplainedFails(t *testing.T) {
	honest := askCallgate(t)
	slower := func(c config) config { c.periodNs += 1 + c.periodNs>>40; return c }
	deeper := func(c config) config { c.burst++; return c }
	oneLonger := func(a answer) answer {
		if a.waitNs > 0 {
			a.waitNs++
		}
		return a
	}
	oneShorter := func(a answer) answer {
		if a.waitNs > 1 {
			a.waitNs--
		}
		return a
	}
	admitting := func(a answer) answer {
		if a.waitNs == 1 {
			return afterwards(0)
		}
		return a
	}
	neverAdmitting := func(a answer) answer {
		a.isNever = false
		return a
	}
	for name, ours := range map[string]func(config) asker{
		"ours with another rate":            of(honest, slower),
		"ours with another burst":           of(honest, deeper),
		"ours with longer waits":            saying(honest, oneLonger),
		"ours with shorter waits":           saying(honest, oneShorter),
		"ours a nanosecond early":           saying(honest, admitting),
		"ours with a wait for what's never": saying(honest, neverAdmitting),
		"ours forgetting":                   forgetting(honest),
	} {
		t.Run(name, func(t *testing.T) { mustFail(t, ours, reserve) })
	}
	for name, ask := range map[string]func(config) asker{
		"theirs with another rate":     of(reserve.ask, slower),
		"theirs with another burst":    of(reserve.ask, deeper),
		"theirs with longer waits":     saying(reserve.ask, oneLonger),
		"theirs with shorter waits":    saying(reserve.ask, oneShorter),
		"theirs keeping its last time": forward(reserve.ask),
		"theirs forgetting":            forgetting(reserve.ask),
	} {
		w := reserve
		w.ask = ask
		t.Run(name, func(t *testing.T) { mustFail(t, honest, w) })
	}
}

func mustFail(t *testing.T, ours func(config) asker, w way) {
	t.Helper()
	found := newFound()
	for seed := range uint64(histories) {
		if err := found.compare(newDraw(seed), calls, ours, w); err != nil {
			t.Logf("seed %d: %v", seed, err)
			return
		}
	}
	t.Errorf("not noticed in %d calls", found.calls)
}

// of is a subject that was given another limit.
func of(ask func(config) asker, change func(config) config) func(config) asker {
	return func(c config) asker { return ask(change(c)) }
}

// saying is a subject whose answers are changed.
func saying(ask func(config) asker, change func(answer) answer) func(config) asker {
	return func(c config) asker {
		honest := ask(c)
		return func(now, cost uint64) answer { return change(honest(now, cost)) }
	}
}

// forward is a subject that takes a clock that steps back for one that stands still.
func forward(ask func(config) asker) func(config) asker {
	return func(c config) asker {
		latest, honest := uint64(0), ask(c)
		return func(now, cost uint64) answer {
			latest = max(latest, now)
			return honest(latest, cost)
		}
	}
}

// forgetting is a subject that takes each 50th call for the first.
func forgetting(ask func(config) asker) func(config) asker {
	return func(c config) asker {
		asked, now := 0, ask(c)
		return func(at, cost uint64) answer {
			if asked++; asked%50 == 0 {
				now = ask(c)
			}
			return now(at, cost)
		}
	}
}

// The difference that matters, at its plainest: a burst of 2 and one a second, a clock that is set back by 10 s
// and comes forward again, 1,000 times. 12 fall due in that time.
func TestAClockThatStepsBackFillsTheirsEachTime(t *testing.T) {
	c := config{count: 1, periodNs: 1_000_000_000, burst: 2}
	ours, theirs := askCallgate(t)(c), allow.ask(c)
	we, they := 0, 0
	for range 1_000 {
		for _, now := range []uint64{start + 10*c.periodNs, start} {
			if ours(now, 1).isAdmitted {
				we++
			}
			if theirs(now, 1).isAdmitted {
				they++
			}
		}
	}
	if we != 2 || they != 2_000 {
		t.Errorf("ours admits %d, theirs %d; wanted 2 and 2,000", we, they)
	}
}
