module callgate.dev/callgate/verify/peers

go 1.26.0

require (
	callgate.dev/callgate v0.0.0
	golang.org/x/time v0.16.0
)

replace callgate.dev/callgate => ../../ffi/go
