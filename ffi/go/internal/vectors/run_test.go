package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

const directory = "../../../../tests/vectors"

func TestEveryDecisionIsTheOneOfTheVectors(t *testing.T) {
	for file, count := range map[string]int{"rate": 33, "concurrency": 18, "quota": 7, "policy": 4} {
		ran, err := runFile(filepath.Join(directory, file+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if ran.Failed != 0 {
			t.Errorf("%s: %s", file, *ran.FirstDifference)
		}
		if ran.Passed < count || ran.Unsupported != 0 {
			t.Errorf("%s: %d passed of %d or more, %d unsupported", file, ran.Passed, count, ran.Unsupported)
		}
	}
}

const oneToken = `{"name": "one token", "unix_base_ns": "0",
	"limits": [{"kind": "rate", "count": "1", "period_ns": "1000000000", "burst": "1"}],
	"policies": {"default": [["0", "CALLER"]]},
	"steps": [
		{"op": "admit", "at": "0", "permit": "p",
		 "expect": {"verdict": "ADMITTED", "limit": "1", "remaining": "0", "reset_after_ns": "1000000000"}},
		{"op": "settle", "at": "0", "permit": "p", "outcome": "CANCELLED", "expect": {"status": "OK"}}]}`

func changed(t *testing.T, change func(steps []map[string]any)) string {
	t.Helper()
	var s map[string]any
	if err := json.Unmarshal([]byte(oneToken), &s); err != nil {
		t.Fatal(err)
	}
	var steps []map[string]any
	for _, each := range s["steps"].([]any) {
		steps = append(steps, each.(map[string]any))
	}
	change(steps)
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	read, err := read(text)
	if err != nil {
		return err.Error()
	}
	return read.run()
}

func TestWhatIsRightIsNoDifference(t *testing.T) {
	if difference := changed(t, func([]map[string]any) {}); difference != "" {
		t.Error(difference)
	}
}

func TestWhatIsWrongIsADifference(t *testing.T) {
	for _, wrong := range []struct {
		step        int
		name, value string
	}{
		{0, "verdict", "REFUSED"}, {0, "limit", "2"}, {0, "remaining", "1"}, {0, "reset_after_ns", "999999999"},
		{0, "retry_after_ns", "1"}, {0, "by", "1"}, {0, "reason", "RATE"}, {0, "what", "0"}, {0, "status", "OK"},
		{1, "status", "ALREADY_SETTLED"},
	} {
		difference := changed(t, func(steps []map[string]any) {
			steps[wrong.step]["expect"].(map[string]any)[wrong.name] = wrong.value
		})
		if !strings.Contains(difference, wrong.name) {
			t.Errorf("%s: %q", wrong.name, difference)
		}
	}
}

func TestAWrongNumberOfAdmissionsIsADifference(t *testing.T) {
	difference := changed(t, func(steps []map[string]any) {
		steps[0]["repeat"] = "3"
		steps[0]["expect"] = map[string]any{"admitted": "2"}
	})
	if difference != "step 0: admitted 1, expected 2" {
		t.Error(difference)
	}
}

func TestAGateThatShouldNotBeMadeIsADifference(t *testing.T) {
	s, err := read([]byte(strings.Replace(oneToken, `"name"`, `"config_error": "burst", "name"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if difference := s.run(); !strings.Contains(difference, "succeeds") {
		t.Error(difference)
	}
}

func TestALongPeriodIsShortenedOrNeverPassed(t *testing.T) {
	for count, wanted := range map[string]string{"10000000000": "", "7": "292 years"} {
		long := strings.Replace(oneToken, `"count": "1", "period_ns": "1000000000"`,
			`"count": "`+count+`", "period_ns": "10000000000000000000"`, 1)
		s, err := read([]byte(long))
		if err != nil {
			t.Fatal(err)
		}
		if difference := s.run(); difference != wanted && (wanted == "" || !strings.Contains(difference, wanted)) {
			t.Errorf("count %s: %q", count, difference)
		}
	}
}
