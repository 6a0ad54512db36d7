package verify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// limit is one of setrlimit(2).
type limit struct {
	resource   int
	name       string
	soft, hard uint64
}

// limits are those of one run.
func (o *commandOptions) limits() []limit {
	both := func(resource int, name string, n, unit int) limit {
		most := uint64(n) * uint64(unit) // the options have been checked: none is negative
		return limit{resource, name, most, most}
	}
	cpu := both(unix.RLIMIT_CPU, "cpu_seconds", o.CPUSeconds, 1)
	cpu.hard++ // at the soft one comes SIGXCPU, which tells why
	out := []limit{
		both(unix.RLIMIT_CORE, "core", 0, 1), // a crash must not write the whole address space
		both(unix.RLIMIT_AS, "memory_mb", o.MemoryMB, 1<<20),
		both(unix.RLIMIT_NOFILE, "files", o.Files, 1),
		both(unix.RLIMIT_FSIZE, "file_mb", o.FileMB, 1<<20),
		cpu,
	}
	if now, err := tasks(); err == nil {
		out = append(out, both(unix.RLIMIT_NPROC, "processes", now+o.Processes, 1))
	}
	return out
}

// tasks is the number of processes and threads of the machine. RLIMIT_NPROC compares
// with those of the user, of which there are no more.
func tasks() (int, error) {
	text, err := os.ReadFile("/proc/loadavg") // 0.20 0.18 0.12 1/80 11206
	if err != nil {
		return 0, err // names the file
	}
	if fields := bytes.Fields(text); len(fields) > 3 {
		_, total, _ := bytes.Cut(fields[3], []byte("/"))
		return strconv.Atoi(string(total)) // the caller asks only whether
	}
	return 0, errors.New("/proc/loadavg has no count of tasks")
}

// set limits a process. A hard limit that is lower already stays; a process that has
// ended needs none.
func (l limit) set(pid int) error {
	var now unix.Rlimit
	err := unix.Prlimit(pid, l.resource, nil, &now)
	if err == nil {
		want := unix.Rlimit{Cur: min(l.soft, now.Max), Max: min(l.hard, now.Max)}
		err = unix.Prlimit(pid, l.resource, &want, nil)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}
