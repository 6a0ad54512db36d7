package wire

import (
	"errors"
	"fmt"

	"github.com/rewardloop/rewardloop/rewards"
)

// UnsupportedEncoding is the class of a frame that contains media in an unknown encoding, such as
// avi or ogg.
const UnsupportedEncoding = rewards.UnsupportedEncoding //nolint:errname // a class, named like those of package rewards

// Causes of the refusal of a frame or a control message. Every refusal wraps one of them.
var (
	// ErrTooLarge means that a limit is exceeded. The class is too_large; the class of all others
	// except ErrEncoding is malformed.
	ErrTooLarge = errors.New("too large")
	// ErrEncoding means that an encoding is not supported. The class is unsupported_encoding.
	ErrEncoding = errors.New("unsupported encoding")

	ErrTruncated   = errors.New("message ends too soon")
	ErrTrailing    = errors.New("bytes after the end")
	ErrJSON        = errors.New("invalid JSON")
	ErrUTF8        = errors.New("invalid UTF-8")
	ErrNesting     = errors.New("nested too deeply")
	ErrNumber      = errors.New("number out of range")
	ErrDuplicate   = errors.New("duplicate name")
	ErrUnknownName = errors.New("unknown name")
	ErrMissing     = errors.New("missing name")
	ErrValue       = errors.New("invalid value")
	ErrDType       = errors.New("unknown dtype")
	ErrShape       = errors.New("shape does not fit")
	ErrOffsets     = errors.New("data_offsets do not cover the data without gaps or overlaps")
	ErrMedia       = errors.New("media and tensors do not fit")
	ErrUnknownType = errors.New("unknown message type")
)

// FrameError is the refusal of a message.
type FrameError struct {
	// ID is the sample's id, or empty if it could not be read.
	ID string
	// Class is the error code that is sent to the client.
	Class rewards.Class
	// Err is the cause and its position, and wraps one of the sentinel errors above.
	Err error
}

// Error returns the class, the id if it is known, and the cause.
func (e *FrameError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("%s: %v", e.Class, e.Err)
	}
	return fmt.Sprintf("%s: sample %q: %v", e.Class, e.ID, e.Err)
}

// Unwrap returns the class and the cause.
func (e *FrameError) Unwrap() []error { return []error{e.Class, e.Err} }

// refuse wraps a cause in a FrameError of the class that belongs to it.
func refuse(id string, err error) error {
	class := rewards.Malformed
	switch {
	case errors.Is(err, ErrTooLarge):
		class = rewards.TooLarge
	case errors.Is(err, ErrEncoding):
		class = UnsupportedEncoding
	}
	return &FrameError{ID: id, Class: class, Err: err}
}

// errFound ends a search early.
var errFound = errors.New("found")

// errSlow ends a fast reader: the general one takes over.
var errSlow = errors.New("not fast")
