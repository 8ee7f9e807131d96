//go:build callgate_system

package callgate

// The library that the system has, found by pkg-config: go build -tags callgate_system.

// #cgo CFLAGS: -DCALLGATE_SYSTEM
// #cgo pkg-config: callgate
import "C"
