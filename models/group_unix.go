//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package models

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// InOwnGroup has the end of a command's context kill what the command started, too: pip or torch
// starts programs of its own, and one that lives on would hold its output open.
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
