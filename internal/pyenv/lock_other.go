//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package pyenv

import (
	"errors"
	"os"
)

// tryLock needs flock, which the kernel ends with the process.
func (s Store) tryLock(string) (*os.File, error) {
	return nil, errors.New("environments: this system has no file lock that the end of a process releases; make the environment by hand and set interpreter to its Python")
}
