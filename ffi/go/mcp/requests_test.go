package mcp_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
	"unicode/utf16"
)

// a request is a body, and what it changes of the header.
type request func(s *served) (string, http.Header)

func withHeader(name string, values ...string) request {
	return func(s *served) (string, http.Header) {
		return s.message("1"), http.Header{name: values}
	}
}

func withBody(change func(string) string) request {
	return func(s *served) (string, http.Header) { return change(s.message("1")), nil }
}

func with(old, to string) request {
	return func(s *served) (string, http.Header) {
		body := s.message("1")
		if !strings.Contains(body, old) {
			s.t.Fatal("nothing to replace: ", old)
		}
		return strings.Replace(body, old, to, 1), nil
	}
}

func encoded(bigEndian bool) func(string) string {
	return func(text string) string {
		var to strings.Builder
		for _, unit := range utf16.Encode([]rune(text)) {
			pair := []byte{byte(unit), byte(unit >> 8)}
			if bigEndian {
				slices.Reverse(pair)
			}
			to.Write(pair)
		}
		return to.String()
	}
}

func gzipped(text string) string {
	var to bytes.Buffer
	writer := gzip.NewWriter(&to)
	_, _ = writer.Write([]byte(text))
	_ = writer.Close()
	return to.String()
}

const (
	method    = `"method":"tools/call"`
	arguments = `"arguments":{`
)

var requests = map[string]request{
	"plain":                                     withBody(func(text string) string { return text }),
	"content type with an empty parameter":      withHeader("Content-Type", "application/json;"),
	"content type with a charset":               withHeader("Content-Type", "application/json; charset=utf-8"),
	"content type with a wrong charset":         withHeader("Content-Type", "application/json; charset=utf-16"),
	"content type with a parameter twice":       withHeader("Content-Type", "application/json; a=1; a=2"),
	"content type with a bad parameter":         withHeader("Content-Type", `application/json; a="`),
	"content type in capitals":                  withHeader("Content-Type", "APPLICATION/JSON"),
	"content type missing":                      withHeader("Content-Type"),
	"content type empty":                        withHeader("Content-Type", ""),
	"content type of plain text":                withHeader("Content-Type", "text/plain"),
	"content type in a list, first":             withHeader("Content-Type", "application/json, text/plain"),
	"content type in a list, last":              withHeader("Content-Type", "text/plain, application/json"),
	"content type twice, json first":            withHeader("Content-Type", "application/json", "text/plain"),
	"content type twice, json last":             withHeader("Content-Type", "text/plain", "application/json"),
	"content type with a suffix":                withHeader("Content-Type", "application/jsonrequest"),
	"content type of a vendor":                  withHeader("Content-Type", "application/vnd.api+json"),
	"accept missing":                            withHeader("Accept"),
	"method escaped":                            with("tools/call", `tools\u002fcall`),
	"method escaped at its beginning":           with("tools/call", `\u0074ools/call`),
	"method with an escaped slash":              with("tools/call", `tools\/call`),
	"member name escaped":                       with(`"method"`, `"\u006dethod"`),
	"member name in capitals":                   with(`"method"`, `"Method"`),
	"member name in one capital":                with(`"method"`, `"methoD"`),
	"params in capitals":                        with(`"params"`, `"Params"`),
	"params with a long s":                      with(`"params"`, `"paramſ"`),
	"tool name in capitals":                     with(`"name"`, `"Name"`),
	"method respelled":                          with("tools/call", "Tools/Call"),
	"method with a space":                       with("tools/call", "tools/call "),
	"method with a null":                        with("tools/call", `tools/call\u0000`),
	"method in a list":                          with(method, `"method":["tools/call"]`),
	"method twice, the call last":               with(method, `"method":"ping",`+method),
	"method twice, the call first":              with(method, method+`,"method":"ping"`),
	"method twice, escaped":                     with(method, `"method":"ping","\u006dethod":"tools/call"`),
	"method twice, in capitals":                 with(method, `"method":"ping","Method":"tools/call"`),
	"method twice, in capitals, the call first": with(method, method+`,"METHOD":"ping"`),
	"method null and then the call":             with(method, `"method":null,`+method),
	"tool name twice":                           with(`"name":"work"`, `"name":"none","name":"work"`),
	"params twice":                              with(`"params"`, `"params":{"name":"none"},"params"`),
	"byte order mark":                           withBody(func(text string) string { return "\ufeff" + text }),
	"utf-16":                                    withBody(func(text string) string { return encoded(false)("\ufeff" + text) }),
	"utf-16 without a mark":                     withBody(encoded(false)),
	"utf-16, the other way round":               withBody(encoded(true)),
	"encoded surrogate":                         with(arguments, "\"\xed\xa0\x80\":1,"+arguments),
	"invalid utf-8":                             with(arguments, "\"\xff\":1,"+arguments),
	"escaped surrogate":                         with(arguments, `"x":"\ud800",`+arguments),
	"not a number":                              with(arguments, `"x":NaN,`+arguments),
	"a comment":                                 with(arguments, "/**/"+arguments),
	"a trailing comma":                          with(arguments, `"x":[1,],`+arguments),
	"a control character":                       with(arguments, "\"x\":\"\x01\","+arguments),
	"white space around":                        withBody(func(text string) string { return " \r\n\t" + text + "\r\n " }),
	"other white space":                         withBody(func(text string) string { return "\f\v\u00a0" + text }),
	"trailing text":                             withBody(func(text string) string { return text + " {}" }),
	"another message before":                    withBody(func(text string) string { return `{"jsonrpc":"2.0","id":9,"method":"ping"}` + text }),
	"another message after":                     withBody(func(text string) string { return text + text }),
	"a null at the end":                         withBody(func(text string) string { return text + "\x00" }),
	"truncated":                                 withBody(func(text string) string { return text[:len(text)-1] }),
	"deep nesting":                              with(arguments, `"x":`+strings.Repeat("[", 5_000)+strings.Repeat("]", 5_000)+","+arguments),
	"deeper nesting":                            with(arguments, `"x":`+strings.Repeat("[", 50_000)+strings.Repeat("]", 50_000)+","+arguments),
	"large integer":                             with(arguments, `"x":`+strings.Repeat("9", 5_000)+","+arguments),
	"large exponent":                            with(arguments, `"x":1e999,`+arguments),
	"chunked":                                   withHeader("Chunked", "yes"),
	"compressed": func(s *served) (string, http.Header) {
		return gzipped(s.message("1")), http.Header{"Content-Encoding": {"gzip"}}
	},
	"compressed without saying so": withBody(gzipped),
	"said to be compressed":        withHeader("Content-Encoding", "gzip"),
	"id of a string":               with(`"id":1`, `"id":"1"`),
	"id of null":                   with(`"id":1`, `"id":null`),
	"id of a fraction":             with(`"id":1`, `"id":1.5`),
	"id of a boolean":              with(`"id":1`, `"id":true`),
	"id of a list":                 with(`"id":1`, `"id":[1]`),
	"id missing":                   with(`"id":1,`, ""),
	"id twice":                     with(`"id":1`, `"id":null,"id":1`),
	"version missing":              with(`"jsonrpc":"2.0",`, ""),
	"version of another kind":      with(`"jsonrpc":"2.0"`, `"jsonrpc":"1.0"`),
	"a result beside the method":   with(method, `"result":{},`+method),
	"an error beside the method":   with(method, `"error":{"code":1,"message":""},`+method),
	"a batch of one":               func(s *served) (string, http.Header) { return s.batch(1), nil },
	"a batch of 25":                func(s *served) (string, http.Header) { return s.batch(25), nil },
	"a batch without a version": func(s *served) (string, http.Header) {
		return s.batch(100), http.Header{"Mcp-Protocol-Version": nil, "Mcp-Method": nil, "Mcp-Name": nil}
	},
	"a batch of an older version": func(s *served) (string, http.Header) {
		return s.batch(100), http.Header{"Mcp-Protocol-Version": {"2024-11-05"}}
	},
	"a batch in a batch":           func(s *served) (string, http.Header) { return "[" + s.batch(2) + "]", nil },
	"a batch and more":             func(s *served) (string, http.Header) { return s.batch(2) + s.batch(2), nil },
	"a batch with others":          withBody(func(text string) string { return `[{"jsonrpc":"2.0","id":8,"method":"ping"},` + text + "]" }),
	"a batch in capitals":          withBody(func(text string) string { return "[" + strings.Replace(text, "method", "Method", 1) + "]" }),
	"a batch of the same id":       withBody(func(text string) string { return "[" + text + "," + text + "]" }),
	"a session nobody opened":      withHeader("Mcp-Session-Id", "0123456789abcdef"),
	"no session":                   withHeader("Mcp-Session-Id"),
	"protocol version unknown":     withHeader("Mcp-Protocol-Version", "1999-01-01"),
	"protocol version missing":     withHeader("Mcp-Protocol-Version"),
	"another method in the header": withHeader("Mcp-Method", "ping"),
}
