package fleet

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for a process.
const patience = 60 * time.Second

// Process is one program of the fleet. Its methods must be called by the test's goroutine.
type Process struct {
	// Name is unique in the fleet; the name of a worker is its --name.
	Name string
	// Addr is the listening address, which stays the same after a restart. It is empty if the
	// process does not listen.
	Addr string

	f       *Fleet
	host    hostOf
	bin     string
	args    []string
	workers int                   // that score
	ready   func(p *Process) bool // looked at until it is true

	cmd    *exec.Cmd
	log    *tail
	exited chan struct{} // closed when the process has ended
}

// Start starts a process that is not running, and returns when it is ready.
func (p *Process) Start() {
	p.f.t.Helper()
	p.launch()
	p.awaitReady()
}

// launch starts it without waiting.
func (p *Process) launch() {
	p.f.t.Helper()
	// The context is not the test's: that one ends before the clean-up, and the clean-up kills.
	ctx := context.WithoutCancel(p.f.t.Context())
	if p.host == nil {
		p.cmd = exec.CommandContext(ctx, p.bin, p.args...) //nolint:gosec // what New was given
	} else {
		p.cmd = p.host.Command(ctx, p.bin, p.args...)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = time.Second
	p.log = &tail{}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	exited, cmd, started := make(chan struct{}), p.cmd, make(chan error, 1)
	p.exited = exited
	p.f.wg.Go(func() { // ends with the process
		// Linux sends the parent-death signal when the thread ends that forked. A goroutine of
		// this process that ends with its thread locked may have been on any thread before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(exited)
	})
	require.NoError(p.f.t, <-started, "%s", p.Name)
}

// awaitReady returns when the process says that it serves.
func (p *Process) awaitReady() {
	p.f.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !p.ready(p) {
		select {
		case <-look.C:
		case <-p.exited:
			p.f.t.Fatalf("%s ended with %v before it was ready:\n%s", p.Name, p.cmd.ProcessState, p.log)
		case <-limit.C:
			p.f.t.Fatalf("%s is not ready after %v:\n%s", p.Name, patience, p.log)
		}
	}
}

// Kill9 kills the process with SIGKILL and waits until it has ended.
func (p *Process) Kill9() {
	p.f.t.Helper()
	p.Signal(syscall.SIGKILL)
	p.Wait()
}

// Stop freezes the process, like a long pause of the machine. Cont continues it.
func (p *Process) Stop() { p.f.t.Helper(); p.Signal(syscall.SIGSTOP) }

// Cont continues the process after Stop.
func (p *Process) Cont() { p.f.t.Helper(); p.Signal(syscall.SIGCONT) }

// Terminate sends SIGTERM, so that the process drains and ends.
func (p *Process) Terminate() { p.f.t.Helper(); p.Signal(syscall.SIGTERM) }

// Signal sends a signal to a running process.
func (p *Process) Signal(s syscall.Signal) {
	p.f.t.Helper()
	require.NoError(p.f.t, p.cmd.Process.Signal(s), "%s", p.Name)
}

// runs reports whether the process has not ended.
func (p *Process) runs() bool {
	select {
	case <-p.exited:
		return false
	default:
		return p.exited != nil
	}
}

// Wait waits until the process has ended and returns its exit code, or −1 if a signal ended it.
func (p *Process) Wait() int {
	p.f.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.f.t.Fatalf("%s has not ended after %v:\n%s", p.Name, patience, p.log)
		return 0
	}
}

// Restart drains the process, requires the exit code 0, and starts the process again.
func (p *Process) Restart() {
	p.f.t.Helper()
	p.Terminate()
	require.Zero(p.f.t, p.Wait(), "%s did not drain:\n%s", p.Name, p.log)
	p.Start()
}

// Log returns the output of the process since its start: the beginning and the end.
func (p *Process) Log() string { return p.log.String() }

// end kills it if it runs.
func (p *Process) end() {
	if p.exited == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// tailBytes of what a process says are kept from its beginning, and as many from its end.
const tailBytes = 32 << 10

// tail keeps the beginning and the end of what is written.
type tail struct {
	mu   sync.Mutex
	head []byte // guarded by mu
	end  []byte // guarded by mu
}

func (l *tail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	room := min(tailBytes-len(l.head), n)
	l.head = append(l.head, b[:room]...)
	l.end = append(l.end, b[room:]...)
	if over := len(l.end) - tailBytes; over > 0 {
		l.end = slices.Delete(l.end, 0, over)
	}
	return n, nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.head) + string(l.end)
}

func (l *tail) says(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.head, []byte(text))
}

// quote logs the end of every process, for a test that failed.
func quote(t testing.TB, processes []*Process) {
	t.Helper()
	for _, p := range processes {
		if p.log == nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
		t.Logf("%s (%v):\n%s", p.Name, p.cmd.ProcessState, strings.Join(lines[max(0, len(lines)-25):], "\n"))
	}
}
