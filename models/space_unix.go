//go:build darwin || linux

package models

import "syscall"

// FreeSpace returns the number of bytes that this user may still write below a folder.
func FreeSpace(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:gosec,unconvert // 2^63 bytes; the types differ from system to system.
}
