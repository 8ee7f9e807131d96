package callgate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"callgate.dev/callgate"
)

func newGate(limits map[string]callgate.Limit, policy callgate.Policy) *callgate.Gate {
	gate, err := callgate.New(callgate.Config{Limits: limits, Policies: map[string]callgate.Policy{"authenticated": policy}})
	if err != nil {
		panic(err)
	}
	return gate
}

func Example() {
	gate := newGate(
		map[string]callgate.Limit{
			"caller": callgate.RateLimit{Count: 30, Per: time.Second, Burst: 1},
			"tokens": callgate.Quota{Limit: 50_000, Per: 24 * time.Hour},
		},
		callgate.Policy{{Limit: "caller", Scope: callgate.ScopeCaller}, {Limit: "tokens", Scope: callgate.ScopeCaller}})
	defer func() { _ = gate.Close() }()

	// Left out, At is the system's clock.
	call := callgate.Call{Caller: "user:1001", At: callgate.At(0, 0)}
	permit, err := gate.Admit("authenticated", call)
	if err != nil {
		panic(err)
	}
	permit.Used(1_200)
	settled, err := permit.Settle(callgate.Success)
	fmt.Println(settled, err)

	_, err = gate.Admit("authenticated", call)
	var refused *callgate.Refused
	if errors.As(err, &refused) {
		fmt.Println(refused)
		fmt.Println(refused.By(), refused.Reason(), refused.RetryAfter())
	}
	// Output:
	// ok <nil>
	// callgate: refused by limit "caller" (rate): retry in 33.4 ms
	// caller rate 33.333334ms
}

func ExampleGate_AdmitContext() {
	gate := newGate(
		map[string]callgate.Limit{"server": callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: 2 * time.Hour}},
		callgate.Policy{{Limit: "server", Scope: callgate.ScopeShared}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // gives the place back, too, where nobody settled

	permit, err := gate.AdmitContext(ctx, "authenticated", callgate.Call{})
	if err != nil {
		panic(err)
	}
	defer func() { _, _ = permit.Settle(callgate.Success) }()
	fmt.Println(permit.Remaining, "of", permit.Limit, "places are left")
	// Output: 2 of 3 places are left
}

func ExampleGate_TryAdmit() {
	gate := newGate(
		map[string]callgate.Limit{"caller": callgate.RateLimit{Count: 10, Per: time.Second, Burst: 20}},
		callgate.Policy{{Limit: "caller", Scope: callgate.ScopeCaller}})
	key, err := gate.Key("user:1001") // made once, for a caller who comes again
	if err != nil {
		panic(err)
	}
	var decision callgate.Decision
	call := callgate.Call{CallerKey: key, Cost: 15, At: callgate.At(0, 0)}
	for range 2 {
		if err := gate.TryAdmit(&decision, "authenticated", &call); err != nil {
			panic(err)
		}
		fmt.Println(decision.Admitted, decision.Remaining, decision.RetryAfter)
	}
	// Output:
	// true 5 0s
	// false 5 1s
}

func ExampleGate_Reconfigure() {
	gate := newGate(
		map[string]callgate.Limit{"caller": callgate.RateLimit{Count: 1, Per: time.Second, Burst: 1}},
		callgate.Policy{{Limit: "caller", Scope: callgate.ScopeCaller}})
	fmt.Println(gate.Reconfigure("caller", callgate.RateLimit{Count: 5, Per: time.Second, Burst: 10}))
	fmt.Println(gate.Reconfigure("caller", callgate.RateLimit{Count: 5, Per: time.Second}))
	// Output:
	// <nil>
	// callgate: limit "caller": burst must be 1 or more tokens, and burst * period_ns / count at most 2^61 ns
}

func ExampleSeeder() {
	gate := newGate(
		map[string]callgate.Limit{"tokens": callgate.Quota{Limit: 50_000, Per: 24 * time.Hour, MustSeed: true}},
		callgate.Policy{{Limit: "tokens", Scope: callgate.ScopeCaller}})
	usedToday := func(ctx context.Context, caller string) (uint64, error) { return 49_000, nil } // asks your ledger
	seeder, err := callgate.NewSeeder(gate, "tokens", usedToday, callgate.SeederConfig{})
	if err != nil {
		panic(err)
	}
	permit, err := seeder.Admit(context.Background(), "authenticated", callgate.Call{Caller: "user:1001"})
	if err != nil {
		panic(err)
	}
	fmt.Println(permit.Remaining)
	// Output: 1000
}

func ExampleGate_Metrics() {
	gate := newGate(
		map[string]callgate.Limit{"caller": callgate.RateLimit{Count: 1, Per: time.Second, Burst: 1}},
		callgate.Policy{{Limit: "caller", Scope: callgate.ScopeCaller}})
	if err := gate.Metrics(os.Stdout); err != nil { // or metrics.Handler(gate)
		panic(err)
	}
}
