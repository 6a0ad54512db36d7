package wire

import (
	"bytes"
	"fmt"
	"hash/crc32"
)

// Draft is a frame that arrives in pieces: a buffer of its exact size, filled from front to
// back. It belongs to one goroutine at a time.
type Draft struct {
	buf     *buffer
	buffers *Buffers // nil: the buffer is the garbage collector's
	at      int
	crc     uint32
}

// Draft lends a buffer for a frame of n bytes, n ≥ 0; of a nil Buffers it is the garbage
// collector's. It ends with Frame or Release.
func (p *Buffers) Draft(n int) *Draft {
	return &Draft{buffers: p, buf: p.get(n)}
}

// Rest returns the bytes that have not come yet, to be written from the front.
func (d *Draft) Rest() []byte { return d.buf.b[d.at:] }

// Filled says that the first n bytes of Rest are there. It takes them into the checksum while
// they are still in the cache.
func (d *Draft) Filled(n int) {
	d.crc = crc32.Update(d.crc, castagnoli(), d.buf.b[d.at:d.at+n])
	d.at += n
}

// Frame makes the frame of the filled buffer, with one reference. If length or CRC-32C are not
// those of want it is ErrCorrupt, and a *FrameError if the bytes are no frame within the
// limits. The draft has ended either way.
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

// Release gives the buffer back. Further calls do nothing.
func (d *Draft) Release() {
	if d.buf != nil {
		d.buffers.put(d.buf)
	}
	d.buf = nil
}
