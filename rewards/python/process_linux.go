package python

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

//go:embed process.py
var processSource []byte

// process is a started keeper with the process that it forked, and what that starts.
type process struct {
	cmd    *exec.Cmd // the keeper; without one, the process itself
	conn   net.Conn
	output *subprocess.Output
	group  *cgroup // nil: the memory is watched instead

	mu      sync.Mutex
	process int         // guarded by mu: its pid; 0: it is not ready
	ours    bool        // guarded by mu: kill was called
	late    *time.Timer // guarded by mu: kills a keeper that does not end
	reaped  bool        // guarded by mu: the pid may belong to another process now
}

// keeperGrace is what a keeper has to end everything below it: twice what it takes at
// most (KEEP_SECONDS of process.py).
const keeperGrace = 10 * time.Second

// closedGrace is how long a process may live that has closed its socket.
const closedGrace = 500 * time.Millisecond

// spawn starts a process. The caller must be locked to a thread that outlives it:
// Linux sends the parent-death signal when the thread that forked ends.
func spawn(interpreter string, env []string, group *cgroup) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs, ours := os.NewFile(uintptr(fds[1]), "process"), os.NewFile(uintptr(fds[0]), "parent")
	defer theirs.Close()
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	p := &process{conn: conn, output: &subprocess.Output{}, group: group}
	p.cmd = exec.Command(interpreter, "-u", "-") //nolint:noctx // the configuration names it; kill ends it
	p.cmd.Stdin = bytes.NewReader(processSource)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Env = env
	p.cmd.WaitDelay = time.Second // a process that nobody could end must not keep Wait
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if group != nil {
		p.cmd.SysProcAttr.UseCgroupFD, p.cmd.SysProcAttr.CgroupFD = true, int(group.dir.Fd())
	}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", interpreter, err), conn.Close())
	}
	return p, nil
}

// nice is that of all processes: what functions compute yields to the server's own work.
const nice = 5

// yield lowers the priority of the calling thread, and of what it starts. A sandbox may
// forbid it.
func yield() { _ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice) }

// root is the keeper's pid: all processes of the function are below it.
func (p *process) root() int { return p.cmd.Process.Pid }

// ready keeps the pid of the process.
func (p *process) ready(process int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process = process
}

// pid is that of the process, which has the function; 0: it is not ready.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process
}

// kill ends the process and whatever it has started. Killing one that has ended does nothing.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ours = true
	if p.reaped || p.late != nil {
		return
	}
	_ = syscall.Kill(p.root(), syscall.SIGTERM) // the keeper does it, and reaps
	grace := keeperGrace
	if p.process == p.root() {
		grace = 0
	}
	p.late = time.AfterFunc(grace, p.killGroup)
}

// killGroup ends the process group at once, and with it a keeper that does nothing.
func (p *process) killGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.group.kill()
		_ = syscall.Kill(-p.root(), syscall.SIGKILL)
	}
}

// ending is how a process ended.
type ending struct {
	how string
	// killed says that SIGKILL ended it, ours that kill was called before.
	killed, ours bool
	// overLimit says that the kernel ended it for the memory of its cgroup.
	overLimit bool
}

// wait reaps a process whose socket has closed and says how it ended. One that lives on
// is killed.
func (p *process) wait() ending {
	alive := time.AfterFunc(closedGrace, p.kill)
	_ = p.conn.Close()
	err := p.cmd.Wait()
	alive.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
	if p.late != nil {
		p.late.Stop()
	}
	e := ending{how: p.cmd.ProcessState.String(), ours: p.ours, overLimit: p.group.ranOut()}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		e.how = err.Error()
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		e.killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	p.group.remove()
	return e
}
