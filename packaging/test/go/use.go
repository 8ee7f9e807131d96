// Command use admits one call of a caller and refuses the next.
package main

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"callgate.dev/callgate"
	"callgate.dev/callgate/mcp"
)

func main() {
	gate, err := callgate.New(callgate.Config{
		Limits: map[string]callgate.Limit{
			"caller": callgate.RateLimit{Count: 1, Per: time.Hour, Burst: 1},
		},
		Policies: map[string]callgate.Policy{
			"authenticated": {{Limit: "caller", Scope: callgate.ScopeCaller}},
			"anonymous":     {{Limit: "caller", Scope: callgate.ScopeShared}},
		},
		Capacity: 16,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer gate.Close()
	permit, err := gate.Admit("authenticated", callgate.Call{Caller: "user:1001"})
	if err != nil {
		log.Fatal(err)
	}
	if settled, err := permit.Settle(callgate.Success); settled != callgate.SettledNow || err != nil {
		log.Fatalf("settled: %v, %v", settled, err)
	}
	_, err = gate.Admit("authenticated", callgate.Call{Caller: "user:1001"})
	var refused *callgate.Refused
	if !errors.As(err, &refused) {
		log.Fatalf("the second call was not refused: %v", err)
	}
	if _, err := mcp.Protect(http.NotFoundHandler(), gate, mcp.Options{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("admitted one, refused one")
}
