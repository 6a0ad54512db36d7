package main

import "syscall"

// descriptorLimit is the soft limit, which Go has raised to the hard one at start.
func descriptorLimit() (uint64, bool) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, false
	}
	return r.Cur, true
}
