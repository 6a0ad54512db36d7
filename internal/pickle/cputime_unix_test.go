//go:build unix

package pickle_test

import (
	"syscall"
	"time"
)

// cpuTime is the processor time this process has used. The limits of a second
// are held against it, because the clock on the wall also counts the
// neighbours on a busy machine.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
