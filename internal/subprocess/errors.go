package subprocess

import (
	"errors"
	"fmt"
	"strings"
)

// The sentinels that the errors of a Pool wrap. The package does not use reward classes; its
// callers map these errors to classes.
var (
	// ErrCrashed means that two children crashed or sent invalid answers during the request (one
	// child if Request.Once is set), or that the request's input is remembered for such crashes.
	ErrCrashed = errors.New("child process crashed")
	// ErrHost is wrapped together with ErrCrashed if the request is not the cause: a child was
	// killed from outside, or the child that replaced the last one does not answer the canary
	// either.
	ErrHost = errors.New("the fault is this machine's, not the request's")
	// ErrTimeout means that the deadline passed before an answer; the child was killed.
	ErrTimeout = errors.New("child process deadline passed")
	// ErrWaiting is wrapped together with ErrTimeout if the deadline passed before a child was
	// free.
	ErrWaiting = errors.New("the request ended while it waited for a child process")
	// ErrUnavailable means that there is no child, because the pool is not started or is stopping,
	// or because no child starts. If the handler of a new child failed, the error also wraps
	// ErrHandler.
	ErrUnavailable = errors.New("child processes unavailable")
	// ErrHandler means that the child works and its handler returned an error; the error then also
	// wraps an [Error].
	ErrHandler = errors.New("child process reports")
	// ErrTooLarge means that the request exceeds a limit of the configuration.
	ErrTooLarge = errors.New("request too large for a child process")
)

// Error is an error of a handler as the parent receives it. Only the text and the class of the
// handler's error are sent over the socket. Inline returns the same error.
type Error struct {
	// Class is a short word that distinguishes errors, such as "memory"; "" if the handler set
	// none.
	Class string
	// Message is the text of the handler's error.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// TooLong is the class of the error for an answer of more than MaxAnswer bytes.
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

// Classed returns err with a class, by which the parent can distinguish the error with errors.As
// and an [Error]. Classed returns nil if err is nil. The outermost class of an error counts.
func Classed(class string, err error) error {
	if err == nil {
		return nil
	}
	return &classed{error: err, class: class}
}

// Fatal marks an error of a handler after which its process is unusable, such as a CUDA error that
// every later call repeats. The child sends the error and ends. The parent replaces the child and
// treats the request as after a crash: it is tried once more on another child, and fails the second
// time with [ErrCrashed] and both messages. Fatal returns nil if err is nil.
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
