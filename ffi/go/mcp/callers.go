package mcp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"callgate.dev/callgate"
)

// Who calls: the policy that applies, and the identity that is charged under it.
//
// Three classes, and no fourth: a verified caller, whom the server's own authentication knows; a
// forwarded bearer, which nobody here has checked; and anonymous. An absent caller is anonymous by
// name, never an empty key, and never pooled with callers that have one.
const (
	Authenticated   = "authenticated"
	Anonymous       = "anonymous"
	ForwardedBearer = "forwarded-bearer"
)

// Caller is the policy to apply, and the identity to charge.
type Caller struct {
	// Policy is the name of one of the gate's policies; empty means Authenticated where there is an
	// identity, else Anonymous.
	Policy string
	// Identity is what the caller is known by; empty where the policy asks for none.
	Identity string
	// Key stands for the identity, where it was made beforehand. It comes before Identity.
	Key callgate.Key
}

func (c Caller) withPolicy() Caller {
	switch {
	case c.Policy != "":
	case c.isNobody():
		c.Policy = Anonymous
	default:
		c.Policy = Authenticated
	}
	return c
}

func (c Caller) isNobody() bool { return c.Identity == "" && c.Key.IsZero() }

// Source is what is known of a message.
type Source struct {
	// Request is the HTTP request that carries the message, in front of a server; nil within one.
	Request *http.Request
	// Header is that of the HTTP request that carried the message; nil on other transports.
	Header http.Header
	// Message is what the SDK hands to its middleware; nil in front of a server.
	Message any
}

// CallerFunc says who calls. An error is one of the limiter, see OnError; where the context has ended, the
// call is refused.
type CallerFunc func(ctx context.Context, source Source) (Caller, error)

// WithCaller notes who calls, for the middlewares inside: what an authentication of yours puts in the
// request's context once it has verified the caller.
//
//	next.ServeHTTP(w, r.WithContext(mcp.WithCaller(r.Context(), mcp.Caller{Identity: "user:1001"})))
func WithCaller(ctx context.Context, caller Caller) context.Context {
	known := noteOf(ctx)
	caller = caller.withPolicy()
	return withNote(ctx, &note{caller: &caller, receipts: known.receipts})
}

// CallerOf is the verified caller of a message, as far as one is known in its context. In a session of
// go-sdk that is the one who opened it, unless gosdk.New(gate, …).Receiving is there, too.
func CallerOf(ctx context.Context) (caller Caller, isKnown bool) {
	if known := noteOf(ctx); known.caller != nil {
		return *known.caller, true
	}
	return Caller{}, false
}

// CallerOfHeader is the caller of whom nothing but an HTTP request's header is known: a bearer that
// nobody verified is charged under ForwardedBearer; everybody else is Anonymous.
func CallerOfHeader(header http.Header) Caller {
	if token := bearerToken(header); token != "" {
		// The prefix keeps an unverified bearer from being spelled like a verified identity, whose
		// bucket it would drain.
		return Caller{Policy: ForwardedBearer, Identity: "\x00bearer\x00" + token}
	}
	return Caller{Policy: Anonymous}
}

// bearerToken is the token of Authorization: Bearer; the first field decides, as it does for the
// authentication of the SDKs.
func bearerToken(header http.Header) string {
	scheme, token, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// resolver turns a message into a Caller whose policy the gate has.
type resolver struct {
	function     CallerFunc
	hasForwarded bool
	perCaller    map[string]bool
}

func newResolver(policies map[string]callgate.Policy, function CallerFunc) (*resolver, error) {
	needed := []string{Anonymous}
	if function == nil {
		needed = append(needed, Authenticated)
	}
	for _, policy := range needed {
		if _, ok := policies[policy]; !ok {
			return nil, &callgate.ConfigError{Field: "policies", Policy: policy, Message: fmt.Sprintf(
				"the gate needs a policy named %q; it has %s", policy, namesOf(policies))}
		}
	}
	if hasScope(policies[Anonymous], callgate.ScopeCaller, callgate.ScopeCallerTool) {
		return nil, &callgate.ConfigError{Field: "scope", Policy: Anonymous,
			Message: fmt.Sprintf("policy %q has a limit per caller, and there is no caller to charge", Anonymous)}
	}
	_, hasForwarded := policies[ForwardedBearer]
	return &resolver{function, hasForwarded, withScope(policies, callgate.ScopeCaller, callgate.ScopeCallerTool)}, nil
}

// resolve says who calls: the user's function where there is one, else what was verified, else what the
// header says.
func (r *resolver) resolve(ctx context.Context, source Source, verified *Caller) (Caller, error) {
	if r.function != nil {
		caller, err := r.function(ctx, source)
		return r.orAnonymous(caller.withPolicy()), err
	}
	if verified != nil {
		return r.orAnonymous(*verified), nil
	}
	caller := CallerOfHeader(source.Header)
	if caller.Policy == ForwardedBearer && !r.hasForwarded {
		return Caller{Policy: Anonymous}, nil
	}
	return caller, nil
}

// orAnonymous is the caller, unless it has no identity under a policy that wants one.
func (r *resolver) orAnonymous(caller Caller) Caller {
	if caller.isNobody() && r.perCaller[caller.Policy] {
		return Caller{Policy: Anonymous}
	}
	return caller
}

// withScope has the policies that keep state by one of these.
func withScope(policies map[string]callgate.Policy, scopes ...callgate.Scope) map[string]bool {
	found := make(map[string]bool)
	for name, rules := range policies {
		found[name] = hasScope(rules, scopes...)
	}
	return found
}

func hasScope(rules callgate.Policy, scopes ...callgate.Scope) bool {
	return slices.ContainsFunc(rules, func(rule callgate.Rule) bool {
		return slices.Contains(scopes, rule.Scope)
	})
}
