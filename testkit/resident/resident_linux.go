package resident

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Beyond is the memory that a process may use in addition to its budgets, for its program, stacks,
// connections, and garbage.
const Beyond = 150 << 20

// Peak returns the sum of the peak resident memory, in bytes, of a process and all its descendants.
// Processes that have ended do not count.
func Peak(pid int) (int64, error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return 0, fmt.Errorf("process %d: %w", pid, err)
	}
	_, rest, found := strings.Cut(string(status), "\nVmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); !found || err != nil {
		return 0, fmt.Errorf("process %d: no VmHWM in its status", pid)
	}
	sum := kib << 10
	lists, err := filepath.Glob(filepath.Join(folder, "task", "*", "children"))
	if err != nil {
		return 0, err
	}
	for _, list := range lists {
		children, _ := os.ReadFile(list) // a thread may have ended
		for name := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(name)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", list, err)
			}
			below, _ := Peak(child) // it may have ended
			sum += below
		}
	}
	return sum, nil
}
