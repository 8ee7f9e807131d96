// Package direct calls C functions without telling Go's scheduler, as the runtime itself calls those that
// are sure to return at once: on the thread's own stack, for a tenth of what a cgo call costs. It is for
// functions that neither block nor call back; while one runs, its goroutine can't be preempted.
//
// It knows a function inside the runtime, so it is built only where the build tag callgate_direct asks for
// it, and for versions of Go that it was tested with; elsewhere IsBuilt is false, and callers take cgo.
package direct
