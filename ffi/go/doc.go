// Package callgate decides, in-process and in well under a microsecond, whether a tool call may run.
//
//	gate, err := callgate.New(callgate.Config{
//		Limits: map[string]callgate.Limit{
//			"caller": callgate.RateLimit{Count: 30, Per: time.Second, Burst: 60},
//			"server": callgate.ConcurrencyLimit{MaxInFlight: 3, Lease: 2 * time.Hour},
//			"tokens": callgate.Quota{Limit: 50_000, Per: 24 * time.Hour, Location: shanghai},
//		},
//		Policies: map[string]callgate.Policy{
//			"authenticated": {{Limit: "caller", Scope: callgate.ScopeCaller}, {Limit: "tokens", Scope: callgate.ScopeCaller}, {Limit: "server", Scope: callgate.ScopeShared}},
//		},
//	})
//
//	permit, err := gate.Admit("authenticated", callgate.Call{Caller: "user:1001"})
//	var refused *callgate.Refused
//	if errors.As(err, &refused) {
//		fmt.Println(refused) // callgate: refused by limit "caller" (rate): retry in 33.4 ms
//	}
//	if err != nil {
//		return err
//	}
//	defer permit.Settle(callgate.Success)
//	permit.Used(tokens)
//
// Package mcp puts a gate in front of an MCP server.
//
// # Units and ranges
//
// Durations are exact to the nanosecond. Tokens, units and places are whole numbers. What is out of its
// range is an error that names the field and says what is allowed; nothing is clamped.
//
// # Errors
//
// New and Reconfigure fail with *ConfigError. A call that can't be decided (an unknown policy, a caller
// that is missing) fails with *CallError, and charges nothing. A call that may not run is refused: Admit
// returns *Refused then, TryAdmit a Decision and no error. After Close everything fails with ErrClosed.
// Nothing panics.
//
// # Threads
//
// Everything may be used from any goroutine at any time. Deciding takes no lock and waits for nobody.
// (A Decision is written by the call that decides it; whoever reads it must come after.)
//
// # Building
//
// The engine is a C library that cgo links statically: a C compiler is needed, and CGO_ENABLED=1. The
// module brings the library in lib/. In a clone build.sh builds it; with the build tag callgate_system
// the one that pkg-config knows is taken.
//
// On linux/amd64 with Go 1.26, deciding and settling call C as the runtime itself calls what returns at
// once, which spares 20 ns of cgo's 30. This relies on a function inside the runtime: with other versions
// of Go, on other platforms, and with the build tag callgate_cgo, all calls are cgo's.
package callgate
