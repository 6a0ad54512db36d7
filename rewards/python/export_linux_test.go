package python

// What a test of control groups needs.
var (
	CgroupParent = cgroupParent
	NewCgroupIn  = newCgroupIn
)

// RanOut reports whether the kernel ended a process for the group's limit.
func (g *cgroup) RanOut() bool { return g.ranOut() }
