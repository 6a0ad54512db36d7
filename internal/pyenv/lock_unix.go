//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pyenv

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// tryLock takes the lock of a name without waiting; nil, nil: somebody has it. The kernel lets
// go of it when the last process that has the file ends.
func (s Store) tryLock(name string) (*os.File, error) {
	dir := filepath.Join(s.Dir, locksDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, err
}
