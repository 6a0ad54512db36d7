package models

import (
	"errors"
	"fmt"
	"strings"
)

// What can go wrong; the errors that wrap them say where, and what to do.
var (
	// ErrUnknown: no such model, or no such file of a model.
	ErrUnknown = errors.New("unknown model")
	// ErrName: a file's name could lead out of the store.
	ErrName = errors.New("unsafe name")
	// ErrTaken: a file from another source has that name.
	ErrTaken = errors.New("name is taken")
	// ErrSource: a source cannot be understood.
	ErrSource = errors.New("bad source")
	// ErrLicence: the licence has to be accepted first.
	ErrLicence = errors.New("licence not accepted")
	// ErrMissing: a file is not in the store.
	ErrMissing = errors.New("not there")
	// ErrChecksum: the bytes are not those that were promised.
	ErrChecksum = errors.New("checksum differs")
	// ErrTooLarge: there are more bytes than promised, or than the limit.
	ErrTooLarge = errors.New("too large")
	// ErrStalled: nothing came for so long that it was given up.
	ErrStalled = errors.New("stalled")
	// ErrFetch: a source did not give the file.
	ErrFetch = errors.New("cannot be fetched")
	// ErrNoSpace: the disk has less room than the model needs.
	ErrNoSpace = errors.New("not enough room on the disk")
	// ErrExport: nobody offers the model as files; a command makes it.
	ErrExport = errors.New("cannot be pulled, has to be exported")
	// ErrNoPip: no Python with pip was found.
	ErrNoPip = errors.New("no Python with pip")
	// ErrManifest: manifest.json cannot be read.
	ErrManifest = errors.New("damaged manifest")
)

// errNoSuchFile: the source answers, and has no file of that name.
var errNoSuchFile = errors.New("it has no such file")

// checksumError says both sums, and that it is the other one's that counts.
func checksumError(name, got, want, whose string) error {
	return fmt.Errorf("%w: %s has sha256 %s, %s is %s", ErrChecksum, name, got, whose, want)
}

// tail keeps the end of what a program said, where the reason stands.
func tail(text string, limit int) string {
	text = strings.TrimSpace(text)
	if len(text) > limit {
		text = "…" + strings.ToValidUTF8(text[len(text)-limit:], "")
	}
	return text
}
