package wire

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// Draft is a frame that arrives in pieces: a buffer of its exact size, filled from front to back. A
// Draft belongs to one goroutine at a time.
type Draft struct {
	buf     *buffer
	buffers *Buffers // nil: the buffer is the garbage collector's
	at      int
	crc     uint32
}

// Draft lends a buffer for a frame of n bytes, n ≥ 0. If p is nil, the buffer is allocated and left
// to the garbage collector. The Draft ends with Frame or Release.
func (p *Buffers) Draft(n int) *Draft {
	return &Draft{buffers: p, buf: p.get(n)}
}

// Rest returns the part of the buffer that is not filled yet. The caller fills Rest from the front.
func (d *Draft) Rest() []byte { return d.buf.b[d.at:] }

// Filled declares that the first n bytes of Rest are filled, and adds these bytes to the checksum
// while they are still in the CPU cache.
func (d *Draft) Filled(n int) {
	d.crc = crc32.Update(d.crc, castagnoli(), d.buf.b[d.at:d.at+n])
	d.at += n
}

// Frame returns the frame of the filled buffer, with one reference. The error is ErrCorrupt if the
// length or the CRC-32C differs from want, and a *FrameError if the bytes are not a frame within
// the limits. Frame ends the draft in every case.
func (d *Draft) Frame(want Checksum, lim Limits) (*Frame, error) {
	got := Checksum{Len: int64(d.at), CRC32C: d.crc}
	if got != want || len(d.Rest()) > 0 {
		d.Release()
		return nil, fmt.Errorf("%w: %d bytes with CRC-32C %08x, want %d with %08x", ErrCorrupt, got.Len, got.CRC32C, want.Len, want.CRC32C)
	}
	h, err := ReadHeader(bytes.NewReader(d.buf.b), lim)
	if err == nil && h.Size != want.Len {
		err = refuse(h.Sample.ID, fmt.Errorf("%w: frame of %d bytes, the header says %d", ErrTruncated, want.Len, h.Size))
	}
	if err != nil {
		d.Release()
		return nil, err
	}
	f := &Frame{header: h, sum: got, buf: d.buf, buffers: d.buffers}
	f.refs.Store(1)
	d.buf = nil
	return f, nil
}

// Release returns the buffer. Further calls have no effect.
func (d *Draft) Release() {
	if d.buf != nil {
		d.buffers.put(d.buf)
	}
	d.buf = nil
}
