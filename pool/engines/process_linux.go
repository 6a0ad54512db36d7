package engines

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a command that runs under its keeper.
type process struct {
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
	kept atomic.Int64  // the pid of the keeper's command, whose process group it leads; 0: not known
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
	go p.learn() // ends when it knows, with the process or after 10 s; nobody waits for it
	go func() {  // ends with the process
		_ = p.cmd.Wait()
		p.killLeft()
		close(p.over)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// how it ended; over must have ended.
func (p *process) how() string { return p.cmd.ProcessState.String() }

func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) killGroup() { _ = syscall.Kill(-p.pid(), syscall.SIGKILL) }

// learn finds out what the keeper has started. It ends when it knows, with the keeper, or after learnTime.
func (p *process) learn() {
	const learnTime, every = 10 * time.Second, 20 * time.Millisecond
	t := time.NewTicker(every)
	defer t.Stop()
	for until := time.Now().Add(learnTime); time.Now().Before(until); {
		if child := childOf(p.pid()); child > 0 {
			p.kept.Store(int64(child))
			return
		}
		select {
		case <-t.C:
		case <-p.over:
			return
		}
	}
}

// killLeft ends what a keeper has left that was killed itself, as the kernel does that lacks memory: its command ends with it, and
// what the command has started, such as vLLM's EngineCore, would keep the memory of a card.
func (p *process) killLeft() {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if kept := p.kept.Load(); ok && status.Signaled() && kept > 0 {
		_ = syscall.Kill(-int(kept), syscall.SIGKILL)
	}
}

// childOf is the first child of a process; 0: it has none.
func childOf(parent int) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// After the name, which may hold anything, come the state and the parent.
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			return pid
		}
	}
	return 0
}
