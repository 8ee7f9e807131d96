package main

import (
	"errors"
	"fmt"
	"strings"

	"callgate.dev/callgate"
)

// run does what the scenario says; it returns the first difference, or "".
func (s *scenario) run() string {
	gate, err := s.gate()
	if err != nil {
		var wrong *callgate.ConfigError
		if !errors.As(err, &wrong) {
			return err.Error()
		}
		if wrong.Field != s.ConfigError || s.ConfigError == "" {
			return fmt.Sprintf("making the gate blames %q (%v), expected %q", wrong.Field, err, s.ConfigError)
		}
		return ""
	}
	if s.ConfigError != "" {
		return fmt.Sprintf("making the gate succeeds, expected an error that blames %q", s.ConfigError)
	}
	if !s.isExpressible() {
		return "a period above 292 years is longer than a time.Duration"
	}
	defer func() { _ = gate.Close() }()
	session := &session{gate: gate, scenario: s, permits: map[string]*callgate.Decision{}}
	for n := range s.Steps {
		if difference := session.step(&s.Steps[n]); difference != "" {
			return fmt.Sprintf("step %d: %s", n, difference)
		}
	}
	return ""
}

type session struct {
	gate     *callgate.Gate
	scenario *scenario
	permits  map[string]*callgate.Decision
}

func (r *session) step(s *step) string {
	if s.Expect == nil {
		s.Expect = &expectation{}
	}
	switch s.Op {
	case "admit":
		return r.admit(s)
	case "settle":
		return r.settle(s)
	}
	return r.seed(s)
}

func (r *session) at(ns number) callgate.Instant {
	return callgate.At(uint64(ns), uint64(r.scenario.UnixBaseNs+ns))
}

func (r *session) admit(s *step) string {
	policy, call := "default", callgate.Call{Caller: caller(s), Tool: s.Tool, Cost: 1, Reserve: uint64(s.Reserve)}
	if s.Policy != nil {
		policy = *s.Policy
	}
	if s.Cost != nil {
		call.Cost, call.NoCost = uint64(*s.Cost), *s.Cost == 0
	}
	admitted := number(0)
	var decision *callgate.Decision
	for _, ns := range times(s) {
		decision = new(callgate.Decision)
		call.At = r.at(ns)
		if err := r.gate.TryAdmit(decision, policy, &call); err != nil {
			return err.Error()
		}
		if decision.Admitted {
			admitted++
		}
		if s.Permit != "" {
			r.permits[s.Permit] = decision
		}
	}
	if decision == nil {
		return "the step is repeated 0 times"
	}
	if wanted := s.Expect.Admitted; wanted != nil && *wanted != admitted {
		return fmt.Sprintf("admitted %d, expected %d", admitted, *wanted)
	}
	if s.Expect.Last != nil {
		return difference(s.Expect.Last, decision)
	}
	return difference(s.Expect, decision)
}

func (r *session) settle(s *step) string {
	decision := r.permits[s.Permit]
	if decision == nil {
		return fmt.Sprintf("no permit %q was given", s.Permit)
	}
	outcomes := map[string]callgate.Outcome{"SUCCESS": callgate.Success, "FAILURE": callgate.Failure,
		"ABANDONED": callgate.Abandoned, "CANCELLED": callgate.Cancelled}
	settled, err := r.gate.Settle(decision, outcomes[s.Outcome], uint64(s.Actual), r.at(s.At))
	if err != nil {
		return err.Error()
	}
	status := strings.ToUpper(settled.String())
	if s.Expect.Verdict != nil || s.Expect.Admitted != nil || s.Expect.Last != nil || s.Expect.Seeded != nil {
		return "a settlement has a status only"
	}
	return differs("status", s.Expect.Status, status)
}

func (r *session) seed(s *step) string {
	seeded, err := r.gate.Seed(s.Limit, callgate.Usage{Caller: caller(s), Used: uint64(s.Used), At: r.at(s.At)})
	if err != nil {
		return err.Error()
	}
	if s.Expect.Verdict != nil || s.Expect.Admitted != nil || s.Expect.Last != nil || s.Expect.Status != nil {
		return "a seed is seeded or not"
	}
	return differs("seeded", s.Expect.Seeded, seeded)
}

func caller(s *step) string {
	if s.Caller == nil {
		return "alice"
	}
	return *s.Caller
}

// times are those of the step's calls.
func times(s *step) []number {
	repeat := number(1)
	if s.Repeat != nil {
		repeat = *s.Repeat
	}
	all := make([]number, repeat)
	for n := range all {
		all[n] = s.At + number(n)*s.EveryNs
		if len(s.Ats) > 0 {
			all[n] = s.Ats[n%len(s.Ats)]
		}
	}
	return all
}

func difference(expected *expectation, d *callgate.Decision) string {
	verdict := "REFUSED"
	if d.Admitted {
		verdict = "ADMITTED"
	}
	if expected.Status != nil || expected.Seeded != nil {
		return "a decision has no status and is not seeded"
	}
	for _, difference := range []string{
		differs("verdict", expected.Verdict, verdict),
		differs("reason", expected.Reason, strings.ToUpper(d.Reason.String())),
		differs("by", expected.By, d.By),
		differs("retry_after_ns", expected.RetryAfterNs, number(d.RetryAfter)),
		differs("limit", expected.Limit, number(d.Limit)),
		differs("remaining", expected.Remaining, number(d.Remaining)),
		differs("reset_after_ns", expected.ResetAfterNs, number(d.ResetAfter)),
	} {
		if difference != "" {
			return difference
		}
	}
	return ""
}

// differs compares where anything is expected.
func differs[T comparable](name string, expected *T, found T) string {
	if expected == nil || *expected == found {
		return ""
	}
	return fmt.Sprintf("%s %v, expected %v", name, found, *expected)
}
