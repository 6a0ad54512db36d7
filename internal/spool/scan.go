package spool

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// newSegmentHead makes the head of a segment with a mark of its own.
func newSegmentHead() (b []byte, mark [markBytes]byte) {
	_, _ = rand.Read(mark[:]) // never fails
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = append(b, mark[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli())), mark
}

// readSegmentHead returns a segment's mark.
func readSegmentHead(r io.ReaderAt) (mark [markBytes]byte, err error) {
	b := make([]byte, segmentHead)
	if _, err := r.ReadAt(b, 0); err != nil {
		return mark, fmt.Errorf("%w: head of the segment: %w", errCut, err)
	}
	n := segmentHead - 4
	if string(b[:len(magic)]) != magic || crc32.Checksum(b[:n], castagnoli()) != binary.LittleEndian.Uint32(b[n:]) {
		return mark, fmt.Errorf("%w: head of the segment", ErrDamaged)
	}
	if v := binary.LittleEndian.Uint32(b[len(magic):]); v != version {
		return mark, fmt.Errorf("%w: the spool has format %d, this release reads format %d", errVersion, v, version)
	}
	copy(mark[:], b[len(magic)+4:])
	return mark, nil
}

// firstRead is how much is read of a record at once: most heads fit.
const firstRead = 1024

// readHead reads the head of the record at an offset of a segment of so many bytes.
func readHead(r io.ReaderAt, at, size int64, mark [markBytes]byte, buf []byte) (head, error) {
	buf = buf[:min(firstRead, size-at)]
	if n, err := r.ReadAt(buf, at); err != nil && (!errors.Is(err, io.EOF) || n < len(buf)) {
		return head{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(buf) < fixedBytes {
		return head{}, errCut
	}
	h, run, id, meta, err := parseFixed(buf, mark)
	if err != nil {
		return h, err
	}
	all := buf
	if h.size > int64(len(buf)) {
		if h.size > size-at {
			return h, errCut
		}
		all = make([]byte, fixedBytes+run+id+meta)
		if _, err := r.ReadAt(all, at); err != nil {
			return h, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	if err := h.parseNames(all[:h.size], run, id); err != nil {
		return h, err
	}
	if h.total() > size-at {
		return h, errCut
	}
	return h, nil
}

// scan calls found with every whole record of a segment, and skipped with what it had to
// pass over: where, and how many bytes. It returns where the records end: zeros follow in a
// file that was made before it was needed.
func scan(r io.ReaderAt, size int64, found func(h head, at int64), skipped func(at, bytes int64, why error)) (mark [markBytes]byte, end int64, err error) {
	if mark, err = readSegmentHead(r); err != nil {
		return mark, size, err
	}
	buf := make([]byte, firstRead)
	for at := int64(segmentHead); at < size; {
		h, err := readHead(r, at, size, mark, buf)
		if err == nil {
			found(h, at)
			at += h.total()
			continue
		}
		next := resync(r, at+1, size, mark, buf)
		if next == size && onlyZeros(r, at, size) {
			return mark, at, nil
		}
		skipped(at, next-at, err)
		at = next
	}
	return mark, size, nil
}

// onlyZeros reports whether a file has nothing but zeros from an offset to its end.
func onlyZeros(r io.ReaderAt, at, size int64) bool {
	buf := make([]byte, 64<<10)
	for at < size {
		n, _ := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if n == 0 || len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return false
		}
		at += int64(n)
	}
	return true
}

// resync returns where the next whole record begins; the end if there is none.
func resync(r io.ReaderAt, at, size int64, mark [markBytes]byte, buf []byte) int64 {
	window := make([]byte, 1<<20)
	for at < size {
		n, _ := r.ReadAt(window[:min(int64(len(window)), size-at)], at)
		i := bytes.Index(window[:n], mark[:])
		switch {
		case i >= 0:
			if _, err := readHead(r, at+int64(i), size, mark, buf); err == nil {
				return at + int64(i)
			}
			at += int64(i) + 1
		case n < markBytes:
			return size
		default:
			at += int64(n - markBytes + 1)
		}
	}
	return size
}
