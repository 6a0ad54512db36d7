package main

import (
	"os/exec"
	"syscall"
)

// endWithUs has the system kill a program when the bench ends, however it does: not every
// program looks at its standard input.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
