module callgate.dev/callgate/benches/peers

go 1.26.0

require (
	callgate.dev/callgate v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	golang.org/x/time v0.16.0
)

replace callgate.dev/callgate => ../../../ffi/go
