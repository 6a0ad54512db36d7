package wire

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// readChunk is how much of a body is read before its checksum is taken: small
// enough to be still in the cache.
const readChunk = 256 << 10

// ReadBody reads the rest of the frame from r, until EOF, into one buffer from b (nil: a new
// buffer). A body that is shorter or longer than the header requires is refused as a *FrameError;
// any other error is that of r. The Frame has one reference.
func (h *Header) ReadBody(r io.Reader, b *Buffers) (*Frame, error) {
	f := h.newFrame(b)
	copy(f.buf.b, h.raw)
	sum, err := h.readBody(r, func(at, n int) []byte { return f.buf.b[at : at+n] })
	if err != nil {
		f.Release()
		return nil, err
	}
	f.sum = sum
	return f, nil
}

// ReadSum reads the rest of the frame from r, until EOF, and returns the checksum of the whole
// frame without keeping the data. The errors are those of ReadBody.
func (h *Header) ReadSum(r io.Reader) (Checksum, error) {
	chunk := make([]byte, min(readChunk, h.Size))
	return h.readBody(r, func(_, n int) []byte { return chunk[:n] })
}

// readBody reads what follows the header into the buffers that into names for the n bytes
// at an offset of the frame.
func (h *Header) readBody(r io.Reader, into func(at, n int) []byte) (Checksum, error) {
	sum := Checksum{Len: h.Size, CRC32C: crc32.Checksum(h.raw, castagnoli())}
	for at, size := len(h.raw), int(h.Size); at < size; {
		chunk := into(at, min(readChunk, size-at))
		n, err := io.ReadFull(r, chunk)
		at += n
		if err != nil {
			return sum, readError(h.Sample.ID, err, fmt.Sprintf("%d of %d bytes of the frame", at, h.Size))
		}
		sum.CRC32C = crc32.Update(sum.CRC32C, castagnoli(), chunk)
	}
	var one [1]byte
	if n, err := io.ReadFull(r, one[:]); n > 0 {
		return sum, refuse(h.Sample.ID, fmt.Errorf("%w of the frame of %d bytes", ErrTrailing, h.Size))
	} else if !errors.Is(err, io.EOF) {
		return sum, readError(h.Sample.ID, err, fmt.Sprintf("all %d bytes of the frame", h.Size))
	}
	return sum, nil
}

// Decode reads a frame from memory. The Frame owns data afterwards: data is not copied and must not
// change. A refusal is a *FrameError.
func Decode(data []byte, lim Limits) (*Frame, error) {
	r := bytes.NewReader(data)
	h, err := ReadHeader(r, lim)
	if err != nil {
		return nil, err
	}
	if h.Size != int64(len(data)) {
		cause := ErrTruncated
		if int64(len(data)) > h.Size {
			cause = ErrTrailing
		}
		return nil, refuse(h.Sample.ID, fmt.Errorf("%w: frame of %d bytes, the header says %d", cause, len(data), h.Size))
	}
	f := &Frame{header: h, buf: &buffer{b: data, class: -1}}
	f.sum = Checksum{Len: h.Size, CRC32C: crc32.Checksum(data, castagnoli())}
	f.refs.Store(1)
	return f, nil
}

// NewFrame returns the frame of a message, for a submitter in the same process. NewFrame copies the
// parts into a buffer from b (nil: a new buffer); afterwards the sample's media may change. The
// Frame has one reference.
func NewFrame(m *Message, b *Buffers) (*Frame, error) {
	h, err := ReadHeader(bytes.NewReader(m.Head), Limits{MessageBytes: math.MaxInt64 / 2})
	if err != nil {
		return nil, err
	}
	if h.Size != m.Size() || len(h.raw) != len(m.Head) {
		return nil, refuse(h.Sample.ID, fmt.Errorf("%w: message of %d bytes, the header says %d", ErrTruncated, m.Size(), h.Size))
	}
	f := h.newFrame(b)
	at := copy(f.buf.b, m.Head)
	for _, p := range m.Parts {
		f.sum.CRC32C = crc32.Update(f.sum.CRC32C, castagnoli(), p)
		at += copy(f.buf.b[at:], p)
	}
	return f, nil
}

// castagnoli returns the table of CRC-32C, which package crc32 keeps.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
