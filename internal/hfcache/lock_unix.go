//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package hfcache

import (
	"errors"
	"os"
	"syscall"
)

// tryLock takes a file's lock, the one that Python's filelock takes, without waiting.
// The kernel lets go of it when the file is closed or the process ends.
func tryLock(f *os.File) (taken bool, err error) {
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
