package mcp

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

var onlyCalls = map[string]bool{MeteredMethod: true}

func TestAToolCallIsCountedWithItsToolAndID(t *testing.T) {
	calls, unreadable := readCalls([]byte(callWith("search", `"a-1"`, "")), onlyCalls)
	if unreadable != nil || calls == nil {
		t.Fatal(calls, unreadable)
	}
	equal(t, "entries", calls.entries, []Entry{{Method: MeteredMethod, Tool: "search"}})
	equal(t, "id", string(calls.id), `"a-1"`)
}

func count(t *testing.T, body string) int {
	t.Helper()
	calls, unreadable := readCalls([]byte(body), onlyCalls)
	if unreadable != nil {
		t.Fatalf("%s: %s", body, unreadable.message)
	}
	if calls == nil {
		return 0
	}
	return len(calls.entries)
}

func TestNoOtherMethodIsMeteredHoweverAlike(t *testing.T) {
	for _, method := range []string{"initialize", "ping", "tools/list", "resources/read", "prompts/get",
		"server/discover", "subscriptions/listen", "notifications/initialized", "notifications/cancelled",
		"completion/complete", "tools/call ", "Tools/Call", "TOOLS/CALL", "tools//call", "tools/calls", ""} {
		equal(t, method, count(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q}`, method)), 0)
	}
}

func TestWhatIsNoMessageHoldsNoCall(t *testing.T) {
	for _, body := range []string{"null", "true", "0", "1.5", `"tools/call"`, "[]", "{}", "[[]]", "[1,null]",
		`[[{"method":"tools/call"}]]`, `{"jsonrpc":"2.0","id":1,"result":{"method":"tools/call"}}`} {
		equal(t, body, count(t, body), 0)
	}
	for _, method := range []string{"null", "1", `["tools/call"]`, `{"tools/call":1}`, "true"} {
		equal(t, method, count(t, `{"jsonrpc":"2.0","id":1,"method":`+method+`}`), 0)
	}
}

func TestAnEscapedSpellingIsTheSame(t *testing.T) {
	for _, body := range []string{`{"method":"tools\/call"}`, `{"method":"tools\u002fcall"}`,
		`{"method":"\u0074ools/call"}`, `{"\u006dethod":"tools/call"}`} {
		equal(t, body, count(t, body), 1)
	}
}

func TestAStringEndsAtItsOwnQuote(t *testing.T) {
	for _, text := range []string{`\"`, `\\`, `\\\"`, `\",\"method\":\"ping`, `\"}]{[\"`, `\",\"method\":\"tools/call\",\"x\":\"`} {
		for _, member := range []string{`"x":"` + text + `"`, `"` + text + `":1`, `"x":["` + text + `",{"y":"` + text + `"}]`} {
			for method, calls := range map[string]int{MeteredMethod: 1, "ping": 0} {
				equal(t, member, count(t, `{`+member+`,"method":"`+method+`"}`), calls)
				equal(t, member, count(t, `[{"method":"`+method+`",`+member+`},{"method":"`+method+`"}]`), 2*calls)
			}
		}
	}
}

func TestABatchCountsOneForEachCallAndNothingForTheRest(t *testing.T) {
	body := batch(call("a"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, call("b"),
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`, `"noise"`, call("a"))
	calls, unreadable := readCalls([]byte(" \r\n\t"+body+"\n"), onlyCalls)
	if unreadable != nil {
		t.Fatal(unreadable.message)
	}
	var tools []string
	for _, entry := range calls.entries {
		tools = append(tools, entry.Tool)
	}
	equal(t, "tools", tools, []string{"a", "b", "a"})
	equal(t, "id", string(calls.id), "")
	equal(t, "without calls", count(t, batch(repeat(50, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)...)), 0)
	for _, size := range []int{1, 25, 1_000} {
		equal(t, "of any size", count(t, batch(repeat(size, call("a"))...)), size)
	}
}

func TestACallThatNamesNoToolStillCounts(t *testing.T) {
	for _, params := range []string{"null", "[]", `"work"`, "{}", `{"name":7}`, `{"name":""}`, `{"name":null}`} {
		calls, unreadable := readCalls([]byte(`{"id":1,"method":"tools/call","params":`+params+`}`), onlyCalls)
		if unreadable != nil || calls == nil {
			t.Fatal(params)
		}
		equal(t, params, calls.entries, []Entry{{Method: MeteredMethod}})
	}
	for _, extra := range []string{"", `,"jsonrpc":"1.0"`, `,"id":null`, `,"result":{}`} {
		equal(t, extra, count(t, `{"method":"tools/call","params":{"name":"work"}`+extra+`}`), 1)
	}
}

func TestAContinuationIsKnownByWhatItBrings(t *testing.T) {
	for params, is := range map[string]bool{"": false, `,"inputResponses":null`: false, `,"inputResponses":{}`: true} {
		calls, _ := readCalls([]byte(callWith("a", "1", params)), onlyCalls)
		equal(t, params, calls.entries[0].IsContinuation, is)
	}
}

func TestANameThatDecidesWhatRunsMustBeThereOnceAndInItsOwnLetters(t *testing.T) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call"}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}]`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`,
		// What encoding/json takes for the same name:
		`{"jsonrpc":"2.0","id":1,"Method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}`,
		`{"jsonrpc":"2.0","ID":1,"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","Params":{"name":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"},"param\u017f":{"name":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputresponses":{}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputRe\u017fponses":{}}}`,
		`[{"jsonrpc":"2.0","id":1,"Method":"tools/call"}]`,
	} {
		_, unreadable := readCalls([]byte(body), onlyCalls)
		if unreadable == nil || unreadable.code != invalidRequest {
			t.Errorf("%s: %v", body, unreadable)
		}
	}
}

func TestANameIsFoundTwiceAmongMany(t *testing.T) {
	for _, twice := range []int{0, 5, 15, 16, 17, 39} {
		body := `{"method":"tools/call"`
		for n := range 40 {
			body += fmt.Sprintf(`,"n%d":1`, n)
		}
		equal(t, "once", count(t, body+"}"), 1)
		_, unreadable := readCalls([]byte(fmt.Sprintf(`%s,"n%d":2}`, body, twice)), onlyCalls)
		if unreadable == nil || unreadable.code != invalidRequest {
			t.Error(twice, unreadable)
		}
	}
}

func TestNamesAmongTheArgumentsAreTheToolsOwnAffair(t *testing.T) {
	equal(t, "twice", count(t, callWith("a", "1", `,"x":{"x":1,"x":2,"X":3,"Method":4}`)), 1)
	equal(t, "not metered", count(t, `{"id":1,"method":"ping","params":{"name":1,"name":2}}`), 0)
}

func utf16Of(text string, littleEndian bool) string {
	var bytes strings.Builder
	for _, unit := range utf16.Encode([]rune(text)) {
		if littleEndian {
			bytes.WriteByte(byte(unit))
		}
		bytes.WriteByte(byte(unit >> 8))
		if !littleEndian {
			bytes.WriteByte(byte(unit))
		}
	}
	return bytes.String()
}

func TestWhatIsNotOneUTF8JSONTextIsRefused(t *testing.T) {
	const plain = `{"method":"tools/call"}`
	for _, body := range []string{"", " ", "{", `{"method":"tools/call"`, `{"method":"tools/call",}`,
		`{'method':'tools/call'}`, plain + " trailing", plain + "\x00", plain + `{"method":"ping"}`,
		`{"method":"ping"}` + plain, "\ufeff" + plain, utf16Of(plain, false), utf16Of(plain, true),
		utf16Of("\ufeff"+plain, true), "{\"method\":\"tools/call\",\"x\":\"\xed\xa0\x80\"}",
		"{\"method\":\"tools/call\",\"x\":\"\xff\"}", "{\"method\":\"tools/call\",\"x\":\"\x01\"}",
		`{"method":"tools/call","x":NaN}`, `{"method":"tools/call","x":01}`,
		`{"method":"tools/call","x":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}",
		"\x1f\x8b\x08\x00"} {
		_, unreadable := readCalls([]byte(body), onlyCalls)
		if unreadable == nil || unreadable.code != parseError {
			t.Errorf("%.60q: %v", body, unreadable)
		}
	}
}

func TestAnUnreadableBodyIsNotQuotedBack(t *testing.T) {
	for _, body := range []string{`{"token": "s3cret"`, `{"s3cret":1,"s3cret":2}`} {
		_, unreadable := readCalls([]byte(body), onlyCalls)
		if unreadable == nil || strings.Contains(unreadable.message, "s3cret") {
			t.Error(body, unreadable)
		}
	}
}

func TestAnIDIsEchoedWithItsType(t *testing.T) {
	for _, id := range []string{"7", `"7"`, "0", `""`, "1.5", "-3", "12345678901234567890123", `"ü\ud800"`} {
		equal(t, id, string(echoedID([]byte(id))), id)
	}
	for _, id := range []string{"", "null", "true", "false", "[]", "{}", "[1]", "1e999", "-1e999"} {
		equal(t, id, string(echoedID([]byte(id))), "")
	}
}

func FuzzReadingIsNeverAPanicAndNeverGuesses(f *testing.F) {
	for _, seed := range []string{call("a"), batch(call("a"), call("b")), `{"Method":"tools/call"}`, "[]", `"`, "{"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls, unreadable := readCalls(body, onlyCalls)
		if unreadable != nil {
			return
		}
		counted := 0
		if calls != nil {
			counted = len(calls.entries)
		}
		if read := readAsSDKs(body); read > counted {
			t.Errorf("%q: counted %d, and an SDK reads %d", body, counted, read)
		}
	})
}
