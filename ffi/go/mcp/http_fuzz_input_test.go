package mcp_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// What an input of FuzzHTTP means.

// fuzzed is an input: choices, one a byte, and bytes that go where they are chosen. Where the choices end, 0
// is chosen, which is the plain case.
type fuzzed struct {
	choices, bytes []byte
}

// below is the next choice out of so many, 256 at most.
func (f *fuzzed) below(count int) int {
	if len(f.choices) == 0 {
		return 0
	}
	chosen := int(f.choices[0]) % count
	f.choices = f.choices[1:]
	return chosen
}

func (f *fuzzed) among(items []string) string { return items[f.below(len(items))] }

// isRare is chosen once in so many times.
func (f *fuzzed) isRare(in int) bool { return f.below(in) == in-1 }

func (f fuzzed) server() string { return f.among(fuzzedServers) }

// raw is what goes over the wire, to a target in a session: one of the requests of this package, or the
// bytes, changed here and there.
func (f fuzzed) raw(target, session string) []byte {
	server := f.among(fuzzedServers)
	s := shaped(server)
	if strings.HasSuffix(server, "-session") {
		s.header.Set("Mcp-Session-Id", ofServer)
	}
	body, changes := requests[f.among(spelled)](s)
	maps.Copy(s.header, changes)
	for range f.below(3) {
		f.changeField(s.header)
	}
	if f.isRare(20) {
		body = string(f.bytes)
	}
	for range f.below(4) {
		body = f.edited(body)
	}
	method := http.MethodPost
	if f.isRare(20) {
		method = f.among(methods)
	}
	if s.header.Get("Mcp-Session-Id") == ofServer {
		s.header.Set("Mcp-Session-Id", session)
	}
	_, isChunked := s.header["Chunked"]
	s.header.Del("Chunked")
	var raw bytes.Buffer
	fmt.Fprintf(&raw, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n", method, target)
	_ = s.header.Write(&raw)
	switch {
	case isChunked || f.isRare(10):
		raw.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for chunk := range slices.Chunk([]byte(body), 1+f.below(20)) {
			fmt.Fprintf(&raw, "%x\r\n%s\r\n", len(chunk), chunk)
		}
		raw.WriteString("0\r\n\r\n")
	case f.isRare(40):
		fmt.Fprintf(&raw, "Content-Length: %d\r\n\r\n%s", len(body)+1, body)
	default:
		fmt.Fprintf(&raw, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	return raw.Bytes()
}

// spelled has the plain one first.
var spelled = func() []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(requests)), func(name string) bool { return name == "plain" })
	return append([]string{"plain"}, names...)
}()

// ofServer stands for the session that a server has opened.
const ofServer = "of the server"

// readRequest is nil for what net/http answers itself.
func readRequest(raw []byte) *http.Request {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return nil
	}
	r.RemoteAddr = "127.0.0.1:1"
	return r
}

func readAgain(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }

// parts are strings, numbers and words, and the bytes between them.
var parts = regexp.MustCompile(`(?s)"(?:[^"\\]|\\.)*"|[-\w.+]+|.`)

// edit is which parts of a body it is for, and what it puts there: instead, or after it. Most leave JSON what
// it is.
type edit struct {
	fits  func(parts []string, n int) bool
	keeps bool
	puts  []string
}

var edits = []edit{
	{isMethod, false, names},
	{isOfMethod, false, values},
	{isOpening, true, members},
	{isOpening, true, members},
	{isOpening, true, members},
	{isName, false, names},
	{isValue, false, values},
	{isValue, false, values},
	{isMark, true, []string{" ", "\t", "\r\n", "\n"}},
	{isAny, false, slices.Concat(tokens, members)},
}

func isAny([]string, int) bool { return true }

func isMethod(parts []string, n int) bool { return parts[n] == `"method"` }

func isOfMethod(parts []string, n int) bool { return n >= 2 && isMethod(parts, n-2) }

func isOpening(parts []string, n int) bool { return parts[n][0] == '{' }

func isName(parts []string, n int) bool {
	return parts[n][0] == '"' && n+1 < len(parts) && parts[n+1][0] == ':'
}

func isValue(parts []string, n int) bool { return !isMark(parts, n) && !isName(parts, n) }

func isMark(parts []string, n int) bool {
	return len(parts[n]) == 1 && strings.ContainsAny("{}[],:", parts[n])
}

var members = []string{
	`"method":"tools/call"`, `"method":"ping"`, `"method":null`, `"\u006dethod":"tools/call"`, `"Method":"tools/call"`,
	`"METHOD":"ping"`, `"jsonrpc":"2.0"`, `"id":1`, `"id":null`, `"id":"a"`, `"id":1.5`, `"ID":2`, `"params":{}`, `"params":[]`,
	`"params":null`, `"Params":{"name":"work"}`, `"paramſ":{}`, `"name":"work"`, `"Name":"work"`, `"name":"other"`,
	`"arguments":{}`, `"arguments":[]`, `"_meta":{}`, `"result":{}`, `"error":{}`, `"error":{"code":1,"message":""}`,
	`"inputResponses":{}`, `"":0`, `"x":"\ud800"`, "\"\xed\xa0\x80\":1", "\"\xff\":1", `"x":1e999`, `"x":-0`, `"x":"\\"`, `"x":"\",\"method\":\"ping"`, `"x\"":"}"`,
	`"x":` + strings.Repeat("9", 400), `"x":` + strings.Repeat("[", 150) + strings.Repeat("]", 150),
}

var names = []string{
	`"method"`, `"\u006dethod"`, `"Method"`, `"METHOD"`, `"method "`, `"id"`, `"ID"`, `"params"`, `"Params"`, `"paramſ"`,
	`"name"`, `"Name"`, `"arguments"`, `"jsonrpc"`, `"JSONRPC"`, `"result"`, `"error"`,
}

var values = []string{
	`"tools/call"`, `"tools\/call"`, `"tools\u002fcall"`, `"\u0074ools/call"`, `"Tools/Call"`, `"tools/call "`,
	`"tools/call\u0000"`, "\"tools/call\xff\"", `"ping"`, `"initialize"`, `"tools/list"`, `"notifications/initialized"`,
	`"notifications/cancelled"`, `"logging/setLevel"`, `"work"`, `"other"`, `"2.0"`, `"1.0"`, `"a"`, `""`, `0`, `1`, `-1`, `1.5`,
	`9007199254740993`, `1e999`, `-0`, `null`, `true`, `{}`, `[]`, `["tools/call"]`, `{"method":"tools/call"}`,
}

var tokens = []string{
	``, `{`, `}`, `[`, `]`, `,`, `:`, `"`, `\`, `\u0000`, "\x00", ` `, "\r\n", "\f", "\u00a0", `NaN`, `/**/`, "\ufeff", "\xff\xfe",
	`{"jsonrpc":"2.0","id":9,"method":"ping"}`, strings.Repeat("[", 150), strings.Repeat("]", 150),
}

// fields are those that servers go by, with values for each.
var fields = map[string][]string{
	"Content-Type": {"application/json", "application/json;", "application/json; charset=utf-8", "application/json; charset=utf-16",
		"application/json; a=1; a=2", `application/json; a="`, "application/json ;", "APPLICATION/JSON", "\u00a0application/json",
		"text/plain", "text/plain; a=application/json", "application/jsonrequest", "application/vnd.api+json", "*/*", "",
		"text/plain, application/json", "application/json, text/plain"},
	"Accept":               {"application/json, text/event-stream", "application/json", "text/event-stream", "*/*"},
	"Content-Encoding":     {"gzip", "identity", "GZIP", "identity, gzip", ""},
	"Mcp-Protocol-Version": {modernVersion, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "1999-01-01", ""},
	"Mcp-Method":           {"tools/call", "tools/list", "ping", "TOOLS/CALL"},
	"Mcp-Name":             {"work", "other"},
	"Mcp-Session-Id":       {"0123456789abcdef", ""},
	"Authorization":        {"Bearer abc", "Basic YTpi"},
	"X-Api-Key":            {"abc"},
	"Origin":               {"http://127.0.0.1:8000", "http://elsewhere.example", "null"},
	"Expect":               {"100-continue"},
}

var fieldNames = slices.Sorted(maps.Keys(fields))

var methods = []string{"GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "QUERY", "post"}

// changeField leaves out what net/http answers itself.
func (f *fuzzed) changeField(header http.Header) {
	name := f.among(fieldNames)
	values := fields[name]
	if f.isRare(10) {
		values = []string{notInValues.ReplaceAllString(string(f.bytes), "")}
	}
	switch value := f.among(values); f.below(5) {
	case 0:
		header.Del(name)
	case 1:
		header.Add(name, value)
	default:
		header.Set(name, value)
	}
}

var notInValues = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x7f]`)

// edited is the body with an edit, or a batch of it.
func (f *fuzzed) edited(body string) string {
	kind := f.below(len(edits) + 2)
	if kind == len(edits) {
		return batchOf(body, f.below(4), f.isRare(4))
	}
	e := edits[min(kind, len(edits)-1)]
	if kind > len(edits) {
		e.puts = []string{string(f.bytes)}
	}
	all := parts.FindAllString(body, -1)
	var places []int
	for n := range all {
		if e.fits(all, n) {
			places = append(places, n)
		}
	}
	if len(places) == 0 {
		return body
	}
	place, comes := places[f.below(min(len(places), 256))], f.among(e.puts)
	if e.keeps {
		if strings.Contains(comes, ":") && place+1 < len(all) && all[place+1] != "}" {
			comes += ","
		}
		comes = all[place] + comes
	}
	all[place] = comes
	return strings.Join(all, "")
}

func batchOf(body string, count int, withPing bool) string {
	var messages []string
	for id := range count {
		// The official SDK runs but one of those with the same id.
		messages = append(messages, strings.Replace(body, `"id":1,`, fmt.Sprintf(`"id":%d,`, id), 1))
	}
	if withPing {
		messages = append(messages, `{"jsonrpc":"2.0","id":9,"method":"ping"}`)
	}
	return "[" + strings.Join(messages, ",") + "]"
}
