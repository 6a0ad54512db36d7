package pickle

import (
	"errors"
	"fmt"
)

// The classes of errors of Decode. Every error of Decode wraps exactly one class; the other classes
// are unexported.
var (
	// errPickle is the class of every refusal by Decode.
	errPickle = errors.New("pickle refused")
	// ErrMalformed means that the bytes are not a pickle, for example because of truncation, a
	// stack underflow, arguments of the wrong type, or trailing bytes.
	ErrMalformed = errors.New("pickle: malformed")
	// errForbidden means an opcode, a global or a dtype that is not on the
	// allow-list.
	errForbidden = errors.New("pickle: not on the allow-list")
	// ErrProtocol0 means that the body contains an opcode that only protocol 0 writes.
	ErrProtocol0 = errors.New("pickle: protocol 0 is not supported")
	// errCycle means a value that contains itself.
	errCycle = errors.New("pickle: value contains itself")
	// ErrLimit means that the body exceeds a limit of Limits, such as a memo bomb.
	ErrLimit = errors.New("pickle: over a limit")
)

// errEncode is the class of every error of Encode.
var errEncode = errors.New("pickle: cannot encode")

// errType means that a decoded value is not of the Python type which an
// accessor such as Strings or ByteSlices was asked for.
var errType = errors.New("pickle: wrong type")

// Error describes where and why a pickle was refused.
type Error struct {
	// Class is ErrMalformed, ErrProtocol0, ErrLimit, or an unexported error for a forbidden opcode,
	// global or dtype or for a cycle.
	Class error
	// Op is pickletools' name of the opcode, empty if the fault is in the finished value or in the
	// body as a whole.
	Op string
	// Offset is the position of the opcode in the body, in bytes.
	Offset int
	// Detail describes the fault and what to do about it.
	Detail string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Op == "" {
		return fmt.Sprintf("%v: %s", e.Class, e.Detail)
	}
	return fmt.Sprintf("%v: %s at byte %d: %s", e.Class, e.Op, e.Offset, e.Detail)
}

// Unwrap returns the errors that errors.Is matches, including Class.
func (e *Error) Unwrap() []error { return []error{errPickle, e.Class} }

// fail refuses the pickle at the opcode being read.
func (d *decoder) fail(class error, format string, args ...any) error {
	return &Error{Class: class, Op: opName(d.op), Offset: d.at, Detail: fmt.Sprintf(format, args...)}
}

func (d *decoder) malformed(format string, args ...any) error {
	return d.fail(ErrMalformed, format, args...)
}

func (d *decoder) forbidden(format string, args ...any) error {
	return d.fail(errForbidden, format, args...)
}
