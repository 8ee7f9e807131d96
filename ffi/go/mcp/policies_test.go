package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"callgate.dev/callgate"
)

func choosingGate(t testing.TB) *callgate.Gate {
	return mustGate(t, callgate.Config{
		Limits: map[string]callgate.Limit{"caller": hourly(9), "shared": hourly(9), "forwarded": hourly(9),
			"expensive": hourly(2), "polling": hourly(4)},
		Policies: map[string]callgate.Policy{
			Authenticated:   {byCaller("caller")},
			Anonymous:       {shared("shared")},
			ForwardedBearer: {shared("forwarded")},
			"expensive":     {byCaller("expensive")},
			"by-tool":       {byTool("expensive")},
			"polling":       {shared("polling")},
		},
	})
}

func choosing(t testing.TB, options MeterOptions) *metered {
	return meter(t, choosingGate(t), Options{MeterOptions: options})
}

func as(identity string) CallerFunc {
	return func(context.Context, Source) (Caller, error) { return Caller{Identity: identity}, nil }
}

func byHeader(_ context.Context, source Source) (Caller, error) {
	return Caller{Identity: source.Header.Get("Caller")}, nil
}

func forAll(policy string) PolicyChoice { return PolicyChoice{Policy: policy} }

func one(tool string, choice PolicyChoice) map[string]PolicyChoice {
	return map[string]PolicyChoice{tool: choice}
}

var expensiveSearch = one("search", forAll("expensive"))

func TestAToolsPolicyReplacesThatOfTheClassForThisToolAlone(t *testing.T) {
	m := choosing(t, MeterOptions{Caller: as("ann"), Tools: expensiveSearch})
	search := call("search")
	equal(t, "statuses", m.statuses(search, search, search, call("work")), []int{200, 200, 429, 200})
	equal(t, "class", m.charged(Authenticated, "ann"), uint64(1))
	equal(t, "tool", m.charged("expensive", "ann"), uint64(2))
}

func TestEachCallerHasItsOwnAllowanceOfAnExpensiveTool(t *testing.T) {
	m := choosing(t, MeterOptions{Caller: byHeader, Tools: expensiveSearch})
	for _, caller := range []string{"ann", "bob"} {
		for _, want := range []int{200, 200, 429} {
			equal(t, caller, m.post(call("search"), "Caller", caller).Code, want)
		}
	}
}

func TestCallersWhomNobodyVerifiedShareOneAllowanceOfAnExpensiveTool(t *testing.T) {
	m := choosing(t, MeterOptions{Tools: expensiveSearch})
	for n, want := range []int{200, 200, 429, 429} {
		header := []string{"Authorization", fmt.Sprint("Bearer ", n)}
		equal(t, "status", m.post(call("search"), header[:2*(n%2)]...).Code, want)
	}
	equal(t, "live", m.live(), uint64(1))
}

func TestAToolsPolicyMayBeChosenByClass(t *testing.T) {
	byClass := PolicyChoice{ByClass: map[string]string{Authenticated: "expensive"}}
	m := choosing(t, MeterOptions{Caller: byHeader, Tools: one("search", byClass)})
	for _, want := range []int{200, 200, 429} {
		equal(t, "verified", m.post(call("search"), "Caller", "ann").Code, want)
	}
	equal(t, "anonymous", m.statuses(repeat(3, call("search"))...), []int{200, 200, 200})
	equal(t, "anonymous", m.charged(Anonymous, ""), uint64(3))
	own := PolicyChoice{ByClass: map[string]string{"polling": "expensive"}}
	m = choosing(t, MeterOptions{Tools: one("search", own), Caller: func(context.Context, Source) (Caller, error) {
		return Caller{Policy: "polling", Identity: "ann"}, nil
	}})
	equal(t, "own class", m.statuses(repeat(3, call("search"))...), []int{200, 200, 429})
	equal(t, "own class", m.charged("polling", ""), uint64(0))
}

func TestABatchOverSeveralPoliciesIsAllOrNothing(t *testing.T) {
	m := choosing(t, MeterOptions{Caller: as("ann"), Tools: expensiveSearch})
	mixed := batch(call("work"), call("search"), call("work"))
	equal(t, "statuses", m.statuses(call("search"), mixed, mixed), []int{200, 200, 429})
	equal(t, "class", m.charged(Authenticated, "ann"), uint64(2))
	equal(t, "tool", m.charged("expensive", "ann"), uint64(2))
	equal(t, "ran", m.app.ran(), 2)
}

func TestABatchThatCanNeverPassOnePolicySaysSoOfThatPolicysCalls(t *testing.T) {
	m := choosing(t, MeterOptions{Caller: as("ann"), Tools: expensiveSearch})
	answer := m.post(batch(append(repeat(3, call("search")), call("work"))...))
	equal(t, "status", answer.Code, 429)
	equal(t, "reason", answer.json().Error.Data.Reason, "never")
	if !strings.HasPrefix(answer.json().Error.Message, "This request holds 3 tool calls") {
		t.Error(answer.Body)
	}
	equal(t, "charged", m.charged(Authenticated, "ann"), uint64(0))
}

func TestWhereAToolsPolicyKeepsStateByToolEachToolIsChargedForItself(t *testing.T) {
	m := choosing(t, MeterOptions{Tools: map[string]PolicyChoice{"search": forAll("by-tool"), "fetch": forAll("by-tool")}})
	both := batch(call("search"), call("fetch"))
	equal(t, "statuses", m.statuses(both, both, call("fetch")), []int{200, 200, 429})
}

func TestACallThatNamesNoToolIsChargedWhereStateIsKeptByTool(t *testing.T) {
	m := choosing(t, MeterOptions{Caller: func(context.Context, Source) (Caller, error) { return Caller{Policy: "by-tool"}, nil }})
	nameless := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}`
	equal(t, "statuses", m.statuses(nameless, nameless, nameless, call("a")), []int{200, 200, 429, 200})
	equal(t, "internal errors", m.InternalErrors(), uint64(0))
}

const poll = `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}`

func TestOtherMethodsCostNothingUnlessTheyHaveAPolicy(t *testing.T) {
	m := choosing(t, MeterOptions{})
	for range 20 {
		equal(t, "free", m.post(poll).Code, 200)
	}
	equal(t, "live", m.live(), uint64(0))
	m = choosing(t, MeterOptions{Methods: one("tasks/get", forAll("polling"))})
	equal(t, "metered", m.statuses(repeat(5, poll)...), []int{200, 200, 200, 200, 429})
	equal(t, "a call", m.statuses(call("work")), []int{200})
	equal(t, "a call", m.charged(Anonymous, ""), uint64(1))
	byClass := PolicyChoice{ByClass: map[string]string{Authenticated: "polling"}}
	m = choosing(t, MeterOptions{Methods: one("tasks/get", byClass)})
	for range 9 {
		equal(t, "left out", m.post(poll).Code, 200)
	}
	equal(t, "live", m.live(), uint64(0))
}

func TestAContinuationCostsLikeAnyCallUnlessItHasAPolicy(t *testing.T) {
	again := callWith("search", "1", `,"inputResponses":{"q":{"action":"accept"}},"requestState":"s"`)
	m := choosing(t, MeterOptions{Caller: as("ann"), Tools: expensiveSearch})
	equal(t, "by default", m.statuses(again, again, again), []int{200, 200, 429})
	polling := forAll("polling")
	m = choosing(t, MeterOptions{Caller: as("ann"), Tools: expensiveSearch, Continuations: &polling})
	search := call("search")
	equal(t, "with a policy", m.statuses(search, again, again, search), []int{200, 200, 200, 200})
	equal(t, "tool", m.charged("expensive", "ann"), uint64(2))
	equal(t, "continuations", m.charged("polling", ""), uint64(2))
}

func TestAChoiceThatTheGateCannotMakeIsRefusedAtStart(t *testing.T) {
	unknown := forAll("unknown")
	for field, options := range map[string]MeterOptions{
		`tools["search"]: the gate has no policy`: {Tools: one("search", unknown)},
		`tools["search"]: the gate`:               {Tools: one("search", PolicyChoice{ByClass: map[string]string{Authenticated: "unknown"}})},
		`tools["search"]`:                         {Tools: one("search", PolicyChoice{ByClass: map[string]string{"unknown": "expensive"}})},
		`tools["search"] must have a Policy`:      {Tools: one("search", PolicyChoice{})},
		`methods["tasks/get"]`:                    {Methods: one("tasks/get", unknown)},
		`methods can't have "tools/call"`:         {Methods: one(MeteredMethod, forAll("polling"))},
		`continuations: the gate`:                 {Continuations: &unknown},
		`on_error must be`:                        {OnError: 7},
	} {
		_, err := NewMeter(choosingGate(t), options)
		var config *callgate.ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, options := range []Options{{MaxBodyBytes: -1}, {MeterOptions: MeterOptions{OnError: 7}}} {
		if _, err := Protect(&app{}, choosingGate(t), options); err == nil {
			t.Error(options)
		}
	}
	if _, err := Protect(nil, choosingGate(t), Options{}); err == nil {
		t.Error("no handler was taken")
	}
}
