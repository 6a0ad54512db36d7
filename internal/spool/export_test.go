package spool

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// Bounds of a record.
const (
	MaxMetaBytes = maxMetaBytes
	MaxNameBytes = maxNameBytes
)

// Tidy gives back what is dead, as the spool's goroutine does after it has written.
func (s *Spool) Tidy() { s.tidy() }

// Still runs f while nobody writes.
func (s *Spool) Still(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// HeadOfVersion is the head of a segment of another release.
func HeadOfVersion(v uint32) []byte {
	b, _ := newSegmentHead()
	binary.LittleEndian.PutUint32(b[len(magic):], v)
	n := len(b) - 4
	binary.LittleEndian.PutUint32(b[n:], crc32.Checksum(b[:n], castagnoli()))
	return b
}

// Scan reads a segment and returns how many bytes were in records and how many passed over.
func Scan(r io.ReaderAt, size int64) (found, skipped int64, err error) {
	_, end, err := scan(r, size,
		func(h head, at int64) {
			if h.total() <= 0 || at+h.total() > size || int64(len(h.run)+len(h.id)+len(h.meta)) > h.total() {
				panic("a record beyond its file")
			}
			found += h.total()
		}, func(_, n int64, _ error) { skipped += n })
	return found, skipped + size - end, err
}

// Segment encodes a segment with these records.
func Segment(records ...Record) []byte {
	b, mark := newSegmentHead()
	for i := range records {
		r := &records[i]
		r.Sum = crc32.Checksum(r.Body, castagnoli())
		b = append(appendHead(b, mark, r, uint64(i)+1), r.Body...)
	}
	return b
}

// File is what a segment is written through.
type File = file

// Create opens a file for writing, as a Spool does.
func Create(path string, flag int) (File, error) { return create(path, flag) }

// Over returns a configuration whose files are opened by create.
func (c Config) Over(create func(path string, flag int) (File, error)) Config {
	c.create = create
	return c
}

// For the tests of the package alone.
var (
	ErrClosed  = errClosed
	ErrVersion = errVersion
)
