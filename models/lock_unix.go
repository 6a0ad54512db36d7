//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package models

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes the lock without waiting; nil, nil: somebody has it. The kernel
// lets go of it when the process ends, however that happens.
func tryLock(at string) (release func(), err error) {
	_, release, err = tryLockFile(at)
	return release, err
}

// tryLockFile is tryLock; a program that is handed the file has the lock as well.
func tryLockFile(at string) (f *os.File, release func(), err error) {
	f, err = os.OpenFile(at, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		_ = f.Close()
		return nil, nil, nil
	case err != nil:
		_ = f.Close()
		return nil, nil, fmt.Errorf("lock %s: %w", at, err)
	}
	// The file stays: removing it would let a third one lock a new file of the
	// same name while a second still waits for this one.
	return f, func() {
		// Close alone would leave the lock to a child that another goroutine has forked and that has not executed its program yet.
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		_ = f.Close()
	}, nil
}
