package models

// OfClone is ofClone.
func OfClone(program string, err error) string { return ofClone(program, err) }

// For the tests of the package alone.
var (
	ErrChecksum = errChecksum
	ErrExport   = errExport
	ErrFetch    = errFetch
	ErrLicence  = errLicence
	ErrManifest = errManifest
	ErrNoPip    = errNoPip
	ErrNoSpace  = errNoSpace
	ErrOffline  = errOffline
	ErrStalled  = errStalled
	ErrTaken    = errTaken
	ErrTooLarge = errTooLarge
)

// Share is share.
func Share(from, to string, link func(from, to string) error) error { return share(from, to, link) }
