package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/rewards"
)

// Options are the parameters of Encode.
type Options struct {
	// Deadline is the maximum time from the sample's arrival at the gateway to its result, sent in
	// whole milliseconds rounded up. 0: the gateway's default.
	Deadline time.Duration
	// Limits are those of the receiver, from its welcome message.
	Limits Limits
}

// Message is an encoded sample. Parts alias the sample's media.
type Message struct {
	// Head is the length and the JSON header, padded to 8 bytes.
	Head []byte
	// Parts are the tensors in the order of their offsets.
	Parts [][]byte
}

// Size returns the length of the message.
func (m *Message) Size() int64 {
	n := int64(len(m.Head))
	for _, p := range m.Parts {
		n += int64(len(p))
	}
	return n
}

// Buffers returns Head and Parts in order.
func (m *Message) Buffers() [][]byte {
	return append(append(make([][]byte, 0, 1+len(m.Parts)), m.Head), m.Parts...)
}

// WriteTo implements io.WriterTo.
func (m *Message) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(m.Head)
	total := int64(n)
	for _, p := range m.Parts {
		if err != nil {
			break
		}
		n, err = w.Write(p)
		total += int64(n)
	}
	return total, err
}

// Bytes returns a copy of the message in one slice.
func (m *Message) Bytes() []byte {
	b := append(make([]byte, 0, m.Size()), m.Head...)
	for _, p := range m.Parts {
		b = append(b, p...)
	}
	return b
}

// part is a tensor on its way out.
type part struct {
	name  string
	dtype string
	shape []int
	data  []byte
}

// Encode returns the frame of a sample. Equal samples give equal bytes. Encode refuses, as a
// *FrameError, everything that a receiver with the same limits would refuse. The message aliases
// the media of s, which must not change while the message is in use.
func Encode(s *rewards.Sample, opt Options) (*Message, error) {
	lim := opt.Limits.WithDefaults()
	var e encoder
	inner, err := e.sample(s, opt.Deadline)
	if err != nil {
		return nil, refuse(s.ID, err)
	}
	// Wide types first: with a header of whole 8 bytes every tensor is aligned.
	slices.SortStableFunc(e.parts, func(a, b part) int {
		return int(dtypeSize(b.dtype) - dtypeSize(a.dtype))
	})
	m := &Message{Head: e.header(inner)}
	for _, p := range e.parts {
		m.Parts = append(m.Parts, p.data)
	}
	if n := int64(len(m.Head) - prefixBytes); n > min(lim.HeaderBytes, MaxHeaderBytes) {
		return nil, refuse(s.ID, fmt.Errorf("%w: header of %d bytes, the limit is %d", ErrTooLarge, n, lim.HeaderBytes))
	}
	if n := m.Size(); n > lim.MessageBytes {
		return nil, refuse(s.ID, fmt.Errorf("%w: message of %d bytes, the limit is %d", ErrTooLarge, n, lim.MessageBytes))
	}
	return m, nil
}

type encoder struct {
	parts []part
	out   []byte
}

// header returns the head of the message for tensors that follow in order.
func (e *encoder) header(inner []byte) []byte {
	out := make([]byte, prefixBytes, prefixBytes+len(inner)+len(inner)/4+96*(1+len(e.parts)))
	out = append(out, `{"`+metadataKey+`":{"sample":`...)
	out = appendString(out, inner)
	out = append(out, '}')
	var at int64
	for _, p := range e.parts {
		out = append(out, ',')
		out = appendString(out, p.name)
		out = append(out, `:{"dtype":`...)
		out = appendString(out, p.dtype)
		out = append(out, `,"shape":[`...)
		for i, d := range p.shape {
			if i > 0 {
				out = append(out, ',')
			}
			out = strconv.AppendInt(out, int64(d), 10)
		}
		out = append(out, `],"data_offsets":[`...)
		out = strconv.AppendInt(out, at, 10)
		at += int64(len(p.data))
		out = append(out, ',')
		out = strconv.AppendInt(out, at, 10)
		out = append(out, "]}"...)
	}
	out = append(out, '}')
	for len(out)%8 != 0 {
		out = append(out, ' ')
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-prefixBytes))
	return out
}

// sample writes the sample's JSON text and collects its tensors.
func (e *encoder) sample(s *rewards.Sample, deadline time.Duration) ([]byte, error) {
	if err := checkFields(s, deadline); err != nil {
		return nil, err
	}
	e.out = append(make([]byte, 0, 512+len(s.Prompt)+len(s.Response)+len(s.GroundTruth)+len(s.ExtraInfo)), '{')
	e.str("id", s.ID)
	e.str("run", s.Run)
	e.num("step", s.Step)
	e.str("split", string(s.Split))
	if s.Index != nil {
		e.key("index")
		e.out = strconv.AppendInt(e.out, *s.Index, 10)
	}
	e.str("uid", s.UID)
	e.num("group_size", int64(s.GroupSize))
	e.str("reward", s.Reward)
	e.str("data_source", s.DataSource)
	e.str("prompt", s.Prompt)
	e.str("response", s.Response)
	if err := e.raw("ground_truth", s.GroundTruth); err != nil {
		return nil, err
	}
	if err := e.raw("extra_info", s.ExtraInfo); err != nil {
		return nil, err
	}
	if err := e.media(s.Media); err != nil {
		return nil, err
	}
	e.num("deadline_ms", int64((deadline+time.Millisecond-1)/time.Millisecond))
	e.str("traceparent", s.Traceparent)
	return append(e.out, '}'), nil
}

func (e *encoder) key(name string) {
	if e.out[len(e.out)-1] != '{' {
		e.out = append(e.out, ',')
	}
	e.out = appendString(e.out, name)
	e.out = append(e.out, ':')
}

func (e *encoder) str(name, v string) {
	if v != "" {
		e.key(name)
		e.out = appendString(e.out, v)
	}
}

func (e *encoder) num(name string, v int64) {
	if v != 0 {
		e.key(name)
		e.out = strconv.AppendInt(e.out, v, 10)
	}
}

// raw writes JSON the caller supplied, without its insignificant white space.
func (e *encoder) raw(name string, v json.RawMessage) error {
	if v == nil {
		return nil
	}
	// One level for the sample that holds it.
	s := scanner{b: v, depth: 1}
	if _, err := s.value(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := s.end(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if name == "extra_info" && bytes.TrimLeft(v, " \t\r\n")[0] != '{' {
		return fmt.Errorf("%s: %w: want a JSON object", name, ErrJSON)
	}
	e.key(name)
	buf := bytes.NewBuffer(e.out)
	if err := json.Compact(buf, v); err != nil {
		return fmt.Errorf("%s: %w: %w", name, ErrJSON, err)
	}
	e.out = buf.Bytes()
	return nil
}

func (e *encoder) media(list []*rewards.Media) error {
	if len(list) == 0 {
		return nil
	}
	if len(list) > MaxMedia {
		return fmt.Errorf("%w: %d media, the limit is %d", ErrTooLarge, len(list), MaxMedia)
	}
	e.key("media")
	e.out = append(e.out, '[')
	for i, m := range list {
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if err := e.entry(i, m); err != nil {
			return fmt.Errorf("media %d: %w", i, err)
		}
	}
	e.out = append(e.out, ']')
	if len(e.parts) > MaxTensors {
		return fmt.Errorf("%w: %d tensors, the limit is %d", ErrTooLarge, len(e.parts), MaxTensors)
	}
	return nil
}

// entry writes one media entry. Its tensor is named media<i>, those of its frames
// media<i>.<frame>.
func (e *encoder) entry(i int, m *rewards.Media) error {
	name := "media" + strconv.Itoa(i)
	plain := rewards.Media{
		Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, DType: m.DType, Shape: m.Shape, FPS: m.FPS, SampleRate: m.SampleRate,
	}
	if m.Encoding != rewards.Raw {
		plain.DType, plain.Shape = "U8", []int{len(m.Data)}
	}
	if err := checkMedia(&plain); err != nil {
		return err
	}
	e.out = append(e.out, '{')
	if m.Encoding == rewards.Frames {
		if err := e.frames(name, m); err != nil {
			return err
		}
	} else {
		size, err := tensorBytes(plain.DType, plain.Shape)
		if err != nil {
			return err
		}
		if size != int64(len(m.Data)) || m.Frames != nil {
			return fmt.Errorf("%w: %s %v has %d bytes, data has %d (and %d frames)", ErrShape, plain.DType, plain.Shape, size, len(m.Data), len(m.Frames))
		}
		e.parts = append(e.parts, part{name, plain.DType, plain.Shape, m.Data})
		e.str("tensor", name)
	}
	e.str("kind", string(m.Kind))
	e.str("layout", string(m.Layout))
	e.str("encoding", string(m.Encoding))
	if m.FPS != 0 {
		e.key("fps")
		e.out = strconv.AppendFloat(e.out, m.FPS, 'f', -1, 64)
	}
	e.num("sample_rate", int64(m.SampleRate))
	e.out = append(e.out, '}')
	return nil
}

func (e *encoder) frames(name string, m *rewards.Media) error {
	if len(m.Frames) == 0 || len(m.Data) > 0 {
		return fmt.Errorf("%w: encoding frames with %d frames and %d bytes of data", ErrMedia, len(m.Frames), len(m.Data))
	}
	e.key("tensors")
	e.out = append(e.out, '[')
	for j, f := range m.Frames {
		if len(f) == 0 {
			return fmt.Errorf("%w: frame %d is empty", ErrShape, j)
		}
		if j > 0 {
			e.out = append(e.out, ',')
		}
		p := part{name + "." + strconv.Itoa(j), "U8", []int{len(f)}, f}
		e.out = appendString(e.out, p.name)
		e.parts = append(e.parts, p)
	}
	e.out = append(e.out, ']')
	return nil
}

// checkFields checks everything of a sample but its JSON values and media.
func checkFields(s *rewards.Sample, deadline time.Duration) error {
	if s.ID == "" {
		return fmt.Errorf("%w: a sample needs an id", ErrMissing)
	}
	for _, f := range [...]struct {
		name, value string
		most        int
	}{
		{"id", s.ID, MaxNameBytes},
		{"run", s.Run, MaxNameBytes},
		{"uid", s.UID, MaxNameBytes},
		{"reward", s.Reward, MaxNameBytes},
		{"data_source", s.DataSource, MaxHeaderBytes},
		{"prompt", s.Prompt, MaxHeaderBytes},
		{"response", s.Response, MaxHeaderBytes},
	} {
		if len(f.value) > f.most {
			cause := ErrValue
			if f.most == MaxHeaderBytes {
				cause = ErrTooLarge
			}
			return fmt.Errorf("%w: %s of %d bytes, want at most %d", cause, f.name, len(f.value), f.most)
		}
		if !utf8.ValidString(f.value) {
			return fmt.Errorf("%w: in %s", ErrUTF8, f.name)
		}
	}
	if s.Traceparent != "" {
		if err := CheckTraceparent(s.Traceparent); err != nil {
			return fmt.Errorf("%w: %w", ErrValue, err)
		}
	}
	switch {
	case s.Split != "" && s.Split != rewards.Train && s.Split != rewards.Val:
		return fmt.Errorf("%w: split %q, want train or val", ErrValue, s.Split)
	case s.Index != nil && (*s.Index < 0 || *s.Index > 1<<31-1):
		return fmt.Errorf("%w: index is %d, want 0 to %d", ErrValue, *s.Index, 1<<31-1)
	case s.GroupSize < 0 || s.GroupSize > 1<<31-1:
		return fmt.Errorf("%w: group_size is %d, want 0 to %d", ErrValue, s.GroupSize, 1<<31-1)
	case deadline < 0 || deadline > MaxDeadline:
		return fmt.Errorf("%w: deadline is %s, want up to %s", ErrValue, deadline, MaxDeadline)
	}
	return nil
}
