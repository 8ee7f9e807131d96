package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T, m *metered) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return server
}

// raw sends these bytes over a connection of its own.
func raw(t *testing.T, server *httptest.Server, text string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

const rawHead = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

func TestABodyThatCannotBeReadToItsEndIsA400(t *testing.T) {
	m := meter(t, nil, Options{})
	answer := raw(t, serve(t, m), rawHead+"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
	equal(t, "status", answer.StatusCode, 400)
	equal(t, "ran", m.app.ran(), 0)
}

func TestChunksAndTheirExtensionsAreReadAsTheServerReadsThem(t *testing.T) {
	m := meter(t, nil, Options{})
	body := call("work")
	chunked := fmt.Sprintf("%x;a=b\r\n%s\r\n%x\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n", 5, body[:5], len(body)-5, body[5:])
	answer := raw(t, serve(t, m), rawHead+"Transfer-Encoding: chunked\r\n\r\n"+chunked)
	equal(t, "status", answer.StatusCode, 200)
	equal(t, "body", m.app.bodies, []string{body})
	equal(t, "charged", m.charged(Anonymous, ""), uint64(1))
}

func TestAClientThatSendsTooMuchGetsToSeeTheAnswer(t *testing.T) {
	const most = 8 << 20 // more than what sockets hold
	m := meter(t, nil, Options{MaxBodyBytes: most})
	server := serve(t, m)
	body := strings.Repeat(" ", 2*most)
	for name, sent := range map[string]string{
		"declared": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body),
		"chunked":  fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body),
	} {
		answer := raw(t, server, rawHead+sent)
		equal(t, name, answer.StatusCode, 413)
	}
	equal(t, "ran", m.app.ran(), 0)
}

func TestTheHandlerStillHearsOfADisconnectAfterTheBody(t *testing.T) {
	m := meter(t, nil, Options{})
	gone := make(chan error, 1)
	started := make(chan struct{})
	m.app.answer = func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		gone <- r.Context().Err()
	}
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", serve(t, m).URL, strings.NewReader(call("work")))
	r.Header.Set("Content-Type", "application/json")
	go func() {
		<-started
		leave()
	}()
	if answer, err := http.DefaultClient.Do(r); err == nil {
		_ = answer.Body.Close()
		t.Error("there is an answer")
	}
	equal(t, "gone", <-gone, context.Canceled)
}

func TestAResponsePassesPartByPart(t *testing.T) {
	m := meter(t, nil, Options{MeterOptions: MeterOptions{UsageMeta: "used"}})
	goOn := make(chan struct{})
	m.app.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, part := range []string{"one\n", "two\n"} {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
			<-goOn
		}
	}
	answer, err := http.Post(serve(t, m).URL, "application/json", strings.NewReader(call("work")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewReader(answer.Body)
	for _, want := range []string{"one\n", "two\n"} {
		line, _ := lines.ReadString('\n')
		equal(t, "line", line, want)
		goOn <- struct{}{}
	}
}

func TestAResponseControllerReachesTheConnection(t *testing.T) {
	m := meter(t, nil, Options{})
	m.app.answer = func(w http.ResponseWriter, _ *http.Request) {
		controller := http.NewResponseController(w)
		if err := controller.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		if err := controller.Flush(); err != nil {
			t.Error(err)
		}
		conn, buffered, err := controller.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = buffered.WriteString("HTTP/1.1 299 Hijacked\r\nContent-Length: 0\r\n\r\n")
		_ = buffered.Flush()
		_ = conn.Close()
	}
	text := call("work")
	answer := raw(t, serve(t, m), fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", rawHead, len(text), text))
	_ = answer.Body.Close()
}

// withoutFlush is a writer that can't stream.
type withoutFlush struct{ http.ResponseWriter }

func TestAWriterThatCannotFlushIsNotSaidTo(t *testing.T) {
	m := meter(t, nil, Options{})
	m.app.answer = func(w http.ResponseWriter, _ *http.Request) {
		if _, canFlush := w.(http.Flusher); canFlush {
			t.Error("it says it can")
		}
		respond(w, 200)
	}
	m.ServeHTTP(withoutFlush{httptest.NewRecorder()}, postRequest(call("work")))
	equal(t, "ran", m.app.ran(), 1)
}
