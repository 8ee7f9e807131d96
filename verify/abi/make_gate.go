// Makes a gate, and says whether that was refused.
package main

import (
	"fmt"
	"time"

	"callgate.dev/callgate"
)

func main() {
	gate, err := callgate.New(callgate.Config{
		Limits:   map[string]callgate.Limit{"limit": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 2}},
		Policies: map[string]callgate.Policy{"policy": {{Limit: "limit", Scope: callgate.ScopeCaller}}},
	})
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	defer func() { _ = gate.Close() }()
	fmt.Println("loaded", callgate.Version)
}
