//go:build !linux || !amd64 || !cgo || !go1.26 || go1.27 || callgate_cgo

package direct

import "unsafe"

// IsBuilt is false: there is no Call here.
const IsBuilt = false

// Call is never called.
func Call(unsafe.Pointer, unsafe.Pointer) int32 { panic("callgate: direct calls are not built") }
