//go:build !cgo

package callgate

// Without cgo there is no engine: this stops the build with a name that says so.
var _ = this_package_needs_cgo_set_CGO_ENABLED_to_1_and_install_a_C_compiler
