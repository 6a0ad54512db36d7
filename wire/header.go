package wire

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// Limits are the limits of a reader. A field that is 0 has its default.
type Limits struct {
	// HeaderBytes limits the JSON header. Default and maximum are 1 MiB.
	HeaderBytes int64
	// MessageBytes limits the whole frame. The default is 256 MiB.
	MessageBytes int64
}

// Fixed limits of the format.
const (
	MaxHeaderBytes = 1 << 20
	// MaxNameBytes limits id, run, uid, reward and the names of tensors.
	MaxNameBytes = 512
	// MaxDeadline limits deadline_ms.
	MaxDeadline = 7 * 24 * time.Hour
	// MaxTensors limits the tensors of a frame. Every encoded frame of a video is a tensor.
	MaxTensors = 4096
	// MaxMedia limits the media entries of a sample.
	MaxMedia = 64

	prefixBytes = 8
	metadataKey = "__metadata__"
)

// WithDefaults returns a copy of l in which fields that are 0 have their defaults.
func (l Limits) WithDefaults() Limits {
	l.HeaderBytes = cmp.Or(l.HeaderBytes, MaxHeaderBytes)
	l.MessageBytes = cmp.Or(l.MessageBytes, 256<<20)
	return l
}

// Validate returns an error that joins everything that is wrong with l.
func (l Limits) Validate() error {
	var errs rewards.Faults
	errs.Add(l.HeaderBytes < 2 || l.HeaderBytes > MaxHeaderBytes, "header_bytes is %d, want 2 to %d", l.HeaderBytes, MaxHeaderBytes)
	errs.Add(l.MessageBytes < prefixBytes+2 || l.MessageBytes > math.MaxInt64/2, "message_bytes is %d, want %d or more", l.MessageBytes, prefixBytes+2)
	return errors.Join(errs...)
}

// Header is the checked header of a frame. A Header is immutable.
type Header struct {
	// Sample contains the sample's fields. The Media have kind, layout, dtype, shape and their
	// other fields, but no data.
	Sample rewards.Sample
	// Deadline is the maximum time from the sample's arrival to its result. 0: the receiver's
	// default.
	Deadline time.Duration
	// Size is the length of the whole frame.
	Size int64

	raw   []byte   // length prefix and JSON header as they came
	spans [][]span // for every media entry its tensors' places in the data
}

// span is a half-open range of the data section.
type span struct{ begin, end int64 }

// ReadHeader reads a frame's header from r and checks everything that does not depend on the data.
// ReadHeader reads nothing beyond the header and allocates in proportion to the bytes that have
// arrived. A refusal is a *FrameError; any other error is that of r.
func ReadHeader(r io.Reader, lim Limits) (*Header, error) {
	lim = lim.WithDefaults()
	raw := make([]byte, prefixBytes, 1024)
	if n, err := io.ReadFull(r, raw); err != nil {
		return nil, readError("", err, fmt.Sprintf("%d of %d bytes of the length", n, prefixBytes))
	}
	size := binary.LittleEndian.Uint64(raw)
	if size > uint64(min(lim.HeaderBytes, MaxHeaderBytes)) {
		return nil, refuse("", fmt.Errorf("%w: header of %d bytes, the limit is %d", ErrTooLarge, size, lim.HeaderBytes))
	}
	total := prefixBytes + int(size)
	for len(raw) < total {
		// Grown as the bytes come: a length alone costs the sender nothing.
		from, to := len(raw), min(total, max(1024, 2*len(raw)))
		raw = slices.Grow(raw, to-from)[:to]
		if n, err := io.ReadFull(r, raw[from:]); err != nil {
			raw = raw[:from+n]
			return nil, readError(sniffID(raw[prefixBytes:]), err, fmt.Sprintf("%d of %d bytes of the header", len(raw)-prefixBytes, size))
		}
	}
	h, err := parseHeader(raw, lim)
	if err != nil {
		return nil, refuse(sniffID(raw[prefixBytes:]), err)
	}
	return h, nil
}

// readError tells the end of a message, which is the sender's mistake, from a
// failing connection.
func readError(id string, err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse(id, fmt.Errorf("%w: %s", ErrTruncated, what))
	}
	return fmt.Errorf("reading a frame, after %s: %w", what, err)
}

// tensor is one entry of the safetensors header.
type tensor struct {
	name  string
	dtype string
	shape []int
	at    span
	used  bool
}

// entry is one element of the sample's media list.
type entry struct {
	media   rewards.Media
	tensor  string
	tensors []string
	hasOne  bool
	hasMany bool
}

// headerParser holds what parseHeader has found so far.
type headerParser struct {
	lim     Limits
	h       *Header
	sample  []byte // the JSON text of __metadata__.sample
	tensors []tensor
	entries []entry
}

func parseHeader(raw []byte, lim Limits) (*Header, error) {
	p := headerParser{lim: lim, h: &Header{raw: raw}}
	text := raw[prefixBytes:]
	if len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("%w: the header does not begin with '{'", ErrJSON)
	}
	s := scanner{b: text}
	err := s.object(func(key []byte) error {
		if string(key) == metadataKey {
			return p.readMetadata(&s)
		}
		return p.readTensor(&s, key)
	})
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for ; s.i < len(text); s.i++ {
		if text[s.i] != ' ' {
			return nil, fmt.Errorf("header: %w", s.fail(ErrTrailing, "only spaces may follow the header"))
		}
	}
	if p.sample == nil {
		return nil, fmt.Errorf("%w: the header has no %s.sample", ErrMissing, metadataKey)
	}
	if err := p.readSample(); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	if err := p.tile(); err != nil {
		return nil, err
	}
	return p.h, p.bind()
}

func (p *headerParser) readMetadata(s *scanner) error {
	return s.object(func(key []byte) error {
		if string(key) != "sample" {
			return s.fail(ErrUnknownName, "%q in %s, want only sample", clip(key), metadataKey)
		}
		text, err := s.str()
		p.sample = text
		return err
	})
}

func (p *headerParser) readTensor(s *scanner, key []byte) error {
	if len(key) == 0 || len(key) > MaxNameBytes {
		return s.fail(ErrValue, "name of a tensor with %d bytes, want 1 to %d", len(key), MaxNameBytes)
	}
	if len(p.tensors) >= MaxTensors {
		return s.fail(ErrTooLarge, "more than %d tensors", MaxTensors)
	}
	t := tensor{name: string(key)}
	var seen int
	err := s.object(func(key []byte) error {
		seen++
		switch string(key) {
		case "dtype":
			v, err := s.str()
			t.dtype = dtypeName(v)
			return err
		case "shape":
			return s.array(func() error {
				if len(t.shape) >= maxRank {
					return s.fail(ErrShape, "more than %d axes", maxRank)
				}
				d, err := s.int64()
				if t.shape == nil {
					t.shape = make([]int, 0, 4)
				}
				t.shape = append(t.shape, int(d))
				return err
			})
		case "data_offsets":
			v, err := s.pair()
			t.at = span{v[0], v[1]}
			return err
		}
		return s.fail(ErrUnknownName, "%q; a tensor has dtype, shape and data_offsets", clip(key))
	})
	if err != nil {
		return fmt.Errorf("tensor %q: %w", clip(key), err)
	}
	if seen != 3 {
		return fmt.Errorf("tensor %q: %w: it needs dtype, shape and data_offsets", clip(key), ErrMissing)
	}
	size, err := tensorBytes(t.dtype, t.shape)
	if err != nil {
		return fmt.Errorf("tensor %q: %w", clip(key), err)
	}
	if t.at.begin < 0 || t.at.end < t.at.begin {
		return fmt.Errorf("tensor %q: %w: [%d,%d]", clip(key), ErrOffsets, t.at.begin, t.at.end)
	}
	if t.at.end-t.at.begin != size {
		return fmt.Errorf("tensor %q: %w: %s %v has %d bytes, the offsets span %d", clip(key), ErrShape, t.dtype, t.shape, size, t.at.end-t.at.begin)
	}
	p.tensors = append(p.tensors, t)
	return nil
}

// dtypeName returns the name without allocating for those that are usual.
func dtypeName(v []byte) string {
	for _, name := range [...]string{"U8", "F16", "BF16", "F32", "I16"} {
		if string(v) == name {
			return name
		}
	}
	return clip(v)
}

// tile checks that the tensors cover the data without gap or overlap, in
// whatever order they are listed, and sets the frame's size.
func (p *headerParser) tile() error {
	byPlace := make([]span, 0, 8)
	for i := range p.tensors {
		byPlace = append(byPlace, p.tensors[i].at)
	}
	slices.SortFunc(byPlace, func(a, b span) int {
		switch {
		case a.begin < b.begin:
			return -1
		case a.begin > b.begin:
			return 1
		}
		return 0
	})
	var end int64
	for _, at := range byPlace {
		if at.begin != end {
			return fmt.Errorf("%w: a tensor begins at byte %d, want byte %d", ErrOffsets, at.begin, end)
		}
		end = at.end
	}
	if end > p.lim.MessageBytes-int64(len(p.h.raw)) {
		return fmt.Errorf("%w: header of %d and data of %d bytes, the limit is %d", ErrTooLarge, len(p.h.raw), end, p.lim.MessageBytes)
	}
	p.h.Size = int64(len(p.h.raw)) + end
	return nil
}

// bind gives every media entry its tensors; every tensor belongs to exactly one.
func (p *headerParser) bind() error {
	h := p.h
	if len(p.entries) > 0 {
		h.Sample.Media = make([]*rewards.Media, 0, len(p.entries))
		h.spans = make([][]span, 0, len(p.entries))
	}
	index := p.index()
	for i := range p.entries {
		e := &p.entries[i]
		spans, err := p.bindEntry(e, index)
		if err != nil {
			return fmt.Errorf("media %d: %w", i, err)
		}
		h.Sample.Media = append(h.Sample.Media, &e.media)
		h.spans = append(h.spans, spans)
	}
	for i := range p.tensors {
		if !p.tensors[i].used {
			return fmt.Errorf("%w: tensor %q belongs to no media entry", ErrMedia, clip([]byte(p.tensors[i].name)))
		}
	}
	return nil
}

// index returns a function that finds a tensor by name.
func (p *headerParser) index() func(name string) *tensor {
	var byName map[string]int
	if len(p.tensors) > 8 {
		byName = make(map[string]int, len(p.tensors))
		for i := range p.tensors {
			byName[p.tensors[i].name] = i
		}
	}
	return func(name string) *tensor {
		if byName != nil {
			if i, ok := byName[name]; ok {
				return &p.tensors[i]
			}
			return nil
		}
		for i := range p.tensors {
			if p.tensors[i].name == name {
				return &p.tensors[i]
			}
		}
		return nil
	}
}

func (p *headerParser) bindEntry(e *entry, find func(string) *tensor) ([]span, error) {
	m := &e.media
	frames := m.Encoding == rewards.Frames
	names := e.tensors
	switch {
	case e.hasOne == e.hasMany:
		return nil, fmt.Errorf("%w: want either tensor or, with encoding frames, tensors", ErrMedia)
	case e.hasMany && !frames && knownEncoding(m.Encoding):
		return nil, fmt.Errorf("%w: tensors with encoding %q, want one tensor", ErrMedia, m.Encoding)
	case e.hasOne && frames:
		return nil, fmt.Errorf("%w: encoding frames needs tensors, one for every frame", ErrMedia)
	case e.hasOne:
		names = []string{e.tensor}
	case len(names) == 0:
		return nil, fmt.Errorf("%w: a video without frames", ErrMedia)
	}
	spans := make([]span, 0, len(names))
	for _, name := range names {
		t := find(name)
		if t == nil {
			return nil, fmt.Errorf("%w: there is no tensor %q", ErrMedia, clip([]byte(name)))
		}
		if t.used {
			return nil, fmt.Errorf("%w: tensor %q is used twice", ErrMedia, clip([]byte(name)))
		}
		t.used = true
		m.DType, m.Shape = t.dtype, t.shape
		if frames && (t.dtype != "U8" || len(t.shape) != 1) {
			return nil, fmt.Errorf("%w: a frame is a U8 tensor of one axis, not %s %v", ErrMedia, t.dtype, t.shape)
		}
		spans = append(spans, t.at)
	}
	if frames {
		m.Shape = nil
	}
	return spans, checkMedia(m)
}

func knownEncoding(e rewards.Encoding) bool {
	return oneOf("raw jpeg png webp frames", string(e))
}
