package rewards

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Class is the kind of a failure. A Class is itself an error, the sentinel that every failure wraps:
//
//	return rewards.Score{}, fmt.Errorf("%w: no quoted text in ground_truth or prompt", rewards.BadInput)
//
// The string of a Class is the code on the wire and the label of the metric.
type Class string //nolint:errname // a sentinel and a label more than an error type

// The classes. The classes of scorers come first; the classes after them are set only by the loop
// and the server.
//
//nolint:errname // a class is named for what crosses the wire
const (
	BadInput     Class = "bad_input"     // no worker can score the sample: no target, undecodable picture
	Timeout      Class = "timeout"       // the component's deadline passed before the scorer answered
	Crashed      Class = "crashed"       // the child process that did the work ended unexpectedly
	Unavailable  Class = "unavailable"   // a dependency did not answer; another try may succeed
	Panicked     Class = "panic"         // the scorer panicked
	InvalidScore Class = "invalid_score" // NaN, infinite, or a configured sentinel value
	Internal     Class = "internal"      // any other error of a scorer
	Cancelled    Class = "cancelled"     // the caller left, or a required component of the sample failed

	Malformed     Class = "malformed"      // the message is not a frame or not a control message
	TooLarge      Class = "too_large"      // larger than a limit in the welcome message
	OverCredit    Class = "over_credit"    // the sample was sent without credit
	Draining      Class = "draining"       // the gateway accepts no new samples
	IDReused      Class = "id_reused"      // the same id was sent with other bytes
	UnknownReward Class = "unknown_reward" // no profile has that name
	Expired       Class = "expired"        // the sample's deadline passed
	Lost          Class = "lost"           // the worker was lost and no attempts are left
	NoScore       Class = "no_score"       // no component produced a value

	UnsupportedEncoding Class = "unsupported_encoding" // the media has an encoding that this process cannot decode
)

// Error returns the class as text, so that a Class can be used as a sentinel.
func (c Class) Error() string { return string(c) }

// ClassOf returns the class that err wraps. Without one, ClassOf returns Timeout or Cancelled for
// the two context errors, Internal for any other error, and "" for nil.
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

// SkipError is the error that Skip returns.
type SkipError struct{ Reason string }

// Error returns the reason.
func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// Skip returns the error of a scorer that does not apply to a sample (for example a video reward
// and a text sample). The component is left out of the combined reward; it counts neither as a
// failure nor as zero.
func Skip(reason string) error { return &SkipError{Reason: reason} }

// Guard calls do and turns a panic into an error of class Panicked, with the beginning of the
// stack. The Manager guards the goroutine that calls a scorer. A scorer must guard the goroutines
// that it starts itself, because a panic in them would end the process.
func Guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %s\n%s", Panicked, clip(fmt.Sprint(p), maxMessage/2), clip(string(debug.Stack()), maxMessage/2))
		}
	}()
	return do()
}

// Faults collects the errors of a configuration, so that all of them are reported together.
type Faults []error

// Add adds a fault if wrong is true. The format accepts %w, as in [fmt.Errorf]. The arguments are
// always evaluated.
func (f *Faults) Add(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Err joins the faults; it returns nil if there are none.
func (f Faults) Err() error { return errors.Join(f...) }
