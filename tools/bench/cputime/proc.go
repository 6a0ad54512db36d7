package cputime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is a hundredth of a second, in which /proc counts (USER_HZ is 100 on every platform
// that Go runs on).
const tick = 10 * time.Millisecond

// Machine is what all processes have computed so far, in user code and in the system.
func Machine() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	d, err := parseMachine(string(text))
	if err != nil {
		return 0
	}
	return d
}

// parseMachine adds user, nice and system of the first line (proc_stat(5)).
func parseMachine(text string) (time.Duration, error) {
	fields := strings.Fields(text)
	if len(fields) < 4 || fields[0] != "cpu" {
		return 0, fmt.Errorf("no line of all processors in %.40q", text)
	}
	var sum time.Duration
	for _, f := range fields[1:4] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// Process is what a process has computed so far, in user code and in the system.
func Process(pid int) time.Duration {
	s, _ := read(fmt.Sprintf("/proc/%d/stat", pid)) // 0 for one that has ended
	return s.cpu
}

// scan reads every process that there is; one that has ended meanwhile is left out.
func scan[T any](read func(pid int) (T, error)) map[int]T {
	all := map[int]T{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, path := range paths {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if one, err := read(pid); err == nil {
			all[pid] = one
		}
	}
	return all
}

// Children is what the child processes of this one that live, and theirs, have computed so
// far. Those named, and theirs, are left out.
func Children(except ...int) time.Duration {
	all := scan(func(pid int) (stat, error) { return read(fmt.Sprintf("/proc/%d/stat", pid)) })
	var sum time.Duration
	for pid, s := range all {
		for up := pid; up > 1 && !slices.Contains(except, up); up = all[up].parent {
			if all[up].parent == os.Getpid() {
				sum += s.cpu
				break
			}
		}
	}
	return sum
}

// stat is what /proc/<pid>/stat says of a process.
type stat struct {
	parent int
	cpu    time.Duration // in user code and in the system
}

func read(path string) (stat, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	return parseProcess(string(text))
}

// parseProcess reads a line of proc_pid_stat(5). The name, in brackets, may hold anything.
func parseProcess(text string) (stat, error) {
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 13 {
		return stat{}, fmt.Errorf("no line of a process: %.60q", text)
	}
	var n [3]int
	for i, at := range []int{1, 11, 12} { // ppid, utime, stime
		v, err := strconv.Atoi(fields[at])
		if err != nil {
			return stat{}, fmt.Errorf("field %d of %.60q: %w", at, text, err)
		}
		n[i] = v
	}
	return stat{parent: n[0], cpu: time.Duration(n[1]+n[2]) * tick}, nil
}
