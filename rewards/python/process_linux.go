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

	"github.com/rewardloop/rewardloop/internal/slot"
)

//go:embed host.py
var hostSource []byte

// process is a started host: what the operating system knows of it.
type process struct {
	cmd    *exec.Cmd
	conn   net.Conn
	output *slot.Output

	mu     sync.Mutex
	reaped bool // guarded by mu: the pid may belong to another process now
}

// spawn starts a host. The caller must be locked to a thread that outlives it:
// Linux sends the parent-death signal when the thread that forked ends.
func spawn(interpreter string) (*process, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs, ours := os.NewFile(uintptr(fds[1]), "host"), os.NewFile(uintptr(fds[0]), "parent")
	defer theirs.Close()
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("socket pair: %w", err)
	}
	p := &process{conn: conn, output: &slot.Output{}}
	p.cmd = exec.Command(interpreter, "-u", "-") //nolint:noctx // the configuration names it; kill ends it
	p.cmd.Stdin = bytes.NewReader(hostSource)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Env = environment()
	p.cmd.WaitDelay = time.Second // a grandchild that keeps the pipe open must not keep Wait
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", interpreter, err), conn.Close())
	}
	return p, nil
}

// environment is the server's own: reward functions read their API keys there. One
// thread for each BLAS or OpenMP call unless it says otherwise, because the
// concurrency is ours.
func environment() []string {
	env := os.Environ()
	for _, name := range []string{"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"} {
		if _, set := os.LookupEnv(name); !set {
			env = append(env, name+"=1")
		}
	}
	return append(env, "PYTHONDONTWRITEBYTECODE=1")
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the host and whatever it has started in its process group. Killing
// one that has ended does nothing.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	}
}

// wait kills what is left of the group, reaps the process and says how it ended.
func (p *process) wait() string {
	p.kill() // a process that has ended keeps its pid, and its status, until it is reaped
	_ = p.conn.Close()
	err := p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return err.Error()
	}
	return p.cmd.ProcessState.String()
}
