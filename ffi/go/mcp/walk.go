package mcp

import (
	"bytes"
	"encoding/json"
)

// walker goes through a JSON text that is known to be valid, without reading what nobody asks for: a
// client may make its bodies large, and what is slow to read costs everybody.
type walker struct {
	text []byte
	at   int
}

// elements calls each with the values of an array in order, until it answers false.
func elements(array []byte, each func(value []byte) bool) {
	w := walker{text: array, at: 1}
	for w.next() != ']' {
		if w.next() == ',' {
			w.at++
			w.next()
		}
		if !each(w.value()) {
			return
		}
	}
}

// members calls each with the names, as they are spelled, and values of an object in order, until it
// answers false.
func members(object []byte, each func(name, value []byte) bool) {
	w := walker{text: object, at: 1}
	for w.next() != '}' {
		if w.next() == ',' {
			w.at++
			w.next()
		}
		name := w.value()
		w.next()
		w.at++ // The colon.
		w.next()
		if !each(name, w.value()) {
			return
		}
	}
}

// next skips blanks, and is what comes then.
func (w *walker) next() byte {
	for {
		switch c := w.text[w.at]; c {
		case ' ', '\t', '\r', '\n':
			w.at++
		default:
			return c
		}
	}
}

// value is the value that begins here, and moves past it.
func (w *walker) value() []byte {
	start := w.at
	depth := 0
	for w.at < len(w.text) {
		switch w.text[w.at] {
		case '"':
			w.skipString()
		case '{', '[':
			depth++
			w.at++
			continue
		case '}', ']':
			depth--
			w.at++
		default:
			w.skipPlain()
		}
		if depth == 0 {
			break
		}
	}
	return w.text[start:w.at]
}

func (w *walker) skipString() {
	w.at++
	for w.text[w.at] != '"' {
		if w.text[w.at] == '\\' {
			w.at++
		}
		w.at++
	}
	w.at++
}

// skipPlain skips one character between values, or a number or a word.
func (w *walker) skipPlain() {
	rest := w.text[w.at:]
	if end := bytes.IndexAny(rest, ",:]}\" \t\r\n"); end > 0 {
		w.at += end
	} else if end < 0 {
		w.at = len(w.text)
	} else {
		w.at++
	}
}

// textOf is the value of a JSON string, and false for anything else.
func textOf(text []byte) (value string, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return "", false
	}
	if plain := text[1 : len(text)-1]; bytes.IndexByte(plain, '\\') < 0 {
		return string(plain), true
	}
	return value, json.Unmarshal(text, &value) == nil
}
