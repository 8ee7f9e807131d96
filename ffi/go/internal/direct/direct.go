// Package direct calls C functions without telling Go's scheduler, as the runtime itself calls those that
// are sure to return at once: on the thread's own stack, for a third of what a cgo call costs. It is for
// functions that neither block nor call back; while one runs, its goroutine can't be preempted.
//
// It knows a function inside the runtime, so it is built only for versions of Go that it was tested with,
// and never where the build tag callgate_cgo forbids it; elsewhere IsBuilt is false, and callers take cgo.
package direct
