package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// This file is about frames and results that are kept in a file and read again.

// JSON is the frame's header as it came, without its length. It must not be changed.
func (h *Header) JSON() []byte { return h.raw[prefixBytes:] }

// Parts is how many pieces the data of a media have: the frames of a video that are encoded one by one, else 1.
func (h *Header) Parts(media int) int { return len(h.spans[media]) }

// Data is what follows the header in the frame. It is valid until the release.
func (f *Frame) Data() []byte {
	f.held()
	return f.buf.b[len(f.header.raw):]
}

// Restore makes the frame of a header, as JSON gives it, and the data that followed it. Without data the frame of a sample that had
// media has the header only: its Header may be read, and Sample must not be called.
func Restore(header, data []byte) (*Frame, error) {
	raw := binary.LittleEndian.AppendUint64(make([]byte, 0, prefixBytes+len(header)+len(data)), uint64(len(header)))
	raw = append(append(raw, header...), data...)
	h, err := ReadHeader(bytes.NewReader(raw), Limits{HeaderBytes: MaxHeaderBytes, MessageBytes: math.MaxInt64 / 2})
	if err != nil {
		return nil, err
	}
	if len(data) > 0 && h.Size != int64(len(raw)) {
		return nil, fmt.Errorf("%w: %d bytes of data follow the header, which says %d", ErrTruncated, len(data), h.Size-int64(len(h.raw)))
	}
	f := &Frame{header: h, buf: &buffer{b: raw, class: -1}}
	f.refs.Store(1)
	return f, nil
}

// Whole reports whether a restored frame has all of its data.
func (f *Frame) Whole() bool { return f.header.Size == int64(len(f.buf.b)) }

// EncodeResult writes a result as the message that a client gets.
func EncodeResult(r *Result) ([]byte, error) { return appendResult(make([]byte, 0, 512), r) }

// AppendResult is EncodeResult behind what out has.
func AppendResult(out []byte, r *Result) ([]byte, error) { return appendResult(out, r) }

// DecodeResult reads what EncodeResult wrote.
func DecodeResult(data []byte) (*Result, error) {
	if r, ok := fastResult(data); ok {
		return r, nil
	}
	r := new(Result)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("a kept result: %w", err)
	}
	return r, nil
}
