package wire

import (
	"hash/crc32"
	"strconv"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/rewards"
)

// Frame is a received sample: one buffer with header and data, and a reference count. A Frame is
// safe for concurrent use; the bytes are read-only.
type Frame struct {
	header  *Header
	sum     Checksum
	buf     *buffer
	buffers *Buffers // nil: the buffer is the garbage collector's
	refs    atomic.Int32
	gone    func() // called after the last release; set before the frame is shared
}

// Checksum is the length and the CRC-32C of a frame. Frames with equal checksums are treated as the
// same bytes.
type Checksum struct {
	Len    int64
	CRC32C uint32
}

// newFrame takes a buffer of the frame's size and begins the checksum with the header.
func (h *Header) newFrame(b *Buffers) *Frame {
	f := &Frame{header: h, buffers: b, buf: b.get(int(h.Size))}
	f.sum = Checksum{Len: h.Size, CRC32C: crc32.Checksum(h.raw, castagnoli())}
	f.refs.Store(1)
	return f
}

// Retain adds a reference and returns the frame. The caller must own a reference or use the frame
// within a call that owns a reference. Retain panics if the frame is already released.
func (f *Frame) Retain() *Frame {
	f.count(1, "retained after its release")
	return f
}

// Release removes a reference; the last call returns the buffer. Release panics if there is no
// reference.
func (f *Frame) Release() {
	if f.count(-1, "released more often than retained") > 0 {
		return
	}
	f.buffers.put(f.buf)
	if f.gone != nil {
		f.gone()
	}
}

// OnRelease sets a function that is called once, after the last reference is released. The function
// must be set before the frame is shared.
func (f *Frame) OnRelease(fn func()) { f.gone = fn }

// count changes the number of references and returns it. A frame without any stays
// as it is, so that misuse whose panic is recovered cannot bring it back to life.
func (f *Frame) count(by int32, misuse string) int32 {
	for {
		n := f.refs.Load()
		if n < 1 {
			f.misuse(misuse)
		}
		if f.refs.CompareAndSwap(n, n+by) {
			return n + by
		}
	}
}

// Header returns the frame's header, which stays valid after the release.
func (f *Frame) Header() *Header { return f.header }

// Size returns the length of the frame in bytes.
func (f *Frame) Size() int64 { return f.header.Size }

// Sum returns the length and CRC-32C of the whole frame.
func (f *Frame) Sum() Checksum { return f.sum }

// Bytes returns the bytes of the frame as received. The bytes are valid until the release.
func (f *Frame) Bytes() []byte {
	f.held()
	return f.buf.b
}

// Sample returns a new view of the sample, with its own Sample and Media, so that decoded pixels
// are not shared between views. The data alias the frame and are valid until the release. A tensor
// may begin at an odd address; do not cast its bytes to a wider type.
func (f *Frame) Sample() *rewards.Sample {
	f.held()
	h := f.header
	s := h.Sample
	if len(h.Sample.Media) == 0 {
		return &s
	}
	data := f.buf.b[len(h.raw):]
	media := make([]rewards.Media, len(h.Sample.Media))
	s.Media = make([]*rewards.Media, len(media))
	for i, from := range h.Sample.Media {
		m := &media[i]
		m.Kind, m.Layout, m.Encoding = from.Kind, from.Layout, from.Encoding
		m.DType, m.Shape = from.DType, from.Shape
		m.FPS, m.SampleRate = from.FPS, from.SampleRate
		if m.Encoding == rewards.Frames {
			m.Frames = make([][]byte, 0, len(h.spans[i]))
			for _, at := range h.spans[i] {
				m.Frames = append(m.Frames, data[at.begin:at.end:at.end])
			}
		} else {
			at := h.spans[i][0]
			m.Data = data[at.begin:at.end:at.end]
		}
		s.Media[i] = m
	}
	return &s
}

func (f *Frame) held() {
	if f.refs.Load() < 1 {
		f.misuse("used after its release")
	}
}

func (f *Frame) misuse(what string) {
	panic("wire: frame of sample " + strconv.Quote(f.header.Sample.ID) + " " + what)
}
