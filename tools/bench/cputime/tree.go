package cputime

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Use is what some processes, and the processes below them, have computed so far.
type Use struct {
	// Processes is the time of the processes that were named, Below that of their
	// descendants, those included that have died and were waited for.
	Processes, Below time.Duration
	// Nice is the highest niceness among the living descendants.
	Nice int
	// Descendants are those that live.
	Descendants []Descendant
}

// Descendant names a process; the number alone may belong to another one later.
type Descendant struct {
	PID   int
	start uint64 // in ticks after the boot
}

// Lives reports whether the process is still there, and is no zombie.
func (d Descendant) Lives() bool {
	l, err := readLineage(d.PID)
	return err == nil && l.start == d.start && l.state != "Z"
}

// Trees adds up what the processes that are named, and their descendants, have computed. A
// descendant that has lost its parent is nobody's.
func Trees(roots ...int) Use {
	return useOf(scan(readLineage), roots)
}

// useOf adds up a table of processes.
func useOf(all map[int]lineage, roots []int) Use {
	var u Use
	for pid, l := range all {
		if slices.Contains(roots, pid) {
			u.Processes += l.cpu
			u.Below += l.waited
			continue
		}
		for up, hops := l.parent, 0; up > 1 && hops < len(all); up, hops = all[up].parent, hops+1 {
			if slices.Contains(roots, up) {
				u.Below += l.cpu + l.waited
				u.Nice = max(u.Nice, l.nice)
				u.Descendants = append(u.Descendants, Descendant{PID: pid, start: l.start})
				break
			}
		}
	}
	return u
}

// lineage is what /proc/<pid>/stat says of a process and the children it has waited for.
type lineage struct {
	stat

	state  string
	waited time.Duration // user and system time of the children that it has waited for
	nice   int
	start  uint64
}

func readLineage(pid int) (lineage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return lineage{}, err
	}
	return parseLineage(string(text))
}

// parseLineage reads a line of proc_pid_stat(5): state is field 3, cutime and cstime are
// fields 16 and 17, nice is 19 and starttime is 22.
func parseLineage(text string) (lineage, error) {
	s, err := parseProcess(text)
	if err != nil {
		return lineage{}, err
	}
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return lineage{}, fmt.Errorf("no whole line of a process: %.60q", text)
	}
	l := lineage{stat: s, state: fields[0]}
	var n [4]int
	for i, at := range []int{13, 14, 16, 19} {
		if n[i], err = strconv.Atoi(fields[at]); err != nil {
			return lineage{}, fmt.Errorf("field %d of %.60q: %w", at+3, text, err)
		}
	}
	l.waited, l.nice, l.start = time.Duration(n[0]+n[1])*tick, n[2], uint64(n[3]) //nolint:gosec // the kernel's own number
	return l, nil
}
