// Package contract is what the servers of both SDKs have in common: README.md, one folder up, says what
// they do.
package contract

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"callgate.dev/callgate"
)

// Server is one of them.
type Server struct {
	Gate    *callgate.Gate
	Guarded *Guarded
	Record  *Record
	// The endpoints, behind callgate.
	PublicMCP, PrivateMCP, GuardedMCP http.Handler
}

// Main makes a server whose endpoints these add, and runs it.
func Main(add ...func(*Server) error) {
	if err := run(add); err != nil {
		log.Fatal(err)
	}
}

func run(add []func(*Server) error) error {
	gate, err := newGate()
	if err != nil {
		return err
	}
	guarded, err := newGuarded()
	if err != nil {
		return err
	}
	s := &Server{Gate: gate, Guarded: guarded, Record: newRecord()}
	for _, add := range add {
		if err := add(s); err != nil {
			return err
		}
	}
	return s.serve()
}

// serve answers on a free port of the loopback interface, prints the base URL, and ends when the standard
// input does.
func (s *Server) serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.PublicMCP)
	mux.Handle("/private/mcp", s.PrivateMCP)
	mux.Handle("/guarded/mcp", s.GuardedMCP)
	mux.HandleFunc("GET /stats", s.stats)
	mux.HandleFunc("POST /guarded/advance", s.advance)
	mux.HandleFunc("POST /guarded/release", s.release)
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

func (s *Server) advance(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err != nil {
		http.Error(w, "seconds must be a whole number", http.StatusBadRequest)
		return
	}
	s.Guarded.Time.advance(time.Duration(seconds) * time.Second)
	answer(w, struct{}{})
}

func (s *Server) release(w http.ResponseWriter, _ *http.Request) {
	s.Guarded.release()
	answer(w, struct{}{})
}
