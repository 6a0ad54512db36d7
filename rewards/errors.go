package rewards

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Class says what kind of failure an error is. It is itself an error, used as
// the sentinel that every failure wraps:
//
//	return rewards.Score{}, fmt.Errorf("%w: no quoted text in ground_truth or prompt", rewards.BadInput)
//
// Its string is the code that crosses the wire and the label of the metric.
type Class string //nolint:errname // a sentinel and a label more than an error type

// The classes. Those of the scorer's side come first, those that only the loop
// and the edges give come second.
//
//nolint:errname // a class is named for what crosses the wire
const (
	BadInput     Class = "bad_input"     // the sample cannot be scored by anybody: no target, undecodable picture
	Timeout      Class = "timeout"       // the component's deadline passed before the scorer answered
	Crashed      Class = "crashed"       // the child process that did the work died
	Unavailable  Class = "unavailable"   // a dependency did not answer; another try may succeed
	Panicked     Class = "panic"         // the scorer panicked
	InvalidScore Class = "invalid_score" // NaN, infinite, or a configured sentinel value
	Internal     Class = "internal"      // any other error of a scorer
	Cancelled    Class = "cancelled"     // the caller left, or a required component of the sample failed

	Malformed     Class = "malformed"      // the message is not a frame or not a control message
	TooLarge      Class = "too_large"      // beyond a limit the welcome message named
	OverCredit    Class = "over_credit"    // sent without credit
	Draining      Class = "draining"       // the gateway accepts nothing new
	IDReused      Class = "id_reused"      // the same id with other bytes
	UnknownReward Class = "unknown_reward" // no profile of that name
	Expired       Class = "expired"        // the sample's deadline passed
	Lost          Class = "lost"           // the worker is gone and the attempts are spent
	NoScore       Class = "no_score"       // no component produced a value

	UnsupportedEncoding Class = "unsupported_encoding" // media in an encoding that is not decoded here
)

// Error makes a Class usable as a sentinel.
func (c Class) Error() string { return string(c) }

// ClassOf returns the class an error wraps: Timeout and Cancelled for the two
// context errors, Internal for an error that wraps none, "" for nil.
func ClassOf(err error) Class {
	var c Class
	switch {
	case err == nil:
		return ""
	case errors.As(err, &c):
		return c
	case errors.Is(err, context.DeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Cancelled
	}
	return Internal
}

// SkipError is what Skip returns.
type SkipError struct{ Reason string }

// Error returns the reason.
func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// Skip is returned by a scorer that does not apply to a sample (a video reward
// on a text sample). The component is left out of the sum; it is neither a failure
// nor a zero.
func Skip(reason string) error { return &SkipError{Reason: reason} }

// Guard calls do, and makes of a panic an error of class Panicked with the beginning of
// the stack. The Manager guards the goroutine that calls a scorer; one that a scorer
// starts itself it must guard itself, for a panic there would end the process.
func Guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s\n%s", Panicked, clip(fmt.Sprint(p), maxMessage/2), clip(string(debug.Stack()), maxMessage/2))
		}
	}()
	return do()
}

// Faults collects what is wrong with a configuration, so that one answer names all of it.
type Faults []error

// Add adds a fault where something is wrong; the format takes %w like [fmt.Errorf]. Its
// arguments are evaluated in any case.
func (f *Faults) Add(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Err joins the faults; nil where there is none.
func (f Faults) Err() error { return errors.Join(f...) }
