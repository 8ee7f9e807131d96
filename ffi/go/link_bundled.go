//go:build !callgate_system

package callgate

// The library that the module brings in lib/; build.sh puts it there in a clone.

// #cgo linux,amd64 LDFLAGS: ${SRCDIR}/lib/linux_amd64/libcallgate.a
// #cgo linux,arm64 LDFLAGS: ${SRCDIR}/lib/linux_arm64/libcallgate.a
// #cgo darwin,arm64 LDFLAGS: ${SRCDIR}/lib/darwin_arm64/libcallgate.a
// #cgo darwin,amd64 LDFLAGS: ${SRCDIR}/lib/darwin_amd64/libcallgate.a
import "C"
