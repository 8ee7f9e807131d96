// Command peers is callgate and its peers in Go, a subject in a process. README.md, one folder up, says
// what is measured and what the program does.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

const batch = 20_000

type subject struct {
	name    string
	threads int
	build   func(verdict string, callers []string) (deciders, error)
}

// deciders makes for each thread what decides about the caller of a number.
type deciders func() func(caller int) bool

var subjects = []subject{
	{"callgate", 1, newCallgate},
	{"mutex, map of rate.Limiter", 1, newLimiters},
	{"go-limiter", 1, newStore},
	{"callgate", 2, newCallgate},
	{"mutex, map of rate.Limiter", 2, newLimiters},
	{"go-limiter", 2, newStore},
}

func main() {
	log.SetFlags(0)
	if len(os.Args) == 1 {
		list()
		return
	}
	if len(os.Args) != 5 {
		log.Fatal("usage: peers [SUBJECT THREADS CALLERS VERDICT]")
	}
	threads, count := number(os.Args[2]), number(os.Args[3])
	name, verdict := os.Args[1], os.Args[4]
	for _, subject := range subjects {
		if subject.name == name && subject.threads == threads {
			serve(subject, count, verdict)
			return
		}
	}
	log.Fatalf("no subject %q with %d threads", name, threads)
}

func list() {
	var listed [][2]any
	for _, subject := range subjects {
		listed = append(listed, [2]any{subject.name, subject.threads})
	}
	if err := json.NewEncoder(os.Stdout).Encode(listed); err != nil {
		log.Fatal(err)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

// serve times a batch for each line of standard input, which seeds the draw of its callers.
func serve(subject subject, count int, verdict string) {
	callers := make([]string, count)
	for n := range callers {
		callers[n] = fmt.Sprintf("user:%d", n)
	}
	decider, err := subject.build(verdict, callers)
	if err != nil {
		log.Fatal(err)
	}
	check(decider(), count, verdict)
	var decides []func(int) bool
	for range subject.threads {
		decides = append(decides, decider())
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(timeBatch(decides, count, uint64(number(lines.Text()))))
	}
}

// check sees that first calls are admitted, and later ones as the verdict says.
func check(decide func(int) bool, count int, verdict string) {
	for caller := range count {
		if !decide(caller) {
			log.Fatal("a first call is refused")
		}
	}
	for caller := range min(count, 100) {
		if decide(caller) != (verdict == "admit") {
			log.Fatal("a second call is decided wrongly")
		}
	}
}

// timeBatch has each thread decide about callers of its own draw, and returns the nanoseconds that one
// decision takes as each of them sees it.
func timeBatch(decides []func(int) bool, count int, seed uint64) float64 {
	drawn := make([][]int32, len(decides))
	for thread := range decides {
		draw := rand.New(rand.NewPCG(seed, uint64(thread)))
		drawn[thread] = make([]int32, batch)
		for n := range drawn[thread] {
			drawn[thread][n] = draw.Int32N(int32(count))
		}
	}
	if len(decides) == 1 {
		started := time.Now()
		decideAll(decides[0], drawn[0])
		return float64(time.Since(started)) / batch
	}
	var all sync.WaitGroup
	started := time.Now()
	for thread, decide := range decides {
		all.Go(func() { decideAll(decide, drawn[thread]) })
	}
	all.Wait()
	return float64(time.Since(started)) / batch
}

func decideAll(decide func(int) bool, callers []int32) {
	for _, caller := range callers {
		decide(int(caller))
	}
}
