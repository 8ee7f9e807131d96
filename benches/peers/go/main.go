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
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A turn is so many parts of so many decisions, each timed by itself.
const parts, part = 10, 2_000

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

// serve takes a turn for each line of standard input, which seeds the draw of its callers.
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
		fmt.Println(timeTurn(decides, count, uint64(number(lines.Text()))))
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

// timeTurn has each thread decide about callers of its own draw, and returns the nanoseconds that one
// decision takes as each of them sees it: the median of the turn's parts.
func timeTurn(decides []func(int) bool, count int, seed uint64) float64 {
	spent := make([]float64, parts)
	drawn := make([][]int32, len(decides))
	for n := range spent {
		for thread := range decides {
			draw := rand.New(rand.NewPCG(seed, uint64(n*len(decides)+thread)))
			drawn[thread] = make([]int32, part)
			for at := range drawn[thread] {
				drawn[thread][at] = draw.Int32N(int32(count))
			}
		}
		spent[n] = timePart(decides, drawn)
	}
	slices.Sort(spent)
	return (spent[(parts-1)/2] + spent[parts/2]) / 2
}

// timePart has the threads begin at once, each running: to wake one takes as long as 400 decisions.
func timePart(decides []func(int) bool, drawn [][]int32) float64 {
	var running atomic.Int32
	var spent atomic.Int64
	var done sync.WaitGroup
	for thread, decide := range decides {
		done.Go(func() {
			running.Add(1)
			for int(running.Load()) < len(decides) {
				runtime.Gosched()
			}
			started := time.Now()
			decideAll(decide, drawn[thread])
			spent.Add(int64(time.Since(started)))
		})
	}
	done.Wait()
	return float64(spent.Load()) / float64(len(decides)*part)
}

func decideAll(decide func(int) bool, callers []int32) {
	for _, caller := range callers {
		decide(int(caller))
	}
}
