package engines

import (
	"io"
	"os/exec"
	"syscall"
	"time"
)

// process is a command that runs under its keeper.
type process struct {
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
}

// startProcess starts a keeper's command. The caller's goroutine must be locked to a thread that outlives it.
func startProcess(command, env []string, out io.Writer) (*process, error) {
	p := &process{over: make(chan struct{}), cmd: exec.Command(command[0], command[1:]...)} //nolint:gosec,noctx // the configuration's command; terminate ends it
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = out, out, env
	p.cmd.WaitDelay = time.Second // what nobody could end must not keep Wait
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process
		_ = p.cmd.Wait()
		close(p.over)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// how it ended; over must have ended.
func (p *process) how() string { return p.cmd.ProcessState.String() }

func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) killGroup() { _ = syscall.Kill(-p.pid(), syscall.SIGKILL) }
