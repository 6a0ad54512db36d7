//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Own is what this process has computed so far, in user code and in the system.
func Own() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
