//go:build linux && cgo && go1.26 && !go1.27 && !callgate_cgo

package direct

import "unsafe"

// IsBuilt tells whether Call may be called.
const IsBuilt = true

// Call calls the C function int32_t function(void *argument). The argument may hold pointers to Go
// memory, the stack included: nothing is moved while it runs.
//
//go:noescape
func Call(function, argument unsafe.Pointer) int32
