package subprocess

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The descriptors a child inherits.
const (
	socketFD = 3
	memoryFD = 4
)

// serveInherited is the life of a child process.
func serveInherited(kind Kind) error {
	var st unix.Stat_t
	if err := unix.Fstat(socketFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return errors.New("descriptor 3 is not a socket: rewardloop starts this command itself; do not run it by hand")
	}
	// A terminal's Ctrl-C and systemd's stop reach every process of the group; the
	// parent decides when its children end.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	// A crash in C must not write a core file of the whole address space.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	m := &mapping{fd: memoryFD}
	return serve(os.NewFile(socketFD, "parent"), m.view, kind)
}

// process is a started child: what the operating system knows of it.
type process struct {
	cmd    *exec.Cmd
	conn   net.Conn
	memory *memory
	stderr *Output
	keeper bool // cmd is the child's keeper

	mu     sync.Mutex
	reaped bool        // guarded by mu: the pid may belong to another process now
	late   *time.Timer // guarded by mu: kills a keeper that does not end
}

// keeperGrace is what a keeper has to end the child and all that it left. It is less than killWait.
const keeperGrace = 4 * time.Second

// spawn starts a child. The caller must be locked to a thread that outlives the
// child: Linux sends the parent-death signal when the *thread* that forked ends.
func spawn(cfg Config) (p *process, err error) {
	command := cfg.Command
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	mem, err := newMemory()
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	p = &process{conn: ours, memory: mem, stderr: &Output{}, keeper: cfg.Keeper}
	p.cmd = &exec.Cmd{
		Path:       command[0],
		Args:       command,
		Env:        cfg.Env,
		Stdout:     p.stderr,
		Stderr:     p.stderr,
		ExtraFiles: []*os.File{theirs, mem.file},
		// A grandchild that keeps the pipe open must not keep Wait.
		WaitDelay: time.Second,
		SysProcAttr: &syscall.SysProcAttr{
			Pdeathsig: syscall.SIGKILL,
			Setpgid:   true,
		},
	}
	if cfg.Keeper { // which ends what the child left, and then itself
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	}
	if err := p.cmd.Start(); err != nil {
		p.close()
		return nil, fmt.Errorf("starting %s: %w", command[0], err)
	}
	return p, nil
}

func socketPair() (ours net.Conn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "child")
	file := os.NewFile(uintptr(fds[0]), "parent")
	defer file.Close() // FileConn duplicates it
	ours, err = net.FileConn(file)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("socket pair: %w", err), theirs.Close())
	}
	return ours, theirs, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process: at once, or with a keeper as soon as that has ended what it keeps.
func (p *process) kill() {
	if !p.keeper {
		_ = p.cmd.Process.Kill()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.late != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.late = time.AfterFunc(keeperGrace, p.killGroup)
}

// killGroup ends the process group, and with it a keeper that does nothing.
func (p *process) killGroup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	}
}

// wait reaps the process and says how it ended. sigkill is true for a SIGKILL,
// which a process cannot get by its own fault; the caller knows whether it was
// the pool's.
func (p *process) wait() (how string, sigkill bool) {
	err := p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	if p.late != nil {
		p.late.Stop()
	}
	p.mu.Unlock()
	if st, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		sigkill = st.Signaled() && st.Signal() == syscall.SIGKILL
	}
	if err != nil {
		return err.Error(), sigkill
	}
	return "exit status 0", sigkill
}

func (p *process) close() {
	_ = p.conn.Close()
	p.memory.close()
}

// selfCommand starts the running binary again. /proc/self/exe is the file that
// runs even if an upgrade has replaced it on disk.
func selfCommand(kind string) ([]string, error) {
	path := "/proc/self/exe"
	if _, err := os.Stat(path); err != nil {
		if path, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("finding the program's own file: %w", err)
		}
	}
	return []string{path, "child", kind}, nil
}
