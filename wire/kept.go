package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// This file is about frames and results that are kept in a file and read again.

// JSON returns the frame's header as it was received, without its length. The caller must not change the bytes.
func (h *Header) JSON() []byte { return h.raw[prefixBytes:] }

// Parts returns the number of tensors of a media entry: the number of frames for a video whose frames are
// encoded one by one, else 1.
func (h *Header) Parts(media int) int { return len(h.spans[media]) }

// Data returns the bytes that follow the header in the frame. The bytes are valid until the release.
func (f *Frame) Data() []byte {
	f.held()
	return f.buf.b[len(f.header.raw):]
}

// Restore returns the frame of a header, as returned by JSON, and the data that followed it. If data is empty
// and the sample has media, the frame contains only the header: Header may be called, and Sample must not be
// called.
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

// EncodeResult returns the JSON of a result, as it is sent to a client.
func EncodeResult(r *Result) ([]byte, error) { return appendResult(make([]byte, 0, 512), r) }

// AppendResult appends the JSON of a result to out.
func AppendResult(out []byte, r *Result) ([]byte, error) { return appendResult(out, r) }

// DecodeResult reads the JSON of EncodeResult.
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
