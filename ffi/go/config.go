package callgate

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Rule is one step of a policy: a limit's name, and whose state it keeps.
type Rule struct {
	Limit string
	Scope Scope
}

// Policy is the limits that a class of callers is held to, 1 to 8. They are charged in this order,
// all or none. Best with concurrency limits last: no place is taken then by a call that another limit
// refuses.
type Policy []Rule

// Config is what a gate is made from. New copies it.
type Config struct {
	// Limits, by name: 1 to 64. They are numbered by the order of their names.
	Limits map[string]Limit
	// Policies, by name: 1 to 64. Each is for a class of callers.
	Policies map[string]Policy
	// Capacity is how many distinct callers are sure to find a place, 1 to 67,108,864: a guarantee,
	// not a cap. 0 is 10,000. Each tool of a limit kept by tool takes the place of a caller, so does
	// each pair. All memory is taken at once; it never grows.
	Capacity int
	// Secret is 16 random bytes under which identities are hashed; none: new ones.
	Secret []byte
}

const (
	defaultCapacity = 10_000
	secretSize      = 16
	limitsMax       = 64
	policiesMax     = 64
)

// plan is a configuration whose every name is known. Ranges are the engine's.
type plan struct {
	limitNames  []string
	limits      []Limit
	policyNames []string
	policies    []Policy
	capacity    uint32
	secret      [secretSize]byte
}

func newPlan(c *Config) (*plan, error) {
	p := &plan{
		limitNames:  slices.Sorted(maps.Keys(c.Limits)),
		policyNames: slices.Sorted(maps.Keys(c.Policies)),
		capacity:    narrow(int64(c.Capacity)),
	}
	if c.Capacity == 0 {
		p.capacity = defaultCapacity
	}
	if err := p.takeSecret(c.Secret); err != nil {
		return nil, err
	}
	if err := checkNames("limits", p.limitNames, limitsMax); err != nil {
		return nil, err
	}
	if err := checkNames("policies", p.policyNames, policiesMax); err != nil {
		return nil, err
	}
	for _, name := range p.limitNames {
		p.limits = append(p.limits, c.Limits[name])
	}
	for _, name := range p.policyNames {
		if err := p.checkPolicy(name, c.Policies[name]); err != nil {
			return nil, err
		}
		p.policies = append(p.policies, slices.Clone(c.Policies[name]))
	}
	return p, nil
}

func (p *plan) takeSecret(secret []byte) error {
	if secret == nil {
		_, err := rand.Read(p.secret[:])
		return err
	}
	if len(secret) != secretSize {
		return &ConfigError{Field: "secret", Message: fmt.Sprintf("secret must be 16 random bytes, not %d", len(secret))}
	}
	copy(p.secret[:], secret)
	return nil
}

func checkNames(field string, names []string, most int) error {
	if len(names) == 0 || len(names) > most {
		return &ConfigError{Field: field, Message: fmt.Sprintf("%s must be 1 to %d, not %d", field, most, len(names))}
	}
	for _, name := range names {
		switch {
		case name == "":
			return &ConfigError{Field: field, Message: field + ": a name is empty; it must have 1 or more characters"}
		case !utf8.ValidString(name):
			return &ConfigError{Field: field, Message: fmt.Sprintf("%s: the name %q is not UTF-8", field, name)}
		case strings.ContainsRune(name, 0):
			return &ConfigError{Field: field, Message: fmt.Sprintf("%s: the name %q has a NUL character", field, name)}
		}
	}
	return nil
}

func (p *plan) checkPolicy(name string, rules Policy) error {
	if len(rules) == 0 || len(rules) > rulesMax {
		return &ConfigError{Field: "rules", Policy: name, Message: fmt.Sprintf("rules must be 1 to %d, not %d", rulesMax, len(rules))}
	}
	for _, rule := range rules {
		if !slices.Contains(p.limitNames, rule.Limit) {
			return &ConfigError{Field: "limit", Policy: name, Message: fmt.Sprintf(
				"limit %q is unknown; the gate has %s", rule.Limit, listed(p.limitNames))}
		}
		if rule.Scope < ScopeCaller || rule.Scope > ScopeShared {
			return &ConfigError{Field: "scope", Limit: rule.Limit, Policy: name, Message: fmt.Sprintf(
				"scope %d must be one of ScopeCaller, ScopeTool, ScopeCallerTool, ScopeShared", rule.Scope)}
		}
	}
	return nil
}

// listed is names as messages have them.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	quoted := make([]string, len(names))
	for n, name := range names {
		quoted[n] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, ", ")
}
