// Package memory returns the memory of the machine and the limit of this process's control group.
package memory

// unknown is what a process is taken to have where nobody says.
const unknown = 4 << 30

// Limit is how many bytes this process may have: by its control group, else all that the
// machine has.
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
