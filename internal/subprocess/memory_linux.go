package subprocess

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// memoryStep is the granularity of the shared memory: a 512x512 RGB picture
// needs 768 KiB, so most children are sized once.
const memoryStep = 1 << 20

// memory is the parent's side of the memory shared with one child. It is owned
// by whoever holds the child and is written only while the child is idle.
type memory struct {
	file *os.File
	data []byte // the mapping; its length is the capacity
}

func newMemory() (*memory, error) {
	fd, err := unix.MemfdCreate("rewardloop-child", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd: %w", err)
	}
	return &memory{file: os.NewFile(uintptr(fd), "rewardloop-child")}, nil
}

// fill makes the memory large enough and writes the parts to its start.
func (m *memory) fill(parts [][]byte) (length int, err error) {
	for _, p := range parts {
		length += len(p)
	}
	if length > len(m.data) || (len(m.data) > memoryKeep && length <= memoryKeep) {
		if err := m.resize((length + memoryStep - 1) / memoryStep * memoryStep); err != nil {
			return 0, err
		}
	}
	at := 0
	for _, p := range parts {
		at += copy(m.data[at:], p)
	}
	return length, nil
}

func (m *memory) capacity() int { return len(m.data) }

// resize drops the old mapping first, so that shrinking really gives memory back.
// The child remaps when it sees another capacity in the next request.
func (m *memory) resize(capacity int) error {
	if err := m.unmap(); err != nil {
		return err
	}
	if err := unix.Ftruncate(int(m.file.Fd()), int64(capacity)); err != nil {
		return fmt.Errorf("sizing the shared memory to %d bytes: %w", capacity, err)
	}
	if capacity == 0 {
		return nil
	}
	data, err := unix.Mmap(int(m.file.Fd()), 0, capacity, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %d bytes of shared memory: %w", capacity, err)
	}
	m.data = data
	return nil
}

func (m *memory) unmap() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmapping the shared memory: %w", err)
	}
	return nil
}

func (m *memory) close() {
	_ = m.unmap()
	_ = m.file.Close()
}

// mapping is the child's side: read-only, remapped when the capacity changes.
type mapping struct {
	fd   int
	data []byte
}

func (m *mapping) view(capacity, length int) ([]byte, error) {
	if length < 0 || capacity < length {
		return nil, fmt.Errorf("%w: %d bytes of pixels in a memory of %d", errFrame, length, capacity)
	}
	if len(m.data) != capacity {
		if m.data != nil {
			if err := unix.Munmap(m.data); err != nil {
				return nil, fmt.Errorf("unmapping the shared memory: %w", err)
			}
			m.data = nil
		}
		if capacity > 0 {
			data, err := unix.Mmap(m.fd, 0, capacity, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return nil, fmt.Errorf("mapping %d bytes of shared memory: %w", capacity, err)
			}
			m.data = data
		}
	}
	return m.data[:length:length], nil
}
