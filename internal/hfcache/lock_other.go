//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package hfcache

import (
	"errors"
	"os"
)

// tryLock: there is no lock that Python's filelock would see.
func tryLock(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }
