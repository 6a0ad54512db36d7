package subprocess

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keepKind is the kind of child process that is a keeper: "child keep <grace> <command> …".
const keepKind = "keep"

// KeepCommand returns a command line of this binary that runs command under a keeper. The keeper
// ends when its parent ends or when it gets SIGTERM. It then ends the command and everything that
// the command has started, in any process group or session. The command gets SIGTERM, and SIGKILL
// after the grace period. Processes that the command leaves behind when it ends by itself get the
// same. The keeper exits with the command's exit status, or with 128 plus the number of the signal
// that ended the command.
//
// The process that starts the keeper must set Pdeathsig to SIGTERM and Setpgid, and must fork on a
// thread that outlives the keeper.
func KeepCommand(grace time.Duration, command ...string) ([]string, error) {
	self, err := selfCommand(keepKind)
	if err != nil {
		return nil, err
	}
	return append(append(self, grace.String()), command...), nil
}

// keeping is a keeper's life.
type keeping struct {
	grace time.Duration
	main  int // the command's pid
}

// keep runs the command of args, which are those behind "child keep", and returns the exit code.
func keep(args []string) int {
	grace, err := time.ParseDuration(args[0])
	if err != nil || grace <= 0 {
		fmt.Fprintf(os.Stderr, "keeper: the grace %q is not a duration above 0\n", args[0])
		return 2
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "keeper: %v\n", err)
		return 127
	}
	// The signal that a parent's end sends is of the thread that forked, and this one lives as long as the keeper.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil { // orphans become its children
		fmt.Fprintf(os.Stderr, "keeper: prctl PR_SET_CHILD_SUBREAPER: %v\n", err)
		return 2
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // a terminal's reach every process; the parent decides
	k := keeping{grace: grace}
	k.main, err = syscall.ForkExec(path, args[1:], &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "keeper: starting %s: %v\n", path, err)
		return 126
	}
	ended := make(chan int, 1)
	gone := make(chan struct{})
	go k.reap(ended, gone) // ends with the last child; sweep waits for it, or the process ends
	var code int
	select {
	case code = <-ended:
	case <-asked:
		_ = syscall.Kill(-k.main, syscall.SIGTERM)
		select {
		case code = <-ended:
		case <-time.After(k.grace):
			_ = syscall.Kill(-k.main, syscall.SIGKILL)
			code = 128 + int(syscall.SIGKILL)
		}
	}
	k.sweep(gone)
	return code
}

// reap takes the exit statuses of all children, the command's into ended, until there are none left.
func (k *keeping) reap(ended chan<- int, gone chan<- struct{}) {
	defer close(gone)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // ECHILD
			return
		case pid == k.main && status.Signaled():
			ended <- 128 + int(status.Signal())
		case pid == k.main:
			ended <- status.ExitStatus()
		}
	}
}

// sweep kills whatever is left below the keeper until nothing is, or a few seconds have passed: a process in an
// uninterruptible wait cannot be killed.
func (k *keeping) sweep(gone <-chan struct{}) {
	late := time.After(keeperGrace)
	for {
		for _, pid := range children(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // its own children become the keeper's
		}
		select {
		case <-gone:
			return
		case <-late:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// children are the pids of a process's children.
func children(parent int) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state ppid …; the name may hold spaces and brackets.
		_, rest, ok := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
