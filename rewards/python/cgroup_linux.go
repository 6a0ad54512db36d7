package python

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// cgroup is a control group (version 2) for one process and all that it starts, with a
// limit of memory. A nil one does nothing.
type cgroup struct {
	path string
	dir  *os.File
}

// groups counts those that were made, for their names.
//
//nolint:gochecknoglobals // names must differ in the whole process
var groups atomic.Uint64

// newCgroup makes a control group with a limit in bytes; nil where this process may not.
func newCgroup(limit int64) *cgroup {
	return newCgroupIn(cgroupParent("/sys/fs/cgroup", "/proc/self/cgroup"), limit)
}

func newCgroupIn(parent string, limit int64) *cgroup {
	if parent == "" {
		return nil
	}
	path := filepath.Join(parent, "rewardloop-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatUint(groups.Add(1), 10))
	if os.Mkdir(path, 0o755) != nil {
		return nil
	}
	g := &cgroup{path: path}
	set := func(file, value string) bool {
		return os.WriteFile(filepath.Join(path, file), []byte(value), 0o600) == nil
	}
	_ = set("memory.swap.max", "0")  // else what is over the limit is swapped out; no swap, no file
	_ = set("memory.oom.group", "1") // all of it or nothing; Linux 4.19
	if !set("memory.max", strconv.FormatInt(limit, 10)) {
		g.remove()
		return nil
	}
	var err error
	if g.dir, err = os.Open(path); err != nil {
		g.remove()
		return nil
	}
	return g
}

// cgroupParent finds where control groups with a limit of memory may be made without
// touching that of this process: in its own, where that gives memory to groups below it
// already (only a root has both these and processes), or beside it, in a group that was
// delegated to this process and gives memory. systemd does that with Delegate=memory and
// DelegateSubgroup=. It returns "" for nowhere.
func cgroupParent(mount, self string) string {
	text, err := os.ReadFile(self)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		own, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		if at := filepath.Join(mount, own); gives(at) {
			return at
		}
		if parent := filepath.Join(mount, filepath.Dir(own)); own != "/" && delegated(parent) && gives(parent) {
			return parent
		}
	}
	return ""
}

// gives reports whether groups below one have a limit of memory, and may be made.
func gives(path string) bool {
	text, err := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
	return err == nil && slices.Contains(strings.Fields(string(text)), "memory") && unix.Access(path, unix.W_OK) == nil
}

// delegated reports whether whoever manages control groups here has left one to this
// process: systemd marks it, or gives it to its user.
func delegated(path string) bool {
	for _, mark := range []string{"user.delegate", "trusted.delegate"} {
		value := make([]byte, 8)
		if n, err := unix.Getxattr(path, mark, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	var st unix.Stat_t
	return os.Geteuid() != 0 && unix.Stat(path, &st) == nil && int(st.Uid) == os.Geteuid()
}

// ranOut reports whether the kernel ended a process for the group's limit.
func (g *cgroup) ranOut() bool {
	if g == nil {
		return false
	}
	text, _ := os.ReadFile(filepath.Join(g.path, "memory.events"))
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strings.TrimSpace(n) != "0"
		}
	}
	return false
}

// kill ends all processes of the group (Linux 5.14).
func (g *cgroup) kill() {
	if g != nil {
		_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0o600)
	}
}

// remove takes the group away; its processes have ended.
func (g *cgroup) remove() {
	if g == nil {
		return
	}
	if g.dir != nil {
		_ = g.dir.Close()
	}
	_ = os.Remove(g.path) // one that still has a process stays, empty of meaning
}
