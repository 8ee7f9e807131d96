package callgate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClosed is returned by every method of a gate that is closed, nil, or not made by New.
var ErrClosed = errors.New("callgate: the gate is closed, or was not made by New")

// ConfigError says why a gate can't be made, or a limit can't be changed so. Its message says what
// is allowed.
type ConfigError struct {
	// Field is the field to blame, in the engine's words: "count", "period_ns", "burst", "scope",
	// "capacity", …
	Field string
	// Limit is the name of the limit that it belongs to, or "".
	Limit string
	// Policy is the name of the policy that it belongs to, or "".
	Policy string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error is the message, with what it is about.
func (e *ConfigError) Error() string {
	if e == nil {
		return "callgate: no error"
	}
	parts := []string{"callgate"}
	if e.Policy != "" {
		parts = append(parts, fmt.Sprintf("policy %q", e.Policy))
	}
	if e.Limit != "" {
		parts = append(parts, fmt.Sprintf("limit %q", e.Limit))
	}
	return strings.Join(append(parts, e.Message), ": ")
}

// CallError says why a call can't be decided or settled; nothing was charged. Its message says what
// is allowed.
type CallError struct {
	// Field is the argument to blame: "policy", "caller", "cost", "now_ns", …, or "".
	Field string
	// Message says what is wrong and what is allowed.
	Message string
}

// Error is the message.
func (e *CallError) Error() string {
	if e == nil {
		return "callgate: no error"
	}
	if e.Field == "" || strings.HasPrefix(e.Message, e.Field) {
		return "callgate: " + e.Message
	}
	return "callgate: " + e.Field + ": " + e.Message
}

// Refused is the error of Admit where a call may not run.
//
//	var refused *callgate.Refused
//	if errors.As(err, &refused) { … refused.RetryAfter() … }
type Refused struct {
	// Decision says why, and when to come back.
	Decision *Decision
}

// Reason says why.
func (r *Refused) Reason() Reason {
	if r == nil || r.Decision == nil {
		return ReasonNone
	}
	return r.Decision.Reason
}

// By is the name of the limit that refused.
func (r *Refused) By() string {
	if r == nil || r.Decision == nil {
		return ""
	}
	return r.Decision.By
}

// RetryAfter: the limit that refused would admit the call in exactly so long; 0 where no time is known.
func (r *Refused) RetryAfter() time.Duration {
	if r == nil || r.Decision == nil {
		return 0
	}
	return r.Decision.RetryAfter
}

// Error is a sentence such as: refused by limit "caller" (rate): retry in 33.4 ms.
func (r *Refused) Error() string {
	if r == nil || r.Decision == nil {
		return "callgate: refused"
	}
	d := r.Decision
	head := fmt.Sprintf("callgate: refused by limit %q (%s)", d.By, d.Reason)
	switch {
	case d.Reason == ReasonNever:
		return fmt.Sprintf("%s: the call asks for more than the %d that it can ever hold", head, d.Limit)
	case d.Reason == ReasonConcurrency:
		return fmt.Sprintf("%s: all of its %d places are taken", head, d.Limit)
	case d.Reason == ReasonUnseeded:
		return head + ": it waits to be told what was used before"
	case d.RetryAfter == 0:
		return head + ": try again later"
	}
	return head + ": retry in " + durationText(d.RetryAfter)
}
