package subprocess

import (
	"errors"
	"fmt"
	"strings"
)

// The sentinels that the errors of a Pool wrap. The package knows no reward
// classes: its callers map these.
var (
	// ErrCrashed: the child that held the request died or answered garbage, twice,
	// or the request's input is remembered for having done so.
	ErrCrashed = errors.New("child process crashed")
	// ErrHost comes with ErrCrashed where the request is not to blame: a child was killed
	// from outside, or the one that replaced the last does not answer the canary either.
	ErrHost = errors.New("the fault is this machine's, not the request's")
	// ErrTimeout: the deadline passed before an answer; the child was killed.
	ErrTimeout = errors.New("child process deadline passed")
	// ErrWaiting comes with ErrTimeout where the deadline passed before a child was free.
	ErrWaiting = errors.New("the request ended while it waited for a child process")
	// ErrUnavailable: no child can be had: not started, stopping, or none starts. With
	// ErrHandler beside it, the handler of a new child says what is missing here.
	ErrUnavailable = errors.New("child processes unavailable")
	// ErrHandler: the child is well and its handler answered with an error, an
	// [Error] in the chain.
	ErrHandler = errors.New("child process reports")
	// ErrTooLarge: the request is beyond a bound of the configuration.
	ErrTooLarge = errors.New("request too large for a child process")
)

// Error is what a handler answered with, as it arrives in the parent: of the
// handler's own error only the text and the class cross the socket. Inline makes
// the same of it.
type Error struct {
	// Class is a short word by which callers tell errors apart, such as "memory";
	// "" if the handler gave none.
	Class string
	// Message is the text of the handler's error.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// TooLong is the class of the error that stands for an answer of more than
// MaxAnswer bytes.
const TooLong = "answer_too_long"

// maxClass bounds a class, which travels in the header.
const maxClass = 32

// classed is an error of a handler that has a class or is fatal.
type classed struct {
	error
	class string
	fatal bool
}

func (c *classed) Unwrap() error { return c.error }

// Classed gives an error of a handler a class, by which the parent can tell it
// from others with errors.As and an [Error]. Nil stays nil. The outermost class
// counts.
func Classed(class string, err error) error {
	if err == nil {
		return nil
	}
	return &classed{error: err, class: class}
}

// Fatal says that an error of a handler has spoilt its process, as a CUDA error
// does that every later call repeats. The child answers with it and ends; the
// parent replaces the child and treats the request as after a crash: it is tried
// once more on another child, and fails with [ErrCrashed] and both messages the
// second time. Nil stays nil.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &classed{error: err, fatal: true}
}

// crossing is what is left of a handler's error in the parent.
func crossing(err error) (e *Error, fatal bool) {
	// JSON may write one byte as six (\u0000), hence the margin below maxHeader.
	e = &Error{Message: strings.ToValidUTF8(clip(err.Error(), maxHeader/8), "\uFFFD")}
	for c := (*classed)(nil); errors.As(err, &c); err = c.error {
		fatal = fatal || c.fatal
		if e.Class == "" {
			e.Class = strings.ToValidUTF8(c.class[:min(len(c.class), maxClass)], "")
		}
	}
	return e, fatal
}

// errTooLong is the answer to a request whose answer is beyond the bound.
func errTooLong(n int) error {
	return Classed(TooLong, fmt.Errorf("an answer of %d bytes is over the limit of %d", n, MaxAnswer))
}
