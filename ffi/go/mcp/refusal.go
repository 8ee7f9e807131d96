package mcp

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"callgate.dev/callgate"
)

// One refusal, three renderings: an HTTP response, a JSON-RPC error, a sentence for a model.

// DefaultErrorCode is the JSON-RPC code of a refusal: outside the ranges that JSON-RPC and MCP reserve.
const DefaultErrorCode = -31004

const internalError = -32603

// maxFieldInteger is the largest integer that HTTP structured fields can carry (RFC 9651, section
// 3.3.1).
const maxFieldInteger = 999_999_999_999_999

// JSONRPCError is the error member of a JSON-RPC response.
type JSONRPCError struct {
	Code    int          `json:"code"`
	Message string       `json:"message"`
	Data    *RefusalData `json:"data,omitempty"`
}

// RefusalData tells a client's program what its model is told in words.
type RefusalData struct {
	// Reason is one of the words of [callgate.Reason].
	Reason string `json:"reason"`
	// Limit is the name of the limit that refused.
	Limit string `json:"limit"`
	// RetryAfterMs is how many milliseconds later a retry can be admitted, rounded up; nil where no
	// time is known.
	RetryAfterMs *int64 `json:"retryAfterMs"`
}

// Error is the message.
func (e *JSONRPCError) Error() string { return e.Message }

// unavailable is answered after an internal error where OnError is OnErrorRefuse.
var unavailable = &JSONRPCError{
	Code:    internalError,
	Message: "The call limiter failed, and this server refuses calls then.",
}

// refusalError is the JSON-RPC error of a refused message of cost calls.
func refusalError(d *callgate.Decision, cost int, code int) *JSONRPCError {
	data := &RefusalData{Reason: d.Reason.String(), Limit: d.By}
	if wait, ok := retryAfterMs(d); ok {
		data.RetryAfterMs = &wait
	}
	return &JSONRPCError{Code: code, Message: sentence(d, cost), Data: data}
}

// sentence is one or two sentences that a model can pass on or act upon. They never name the caller.
func sentence(d *callgate.Decision, cost int) string {
	by := quoted(d.By)
	if d.Reason == callgate.ReasonNever {
		if uint64(cost) <= d.Limit {
			return fmt.Sprintf("This request sets aside more of the allowance %s than it ever holds, %d. "+
				"No retry can help.", by, d.Limit)
		}
		return fmt.Sprintf("This request holds %d tool calls, and the limit %s never lets more than %d "+
			"through at once. Send fewer calls at a time.", cost, by, d.Limit)
	}
	wait := "Try again in a moment."
	if ms, ok := retryAfterMs(d); ok {
		wait = "Try again in " + spoken(ms) + "."
	}
	return what(d, by) + " " + wait
}

func what(d *callgate.Decision, by string) string {
	switch d.Reason {
	case callgate.ReasonConcurrency:
		return fmt.Sprintf("The server is busy: it runs %d tool calls at once, and no more.", d.Limit)
	case callgate.ReasonBreakerOpen:
		return "The server is overloaded and takes no tool calls right now."
	case callgate.ReasonQuota:
		return fmt.Sprintf("The allowance %s is used up.", by)
	case callgate.ReasonUnseeded:
		return fmt.Sprintf("The server does not know yet what is left of the allowance %s.", by)
	case callgate.ReasonTableFull:
		return "The server is keeping track of as many callers as it can."
	}
	return fmt.Sprintf("Too many tool calls: the limit %s is reached.", by)
}

func spoken(ms int64) string {
	switch {
	case ms < 1_000:
		return fmt.Sprintf("%d milliseconds", ms)
	case ms < 120_000:
		return fmt.Sprintf("%.1f seconds", float64(divideUp(ms, 100))/10)
	}
	minutes := divideUp(ms, 60_000)
	if minutes < 120 {
		return fmt.Sprintf("%d minutes", minutes)
	}
	return fmt.Sprintf("%d hours", divideUp(minutes, 60))
}

// retryAfterMs is how many milliseconds later a retry can be admitted, rounded up; false where no time
// is known.
func retryAfterMs(d *callgate.Decision) (int64, bool) {
	if d.Reason == callgate.ReasonNever || d.RetryAfter <= 0 {
		return 0, false
	}
	return divideUp(int64(d.RetryAfter), int64(time.Millisecond)), true
}

// retryAfterS is Retry-After: whole seconds, rounded up, at least 1; false where no retry can succeed.
func retryAfterS(d *callgate.Decision) (int64, bool) {
	if d.Reason == callgate.ReasonNever {
		return 0, false
	}
	return max(1, divideUp(int64(d.RetryAfter), int64(time.Second))), true
}

// isOfServer: the refusal is about the server's state, not about this caller's own use.
func isOfServer(reason callgate.Reason) bool {
	switch reason {
	case callgate.ReasonConcurrency, callgate.ReasonBreakerOpen, callgate.ReasonUnseeded:
		return true
	}
	return false
}

// rateLimitFields are the values of RateLimit (empty where no rate limit refused) and
// RateLimit-Policy, draft-ietf-httpapi-ratelimit-headers-10.
//
// The policy field lists the rate limits of the policy: q is the burst, and w the seconds in which an
// empty bucket fills, since that many calls in that many seconds is what the limit amounts to.
func rateLimitFields(d *callgate.Decision, limits []namedLimit) (rateLimit, policy string) {
	var items []string
	for _, named := range limits {
		limit, ok := named.limit.(callgate.RateLimit)
		if !ok {
			continue
		}
		items = append(items, fmt.Sprintf("%s;q=%d;w=%d",
			fieldString(named.name), min(limit.Burst, maxFieldInteger), windowS(limit)))
		if named.name != d.By {
			continue
		}
		rateLimit = fmt.Sprintf("%s;r=%d", fieldString(d.By), min(d.Remaining, maxFieldInteger))
		if wait, ok := retryAfterS(d); ok {
			rateLimit += fmt.Sprintf(";t=%d", wait)
		}
	}
	return rateLimit, strings.Join(items, ", ")
}

// windowS is how many seconds an empty bucket takes to fill, rounded up. Of a gate's limit that is at most
// 2^61 ns, so that the quotient fits, though the product of burst and period may not.
func windowS(limit callgate.RateLimit) uint64 {
	high, low := bits.Mul64(limit.Burst, uint64(limit.Per))
	fill, rest := bits.Div64(high, low, limit.Count)
	if rest > 0 {
		fill++
	}
	return min(max(1, divideUp(fill, uint64(time.Second))), maxFieldInteger)
}

// fieldString is a name as a structured-field string: printable ASCII, the rest replaced.
func fieldString(name string) string {
	printable := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable) + `"`
}

// quoted is a name as the sentences have it: in single quotes, unless it holds one.
func quoted(name string) string {
	quote := "'"
	if strings.Contains(name, "'") && !strings.Contains(name, `"`) {
		quote = `"`
	}
	return quote + strings.NewReplacer(`\`, `\\`, quote, `\`+quote, "\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(name) + quote
}

func divideUp[N int64 | uint64](n, by N) N {
	if n%by == 0 {
		return n / by
	}
	return n/by + 1
}
