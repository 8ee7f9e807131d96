package callgate

// #include "crossing.h"
import "C"

import (
	"runtime"
	"unsafe"
)

// Key stands for an identity, made once for one that comes again: hashing costs as much as deciding.
// It is of one gate, plain data, and may be compared. The zero Key is none.
type Key struct {
	lo, hi uint64
	gate   uint64
	isTool bool
}

// IsZero tells whether it is no key.
func (k Key) IsZero() bool { return k == Key{} }

// Key makes the key of a caller. An empty identity is an error: all strangers would share it.
func (g *Gate) Key(caller string) (Key, error) {
	return g.key(caller, "caller", C.CALLGATE_DOMAIN_CALLER)
}

// ToolKey makes the key of a tool.
func (g *Gate) ToolKey(tool string) (Key, error) {
	return g.key(tool, "tool", C.CALLGATE_DOMAIN_TOOL)
}

func (g *Gate) key(identity, field string, domain uint32) (Key, error) {
	if err := g.usable(); err != nil {
		return Key{}, err
	}
	if identity == "" {
		return Key{}, &CallError{Field: field,
			Message: "an empty identity would be one that all strangers share: it must have 1 or more bytes"}
	}
	var made C.callgate_key
	bytes, size := bytesOf(identity)
	status := C.callgate_key_make(&g.handle, C.uint32_t(domain), unsafe.Pointer(bytes), size, &made)
	runtime.KeepAlive(g)
	if status != C.CALLGATE_OK {
		return Key{}, callError(status)
	}
	return Key{lo: uint64(made.lo), hi: uint64(made.hi), gate: g.serial, isTool: domain == C.CALLGATE_DOMAIN_TOOL}, nil
}

// check says what is wrong with a key where one of a caller, or of a tool, is wanted.
// The identity must not be given beside it.
func (k *Key) check(g *Gate, isTool bool, identity string) error {
	field, other := "caller", "tool"
	if isTool {
		field, other = other, field
	}
	if identity != "" {
		return &CallError{Field: field, Message: "the " + field + " is there twice: as a key and as an identity"}
	}
	if k.gate != g.serial {
		return &CallError{Field: field, Message: "the key is one of another gate"}
	}
	if k.isTool != isTool {
		return &CallError{Field: field, Message: "the key is one of a " + other + ", where a " + field + "'s is needed"}
	}
	return nil
}
