package models

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
)

// Errors of this package. An error that wraps one of them contains the place of the fault and the
// remedy.
var (
	// ErrUnknown means that there is no such model, or no such file of a model.
	ErrUnknown = errors.New("unknown model")
	// ErrName means that a file name could refer to a file outside the store.
	ErrName = errors.New("unsafe name")
	// errTaken: a file from another source has that name.
	errTaken = errors.New("name is already used")
	// ErrSource means that a source cannot be parsed.
	ErrSource = errors.New("bad source")
	// errLicence: the licence has to be accepted first.
	errLicence = errors.New("licence not accepted")
	// ErrMissing means that a file is not in the store.
	ErrMissing = errors.New("not found")
	// errChecksum: the bytes are not those that were promised.
	errChecksum = errors.New("checksum differs")
	// errTooLarge: there are more bytes than promised, or than the limit.
	errTooLarge = errors.New("too large")
	// errStalled: nothing came for so long that it was given up.
	errStalled = errors.New("stalled")
	// errFetch: a source did not give the file.
	errFetch = errors.New("download failed")
	// errNoSpace: the disk has less room than the model needs.
	errNoSpace = errors.New("not enough room on the disk")
	// errExport: nobody offers the model as files; a command makes it.
	errExport = errors.New("cannot be pulled, must be exported")
	// errNoPip: no Python with pip was found.
	errNoPip = errors.New("no Python with pip")
	// errManifest: manifest.json cannot be read.
	errManifest = errors.New("damaged manifest")
)

// errNoSuchFile: the source answers, and has no file of that name.
var errNoSuchFile = errors.New("no such file in the source")

// checksumError says both sums, and where the one that counts comes from: "as in the catalogue".
func checksumError(name, got, want, origin string) error {
	return fmt.Errorf("%w: %s has sha256 %s, want %s %s", errChecksum, name, got, want, origin)
}

// tail keeps the end of what a program said, where the reason stands.
func tail(text string, limit int) string {
	text = strings.TrimSpace(text)
	if len(text) > limit {
		text = "…" + strings.ToValidUTF8(text[len(text)-limit:], "")
	}
	return text
}

// Unreachable reports whether err is the error of a pull whose source cannot be reached at all.
func Unreachable(err error) bool {
	if !errors.Is(err, errFetch) && !errors.Is(err, errStalled) && !errors.Is(err, errOffline) {
		return false
	}
	_, dial := errors.AsType[*net.OpError](err)
	_, pip := errors.AsType[*exec.ExitError](err) // the only program of a pull
	return dial || pip || errors.Is(err, errStalled) || errors.Is(err, errOffline)
}
