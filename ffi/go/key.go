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
	of     uint64 // twice the gate's serial number, and 1 more where it is of a tool
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
	return Key{lo: uint64(made.lo), hi: uint64(made.hi), of: g.keysOf(domain == C.CALLGATE_DOMAIN_TOOL)}, nil
}

// put writes the key, where there is one. False where it is not one of those wanted, or where the
// identity is given beside it.
func (k *Key) put(to *engineKey, wanted uint64, identity string) bool {
	if k.of == 0 {
		return true
	}
	to.lo, to.hi = C.uint64_t(k.lo), C.uint64_t(k.hi)
	return k.of == wanted && identity == ""
}

// misplaced says what is wrong with the first key that could not be put where one is wanted.
func (g *Gate) misplaced(caller string, callerKey Key, tool string, toolKey Key) error {
	var unused engineKey
	key, field, other, identity := callerKey, "caller", "tool", caller
	if key.put(&unused, g.keysOf(false), identity) {
		key, field, other, identity = toolKey, "tool", "caller", tool
	}
	switch {
	case identity != "":
		return &CallError{Field: field, Message: "the " + field + " is there twice: as a key and as an identity"}
	case key.of>>1 != g.serial:
		return &CallError{Field: field, Message: "the key is one of another gate"}
	}
	return &CallError{Field: field, Message: "the key is one of a " + other + ", where a " + field + "'s is needed"}
}

func (g *Gate) keysOf(isTool bool) uint64 {
	if isTool {
		return g.serial<<1 | 1
	}
	return g.serial << 1
}
