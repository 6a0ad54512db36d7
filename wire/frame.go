package wire

import (
	"hash/crc32"
	"strconv"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/rewards"
)

// Frame is a received sample: one buffer with header and data, counted by
// references. It is safe for concurrent use; its bytes are read-only.
type Frame struct {
	header  *Header
	sum     Checksum
	buf     *buffer
	buffers *Buffers // nil: the buffer is the garbage collector's
	refs    atomic.Int32
	gone    func() // called after the last release; set before the frame is shared
}

// Checksum tells whether two frames are the same bytes.
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

// Retain adds a reference and returns the frame. It panics on a frame that is
// already released: whoever retains must hold a reference or be lent one.
func (f *Frame) Retain() *Frame {
	f.count(1, "retained after its release")
	return f
}

// Release gives a reference back; the last one returns the buffer. It panics if
// there was none.
func (f *Frame) Release() {
	if f.count(-1, "released more often than retained") > 0 {
		return
	}
	f.buffers.put(f.buf)
	if f.gone != nil {
		f.gone()
	}
}

// OnRelease has fn called after the last reference is given back, once. It must be
// set by whoever made the frame, before anybody else has it.
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

// Sum returns length and CRC-32C of the whole frame.
func (f *Frame) Sum() Checksum { return f.sum }

// Bytes returns the frame as it travels. It is valid until the release.
func (f *Frame) Bytes() []byte {
	f.held()
	return f.buf.b
}

// Sample returns a new view of the sample: its own Sample and Media, so that
// decoded pixels are not shared between views, with data that alias the frame and
// are valid until the release. A tensor may lie at an odd address; it is bytes
// and must not be cast to a wider type.
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
