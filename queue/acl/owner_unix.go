//go:build unix

package acl

import (
	"os"
	"syscall"
)

// othersMay reports whether others than this process's user may touch the file.
func othersMay(info os.FileInfo) bool {
	owner := -1
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(s.Uid)
	}
	return tooOpen(info.Mode().Perm(), owner, os.Geteuid())
}

// tooOpen wants a secret to be its owner's alone. One that root has put there for
// another user may be read by that user's group, for no stricter mode reaches it:
// Kubernetes mounts secrets so.
func tooOpen(mode os.FileMode, owner, me int) bool {
	if owner == 0 && me != 0 {
		return mode&0o037 != 0
	}
	return mode&0o077 != 0
}
