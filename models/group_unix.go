//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package models

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// InOwnGroup makes the end of a command's context also kill the processes that the command has
// started. pip and torch start processes, and a process that outlives pip or torch would keep the
// output open.
func InOwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
