package verify

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/rewards"
)

// errNoProcesses is what other systems than Linux say.
var errNoProcesses error

// The signals of a limit, as ending.signal has them.
//
//nolint:gochecknoglobals // names that the system gives
var (
	signalCPU  = unix.SignalName(unix.SIGXCPU)
	signalFile = unix.SignalName(unix.SIGXFSZ)
)

// process is one run of a program.
type process struct {
	program string
	argv    []string
	env     []string
	folder  string
	input   []byte
	limits  []limit
}

// run starts the program and returns when it has ended and nothing of it is left. Its
// goroutine keeps its thread until then: Linux sends the parent-death signal when the
// thread that forked ends.
func (p *process) run(ctx context.Context) ending {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if ctx.Err() != nil {
		return ending{failed: errLate}
	}
	mark := marker + "=" + rand.Text()
	gate := &gate{make(chan struct{}), bytes.NewReader(p.input)}
	stdout, stderr := &bounded{over: make(chan struct{})}, &subprocess.Output{}
	cmd := &exec.Cmd{
		Path: p.program, Args: p.argv, Dir: p.folder, Env: append([]string{mark}, p.env...),
		Stdin: gate, Stdout: stdout, Stderr: stderr,
		WaitDelay:   time.Second, // for an output that somebody keeps open whom sweep did not find
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return ending{failed: p.unstarted(err)}
	}
	pid := cmd.Process.Pid
	exited := make(chan struct{})
	go func() { // ends with the process, which stays a zombie: its number belongs to nobody else yet
		defer close(exited)
		for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		}
	}()

	failed := p.limit(pid)
	if failed != nil {
		gate.input.Reset(nil) // whoever still reads gets the end
	}
	close(gate.open)
	if failed == nil {
		failed = p.await(ctx, exited, stdout.over)
	}
	_ = unix.Kill(-pid, unix.SIGKILL) // the group, whether or not its first has ended
	<-exited
	left := sweep(pid, mark)
	err := cmd.Wait()
	reapGroup(pid)
	e := ending{failed: failed, stdout: stdout.kept, stderr: stderr.String()}
	switch {
	case e.failed != nil:
	case stdout.full:
		e.failed = p.tooMuch()
	case left != nil:
		e.failed = fmt.Errorf("%w: %s: %w", rewards.Internal, p.program, left)
	case errors.Is(err, exec.ErrWaitDelay):
		e.failed = fmt.Errorf("%w: %s left a process running that holds its output open", rewards.Internal, p.program)
	}
	if cmd.ProcessState == nil { // somebody else in this program reaps, or SIGCHLD is ignored
		e.failed = errors.Join(e.failed, fmt.Errorf("%w: the exit status of %s is unknown: %w", rewards.Internal, p.program, err))
		return e
	}
	e.code = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.signal = unix.SignalName(status.Signal())
	}
	return e
}

// await waits for the program to end, for its time to be up, or for it to say too much.
func (p *process) await(ctx context.Context, exited, over <-chan struct{}) error {
	select {
	case <-exited:
		return nil
	case <-over:
		return p.tooMuch()
	case <-ctx.Done():
	}
	select {
	case <-exited: // both at once: it has answered
		return nil
	default:
		return errLate
	}
}

func (p *process) tooMuch() error {
	return fmt.Errorf("%w: %s wrote more than %d bytes on stdout", rewards.Internal, p.program, maxResult)
}

// limit sets the limits of the process. It has begun by then but has not been given
// the sample yet.
func (p *process) limit(pid int) error {
	for _, l := range p.limits {
		if err := l.set(pid); err != nil {
			return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: limiting %s: %w", rewards.Internal, p.program, err))
		}
	}
	return nil
}

// unstarted tells a machine that has nothing left from one on which the program cannot
// start, because it is not there any more or is no program.
func (p *process) unstarted(err error) error {
	for _, busy := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, busy) {
			return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: starting %s: %w", rewards.Unavailable, p.program, err))
		}
	}
	return rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: starting %s: %w", rewards.Internal, p.program, err))
}

// reapGroup takes what has died in a group and was left to this process: where it is
// the first of its container nobody else does.
func reapGroup(pid int) {
	for {
		if reaped, err := unix.Wait4(-pid, nil, unix.WNOHANG, nil); err != nil || reaped <= 0 {
			return
		}
	}
}

// gate is an input that begins when it is opened.
type gate struct {
	open  chan struct{}
	input *bytes.Reader
}

// Read waits for the gate.
func (g *gate) Read(p []byte) (int, error) {
	<-g.open
	return g.input.Read(p) // io.EOF must stay what it is
}
