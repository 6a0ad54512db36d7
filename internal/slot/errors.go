package slot

import "errors"

// The sentinels that the errors of a Pool wrap. The package knows no reward
// classes: its callers map these.
var (
	// ErrCrashed: the child that held the request died or answered garbage, twice,
	// or the request's input is remembered for having done so.
	ErrCrashed = errors.New("child process crashed")
	// ErrTimeout: the deadline passed before an answer; the child was killed.
	ErrTimeout = errors.New("child process deadline passed")
	// ErrUnavailable: no child can be had: not started, stopping, or none starts.
	ErrUnavailable = errors.New("child processes unavailable")
	// ErrHandler: the child is well and its handler answered with an error.
	ErrHandler = errors.New("child process reports")
	// ErrTooLarge: the request is beyond a bound of the configuration.
	ErrTooLarge = errors.New("request too large for a child process")
)
