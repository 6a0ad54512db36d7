// Package memory returns the memory of the machine and the limit of this process's control group.
package memory

// unknown is what a process is taken to have where nobody says.
const unknown = 4 << 30

// Limit returns how many bytes of memory this process may use: the limit of its control group, or
// else the memory of the machine. If both are unknown, Limit returns 4 GiB.
func Limit() int64 {
	total, _, limit := Read()
	switch {
	case limit > 0 && (total == 0 || limit < total):
		return limit
	case total > 0:
		return total
	}
	return unknown
}
