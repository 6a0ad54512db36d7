//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package spool

import (
	"errors"
	"os"
)

// lock needs flock, which the kernel ends with the process.
func lock(string) (*os.File, error) {
	return nil, errors.New("spool: this system has no file lock that the end of a process releases; leave queue.durable out")
}
