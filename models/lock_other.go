//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package models

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// staleLock is the age at which a lock counts as left behind by a process that died.
const staleLock = 6 * time.Hour

// tryLock takes the lock without waiting; nil, nil: somebody has it. Without
// flock the file itself is the lock.
func tryLock(at string) (release func(), err error) {
	_, release, err = tryLockFile(at)
	return release, err
}

// tryLockFile is tryLock, with the file.
func tryLockFile(at string) (f *os.File, release func(), err error) {
	f, err = os.OpenFile(at, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		if info, statErr := os.Stat(at); statErr == nil && time.Since(info.ModTime()) > staleLock {
			_ = os.Remove(at)
		}
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close(); _ = os.Remove(at) }, nil
}
