package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MeteredMethod is the method that is always metered.
const MeteredMethod = "tools/call"

const (
	parseError     = -32700
	invalidRequest = -32600
)

// Entry is one metered message, or one of a batch.
type Entry struct {
	// Method is the message's method; empty means [MeteredMethod].
	Method string
	// Tool is empty where a call names none (the server will turn it away, but a malformed call is
	// not a free one), and for every other method.
	Tool string
	// IsContinuation: the call says that it goes on with one of several rounds, which anybody can
	// say.
	IsContinuation bool
}

// toolCalls is the metered part of one JSON-RPC message or batch.
type toolCalls struct {
	entries []Entry
	// id is what a refusal echoes, as it was spelled: nil for a batch, and where the message has no
	// valid id.
	id json.RawMessage
	// isRequest: an entry has an id, whether it can be echoed or not, and is no notification. The SDK
	// mcp-go takes any id.
	isRequest bool
}

// unreadableMessage says that a body is not one unambiguous JSON text, so that what a server would
// run is not known. It never quotes the body, which may hold secrets.
type unreadableMessage struct {
	code    int
	message string
}

// readCalls finds the entries of a body that call one of methods; nil without any.
//
// The SDKs of Go have two readers, and they differ. The official one takes names as they are spelled,
// ignores what follows the first JSON text, and runs batches; that of mcp-go takes names in any
// capitals, and the last of those that are there. So the rule here is the part on which every reader
// agrees: what this function can read, any of them reads in the same way or rejects; what it cannot
// read is refused instead of guessed at.
//
// An entry counts by its method alone, whatever else is wrong with it, so that there is no
// malformation that one reader forgives and that is not counted here.
func readCalls(body []byte, methods map[string]bool) (*toolCalls, *unreadableMessage) {
	if !utf8.Valid(body) {
		return nil, &unreadableMessage{parseError, "Parse error: the body is not UTF-8"}
	}
	if !json.Valid(body) {
		return nil, &unreadableMessage{parseError, "Parse error: the body is not valid JSON"}
	}
	calls := &toolCalls{}
	var unreadable *unreadableMessage
	body = bytes.TrimSpace(body)
	if body[0] == '[' {
		elements(body, func(message []byte) bool {
			_, unreadable = calls.read(message, methods)
			return unreadable == nil
		})
	} else {
		calls.id, unreadable = calls.read(body, methods)
	}
	if unreadable != nil || len(calls.entries) == 0 {
		return nil, unreadable
	}
	return calls, nil
}

// read takes in one message; its answer is the message's id, as far as it can be echoed.
func (c *toolCalls) read(message []byte, methods map[string]bool) (json.RawMessage, *unreadableMessage) {
	if message[0] != '{' {
		return nil, nil
	}
	found, unreadable := membersOf(message, "message", "id", "params", "method", "jsonrpc", "result", "error")
	if unreadable != nil {
		return nil, unreadable
	}
	id, params := found[0], found[1]
	method, ok := textOf(found[2])
	if !ok || !methods[method] {
		return nil, nil
	}
	entry := Entry{Method: method}
	if len(params) > 0 && params[0] == '{' {
		if unreadable := entry.read(params); unreadable != nil {
			return nil, unreadable
		}
	}
	c.entries = append(c.entries, entry)
	c.isRequest = c.isRequest || len(id) > 0 && string(id) != "null"
	return echoedID(id), nil
}

func (e *Entry) read(params []byte) *unreadableMessage {
	found, unreadable := membersOf(params, "parameters", "name", "inputResponses")
	if unreadable == nil && e.Method == MeteredMethod {
		e.Tool, _ = textOf(found[0])
		e.IsContinuation = found[1] != nil && found[1][0] != 'n' // no null
	}
	return unreadable
}

// membersOf gives, in the order of names, those members of an object that have them. A name that is
// there twice is an error, and so is one of names in other capitals (as encoding/json matches them, the
// long s of Unicode included): readers disagree on which value counts.
func membersOf(object []byte, what string, names ...string) ([][]byte, *unreadableMessage) {
	found := make([][]byte, len(names))
	var seen nameSet
	var unreadable *unreadableMessage
	members(object, func(spelled, value []byte) bool {
		name, _ := textOf(spelled)
		if !seen.add(name) {
			unreadable = &unreadableMessage{invalidRequest, "Invalid request: a name occurs twice in the " + what}
			return false
		}
		for n, known := range names {
			switch {
			case name == known:
				found[n] = value
			case strings.EqualFold(name, known):
				unreadable = &unreadableMessage{invalidRequest, fmt.Sprintf(
					"Invalid request: the name %q in the %s is spelled in other capitals", known, what)}
			}
		}
		return unreadable == nil
	})
	return found, unreadable
}

// nameSet is cheap for the few names that objects have, and still good for many.
type nameSet struct {
	few  []string
	many map[string]bool
}

const fewNames = 16

// add tells whether the name is new.
func (s *nameSet) add(name string) bool {
	if s.many == nil && len(s.few) < fewNames {
		isNew := !slices.Contains(s.few, name)
		s.few = append(s.few, name)
		return isNew
	}
	if s.many == nil {
		s.many = map[string]bool{}
		for _, known := range s.few {
			s.many[known] = true
		}
	}
	isNew := !s.many[name]
	s.many[name] = true
	return isNew
}

// echoedID is an id if JSON-RPC can carry it, with its type: 7 and "7" are two different ids. Else it
// is nil.
func echoedID(id []byte) json.RawMessage {
	if len(id) == 0 {
		return nil
	}
	switch first := id[0]; {
	case first == '"':
		return id
	case first == '-' || first >= '0' && first <= '9':
		number, err := strconv.ParseFloat(string(id), 64)
		if err != nil || math.IsInf(number, 0) {
			return nil
		}
		return id
	}
	return nil
}
