package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tick is a hundredth of a second, in which /proc counts (proc(5); USER_HZ is 100 on
// every platform that Go runs on).
const tick = 10 * time.Millisecond

// stat is what /proc/<pid>/stat says of a process.
type stat struct {
	parent int
	cpu    time.Duration // in user code and in the system
}

// parseStat reads a line of proc_pid_stat(5). The name, in brackets, may hold anything.
func parseStat(text string) (stat, error) {
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

// children is what the child processes of this one that live, and theirs, have
// computed so far. Those named, and theirs, are left out.
func children(except ...int) time.Duration {
	all := map[int]stat{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a good one
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if s, err := parseStat(string(text)); err == nil {
			all[pid] = s
		}
	}
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

// machine is what all processes have computed so far; 0 where the system does not tell.
func machine() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 4 || fields[0] != "cpu" {
		return 0
	}
	var sum time.Duration
	for _, f := range fields[1:4] { // user, nice, system
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		sum += time.Duration(n) * tick
	}
	return sum
}
