//go:build linux && cgo && go1.26 && !go1.27 && !callgate_cgo

#include "textflag.h"

// func Call(function, argument unsafe.Pointer) int32
// The arguments and the result lie as those of runtime.asmcgocall do.
TEXT ·Call(SB), NOSPLIT, $0-20
	JMP runtime·asmcgocall(SB)
