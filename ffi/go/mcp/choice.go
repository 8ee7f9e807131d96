package mcp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"callgate.dev/callgate"
)

// PolicyChoice says which policy replaces that of a caller's class: one for callers of every class, or
// one by class. One of both is set.
type PolicyChoice struct {
	// Policy is for callers of every class. Those whom nobody has verified are one caller then: else
	// somebody without a token would have as many allowances as they can think of tokens.
	Policy string
	// ByClass has a policy for each class, by the name of the class's own policy. Classes that are
	// left out stay as they are.
	ByClass map[string]string
}

const (
	// unverified is the one caller under a policy for every class whom nobody has verified.
	unverified = "\x00unverified"
	// unnamedTool is charged for a call that names no tool: no tool can have this name, and a key is
	// never empty.
	unnamedTool = "\x00unnamed"
)

// charged is what calls are charged under: equal for calls that one admission is enough for.
type charged struct {
	policy string
	caller string
	key    callgate.Key
	tool   string
}

// chooser makes the choices of one middleware, which are checked against its gate.
type chooser struct {
	tools         map[string]PolicyChoice
	others        map[string]PolicyChoice
	continuations *PolicyChoice
	// methods are the metered ones.
	methods   map[string]bool
	perCaller map[string]bool
	perTool   map[string]bool
}

func newChooser(policies map[string]callgate.Policy, options *MeterOptions) (*chooser, error) {
	c := &chooser{
		tools:         maps.Clone(options.Tools),
		others:        maps.Clone(options.Methods),
		continuations: options.Continuations,
		methods:       map[string]bool{MeteredMethod: true},
		perCaller:     withScope(policies, callgate.ScopeCaller, callgate.ScopeCallerTool),
		perTool:       withScope(policies, callgate.ScopeTool, callgate.ScopeCallerTool),
	}
	if _, ok := c.others[MeteredMethod]; ok {
		return nil, optionError("methods", " can't have %q: see Tools for its policies", MeteredMethod)
	}
	for method := range c.others {
		c.methods[method] = true
	}
	return c, c.check(policies)
}

func (c *chooser) check(policies map[string]callgate.Policy) error {
	for _, name := range slices.Sorted(maps.Keys(c.tools)) {
		if err := c.tools[name].check(policies, "tools", fmt.Sprintf("[%q]", name)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.others)) {
		if err := c.others[name].check(policies, "methods", fmt.Sprintf("[%q]", name)); err != nil {
			return err
		}
	}
	if c.continuations != nil {
		return c.continuations.check(policies, "continuations", "")
	}
	return nil
}

func (p PolicyChoice) check(policies map[string]callgate.Policy, field, where string) error {
	if (p.Policy == "") == (len(p.ByClass) == 0) {
		return optionError(field, "%s must have a Policy, or some ByClass, and not both", where)
	}
	names := slices.Sorted(maps.Keys(p.ByClass))
	for _, class := range slices.Clone(names) {
		names = append(names, p.ByClass[class])
	}
	if p.Policy != "" {
		names = []string{p.Policy}
	}
	for _, name := range names {
		if _, ok := policies[name]; !ok {
			return optionError(field, "%s: the gate has no policy named %q; it has %s", where, name, namesOf(policies))
		}
	}
	return nil
}

// charged is what a caller is charged under for an entry; false where nothing is asked for it.
func (c *chooser) charged(entry Entry, caller Caller) (charged, bool) {
	for _, choice := range c.choices(entry) {
		if choice.Policy != "" {
			if caller.Policy == Anonymous || caller.Policy == ForwardedBearer {
				caller.Identity, caller.Key = unverified, callgate.Key{}
			}
			return c.under(choice.Policy, caller, entry), true
		}
		if policy, ok := choice.ByClass[caller.Policy]; ok {
			return c.under(policy, caller, entry), true
		}
	}
	if _, ok := c.others[entry.Method]; ok {
		return charged{}, false
	}
	return charged{caller.Policy, caller.Identity, caller.Key, c.tool(caller.Policy, entry)}, true
}

// choices are those that may have something to say; the first that says it of the caller's class
// decides.
func (c *chooser) choices(entry Entry) []PolicyChoice {
	if entry.Method != MeteredMethod {
		if choice, ok := c.others[entry.Method]; ok {
			return []PolicyChoice{choice}
		}
		return nil
	}
	var choices []PolicyChoice
	if entry.IsContinuation && c.continuations != nil {
		choices = append(choices, *c.continuations)
	}
	if choice, ok := c.tools[entry.Tool]; ok && entry.Tool != "" {
		choices = append(choices, choice)
	}
	return choices
}

func (c *chooser) under(policy string, caller Caller, entry Entry) charged {
	found := charged{policy: policy, tool: c.tool(policy, entry)}
	if c.perCaller[policy] {
		if caller.isNobody() {
			caller.Identity = unverified
		}
		found.caller, found.key = caller.Identity, caller.Key
	}
	return found
}

// tool is whose state is charged: each tool's for its own calls; where none is kept, one for all.
func (c *chooser) tool(policy string, entry Entry) string {
	switch {
	case !c.perTool[policy]:
		return ""
	case entry.Tool == "":
		return unnamedTool
	}
	return entry.Tool
}

func namesOf(policies map[string]callgate.Policy) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		names = append(names, fmt.Sprintf("%q", name))
	}
	return strings.Join(names, ", ")
}

// optionError says what is wrong with an option of a middleware.
func optionError(field, format string, args ...any) error {
	return &callgate.ConfigError{Field: field, Message: field + fmt.Sprintf(format, args...)}
}
