package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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
	texts, isBatch := split(body)
	calls := &toolCalls{}
	for _, text := range texts {
		entry, id, err := readEntry(text, methods)
		if err != nil {
			return nil, err
		}
		if entry == nil {
			continue
		}
		calls.entries = append(calls.entries, *entry)
		if !isBatch {
			calls.id = echoedID(id)
		}
	}
	if len(calls.entries) == 0 {
		return nil, nil
	}
	return calls, nil
}

// split gives the messages of a valid JSON text.
func split(body []byte) (messages []json.RawMessage, isBatch bool) {
	body = bytes.TrimSpace(body)
	if body[0] == '[' && json.Unmarshal(body, &messages) == nil {
		return messages, true
	}
	return []json.RawMessage{body}, false
}

// readEntry gives the metered entry in a message, and the message's id; no entry where it calls none
// of methods.
func readEntry(text json.RawMessage, methods map[string]bool) (*Entry, json.RawMessage, *unreadableMessage) {
	message, err := readObject(text, "message", "jsonrpc", "id", "method", "params", "result", "error")
	if message == nil || err != nil {
		return nil, nil, err
	}
	method, ok := textOf(message["method"])
	if !ok || !methods[method] {
		return nil, nil, nil
	}
	entry := &Entry{Method: method}
	params, err := readObject(message["params"], "parameters", "name", "inputResponses")
	if err != nil {
		return nil, nil, err
	}
	if method == MeteredMethod {
		entry.Tool, _ = textOf(params["name"])
		responses := params["inputResponses"]
		entry.IsContinuation = responses != nil && !bytes.Equal(responses, []byte("null"))
	}
	return entry, message["id"], nil
}

// readObject gives the members of a JSON object by name, and nil for any other value. A name that is
// there twice is an error, however it is spelled, and so is one of names in other capitals: readers
// disagree on which value counts.
func readObject(text json.RawMessage, what string, names ...string) (map[string]json.RawMessage, *unreadableMessage) {
	if len(text) == 0 || text[0] != '{' {
		return nil, nil
	}
	members := map[string]json.RawMessage{}
	seen := map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	// The text is known to be valid, so nothing can fail on the way.
	_, _ = decoder.Token()
	for decoder.More() {
		token, _ := decoder.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, &unreadableMessage{parseError, "Parse error: the body is not valid JSON"}
		}
		if seen[folded(name)] {
			return nil, &unreadableMessage{invalidRequest, "Invalid request: a name occurs twice in the " + what}
		}
		seen[folded(name)] = true
		members[name] = value
	}
	for _, name := range names {
		if _, ok := members[name]; !ok && seen[folded(name)] {
			return nil, &unreadableMessage{invalidRequest, fmt.Sprintf(
				"Invalid request: the name %q in the %s is spelled in other capitals", name, what)}
		}
	}
	return members, nil
}

// folded is one spelling for all that a reader might match with name whatever its capitals. Both steps
// are needed: U+017F is an S in capitals only, and U+212A a K in small letters only.
func folded(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// textOf is the value of a JSON string, and false for anything else.
func textOf(text json.RawMessage) (value string, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", false
	}
	return value, json.Unmarshal(text, &value) == nil
}

// echoedID is an id if JSON-RPC can carry it, with its type: 7 and "7" are two different ids. Else it
// is nil.
func echoedID(id json.RawMessage) json.RawMessage {
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
