package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// peakOf is the most that processes had in memory, with what they have started: the sum of each
// one's peak, in bytes. A process that only keeps another one, which it has forked, counts for
// nothing: what the two have they share. 0: the system does not say.
func peakOf(pids []int) (sum int64) {
	for i := 0; i < len(pids); i++ {
		below := childrenOf(pids[i])
		if len(below) == 0 || !isKeeper(pids[i], below) {
			sum += peak(pids[i])
		}
		pids = append(slices.Clip(pids), below...)
	}
	return sum
}

// isKeeper says whether a process runs the same program as its only child, with the same words.
func isKeeper(pid int, below []int) bool {
	if len(below) != 1 {
		return false
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	theirs, err2 := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", below[0]))
	return err == nil && err2 == nil && string(own) == string(theirs)
}

func childrenOf(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// peak is the most that a process had in memory; 0: nobody knows.
func peak(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
