package ffmpeg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rewardloop/rewardloop/internal/subprocess"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxFiles bounds the open files of ffmpeg: its libraries are opened one after another.
const maxFiles = 64

// Play implements media.Player. Play locks its goroutine to a thread until the process has ended, because Linux
// sends the parent-death signal when the thread that forked ends.
func (r *Runner) Play(ctx context.Context, p media.Playing, read func(out io.Reader) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, err := sealed(p.File)
	if err != nil {
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %w", rewards.Unavailable, err))
	}
	defer file.Close()
	command, err := subprocess.ConfineCommand(subprocess.Confinement{
		Folders: r.folders, Memory: uint64(p.Memory), CPUSeconds: uint64(math.Ceil(p.Time.Seconds())), Files: maxFiles,
	}, append([]string{r.program}, p.Args...)...)
	if err != nil {
		return fmt.Errorf("%w: %w", rewards.Internal, err)
	}
	stderr := &subprocess.Output{}
	cmd := exec.CommandContext(ctx, command[0])
	cmd.Args, cmd.Env, cmd.Dir = command, []string{}, "/"
	cmd.Stderr, cmd.ExtraFiles = stderr, []*os.File{file}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: starting %s: %w", rewards.Unavailable, r.program, err))
	}
	stopped := rewards.Guard(func() error { return read(out) })
	if stopped == nil { // the end of the output, after which ffmpeg has nothing to do
		_, stopped = io.Copy(io.Discard, out)
	}
	if stopped != nil {
		_ = killGroup(cmd)
	}
	ended := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("while ffmpeg decoded: %w", ctx.Err())
	case errors.Is(stopped, media.ErrEnough):
		return nil
	case ended == nil && stopped == nil:
		return truncated(stderr.String())
	case ended == nil:
		return stopped
	}
	if why := r.failure(cmd, stderr.String()); why != nil && (stopped == nil || !killed(cmd)) {
		return why // it explains an output that ends early
	}
	return stopped
}

// truncated refuses a file that ended early, of which ffmpeg complains and makes what it can.
func truncated(stderr string) error {
	for _, complaint := range []string{"partial file", "File ended prematurely"} {
		if strings.Contains(stderr, complaint) {
			return fmt.Errorf("%w: the file ends early: %s", rewards.BadInput, said(stderr))
		}
	}
	return nil
}

func killGroup(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func killed(cmd *exec.Cmd) bool {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// failure says why a process ended that did not end well.
func (r *Runner) failure(cmd *exec.Cmd, stderr string) error {
	text := said(stderr)
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && status.Signal() == syscall.SIGXCPU:
		return fmt.Errorf("%w: ffmpeg used more CPU time than pool.decode.ffmpeg_timeout allows", rewards.BadInput)
	case killed(cmd):
		return rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: %s was killed, perhaps because memory ran out", rewards.Crashed, r.program))
	case status.Signaled():
		return fmt.Errorf("%w: ffmpeg was ended by %s while it read this file", rewards.BadInput, unix.SignalName(status.Signal()))
	case status.ExitStatus() == 126 && strings.HasPrefix(stderr, "confine: "),
		status.ExitStatus() == 127, strings.Contains(stderr, "error while loading shared libraries"):
		return rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: %s does not start: %s", rewards.Internal, r.program, text))
	case strings.Contains(stderr, "Unrecognized option"), strings.Contains(stderr, "Option not found"):
		return rewards.Permanent(rewards.BlameWorker, fmt.Errorf("%w: %s is older than 5.1 or lacks a feature: %s", rewards.Internal, r.program, text))
	}
	if text == "" {
		text = fmt.Sprintf("exit status %d", status.ExitStatus())
	}
	return fmt.Errorf("%w: ffmpeg cannot decode this file: %s", rewards.BadInput, text)
}

// sealed is a file in memory that nobody can change.
func sealed(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("rewardloop-media", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("a file in memory for ffmpeg: %w", err)
	}
	f := os.NewFile(uintptr(fd), "rewardloop-media")
	if _, err := f.Write(data); err != nil {
		return nil, errors.Join(fmt.Errorf("a file in memory for ffmpeg: %w", err), f.Close())
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sealing a file in memory for ffmpeg: %w", err), f.Close())
	}
	return f, nil
}
