package python

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultMemory is a quarter of what the machine has, or the container: two functions
// that are beside themselves leave half of it to the server and its models.
func defaultMemory() int64 {
	var info unix.Sysinfo_t
	total := int64(math.MaxInt64)
	if unix.Sysinfo(&info) == nil {
		total = int64(info.Totalram) * int64(info.Unit)
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if n, err := readNumber(file); err == nil && n > 0 {
			total = min(total, n)
		}
	}
	return max(total/4, minMemory)
}

// readNumber reads a file that holds one; "max" is an error.
func readNumber(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// resident is the memory of a process and all below it, in bytes. Pages that several
// of them share count once, if their plain sum is over the limit: to ask for that, the
// kernel walks their page tables.
func resident(root int, limit int64) int64 {
	tree := below(root)
	var sum int64
	for _, pid := range tree {
		sum += statm(pid)
	}
	if sum <= limit {
		return sum
	}
	sum = 0
	for _, pid := range tree {
		sum += proportional(pid)
	}
	return sum
}

// below lists a process and its descendants. One that starts meanwhile may be missing.
func below(root int) []int {
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", tree[i]))
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for field := range strings.FieldsSeq(string(text)) {
				if pid, err := strconv.Atoi(field); err == nil {
					tree = append(tree, pid)
				}
			}
		}
	}
	return tree
}

// statm is a process's resident memory with what it shares; 0 if it has ended.
func statm(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if fields := bytes.Fields(text); len(fields) > 1 {
		pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
		return pages * int64(os.Getpagesize())
	}
	return 0
}

// proportional is a process's part of the memory that it has or shares; where the
// kernel does not say it, all of that.
func proportional(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil {
				return kib << 10
			}
		}
	}
	return statm(pid)
}
