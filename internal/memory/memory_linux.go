package memory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Read returns the total and the available memory of the machine and the limit of the control
// group, in bytes. 0 means unknown; a limit of 0 also means no limit.
func Read() (total, available, limit int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, cgroupLimit()
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		switch {
		case err != nil:
		case f[0] == "MemTotal:":
			total = kib << 10
		case f[0] == "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available, cgroupLimit()
}

// cgroupLimit is the lowest limit of this process's cgroup and the root it sees, of
// cgroups version 2 and 1.
func cgroupLimit() int64 {
	files := []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}
	b, _ := os.ReadFile("/proc/self/cgroup") // without it the roots remain
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[1] == "":
			files = append(files, filepath.Join("/sys/fs/cgroup", f[2], "memory.max"))
		case f[1] == "memory":
			files = append(files, filepath.Join("/sys/fs/cgroup/memory", f[2], "memory.limit_in_bytes"))
		}
	}
	var limit int64
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		// Version 2 writes "max", version 1 a number near the largest for no limit.
		if err == nil && n < 1<<60 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}
