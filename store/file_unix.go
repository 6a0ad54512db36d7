//go:build unix

package store

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock of a file for this process, until it is closed.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the configuration names it
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil { //nolint:gosec // a descriptor
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrInUse
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openCounter maps the counter of a file into memory.
func openCounter(path string) (*counter, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the configuration names it
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Written, not only made longer: a store into a hole of a full disk would end the process.
	var now [counterSize]byte
	_, _ = f.ReadAt(now[:], 0) // a new file has none
	if _, err := f.WriteAt(now[:], 0); err != nil {
		return nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, counterSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) //nolint:gosec // a descriptor
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &counter{mem: mem}, nil
}

func (c *counter) close() error { return unix.Munmap(c.mem) }
