package media

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/rewardloop/rewardloop/rewards"
)

// maxChannels is the most channels of a sound.
const maxChannels = 32

// Forms of the samples in a WAV file.
const (
	wavPCM        = 1
	wavFloat      = 3
	wavExtensible = 0xfffe // the form is in its first two bytes of the subformat
)

// sound is what a file says of itself before it is decoded.
type sound struct {
	rate, channels, count int
	bits                  int
	float                 bool
	data                  []byte // of a WAV file
}

func (s sound) frame() int { return s.channels * s.bits / 8 }

// wide says that the samples do not fit into 16 bits.
func (s sound) wide() bool { return s.float || s.bits > 16 }

// Sound implements rewards.Listener. Samples of up to 16 bits are returned as I16, all others as
// F32 from −1 to 1.
func (d *Decoder) Sound(ctx context.Context, m *rewards.Media) (*rewards.Sound, error) {
	if m.Kind != rewards.Audio {
		return nil, bad("a media of kind %q has no sound", m.Kind)
	}
	if err := sniffed(m.Encoding, m.Data); err != nil {
		return nil, err
	}
	var s sound
	var err error
	switch m.Encoding {
	case rewards.WAV:
		s, err = wavHeader(m.Data)
	case rewards.FLAC:
		s, err = flacHeader(m.Data)
	default:
		return nil, bad("encoding %q of a sound: want wav or flac", m.Encoding)
	}
	if err != nil {
		return nil, err
	}
	if seconds := float64(s.count) / float64(s.rate); seconds > d.cfg.MaxLength.Seconds() {
		return nil, bad("this %s lasts %.0f s; pool.decode.max_length is %v", m.Encoding, seconds, d.cfg.MaxLength)
	}
	out := &rewards.Sound{Rate: s.rate, Channels: s.channels, Count: s.count, DType: "I16"}
	size := int64(s.count) * int64(s.channels) * 2
	if s.wide() {
		out.DType, size = "F32", 2*size
	}
	p := &rewards.Pixels{}
	err = d.within(ctx, p, size, 0, func(*booking) error {
		if m.Encoding == rewards.FLAC {
			return d.flac(ctx, m, s, p.RGB)
		}
		s.convert(p.RGB)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Data, out.Keeper = p.RGB, p.Keeper
	return out, nil
}

// wavHeader finds the samples of a WAV file.
func wavHeader(file []byte) (s sound, err error) {
	le := binary.LittleEndian
	rest, form := file[min(12, len(file)):], 0
	for len(rest) >= 8 {
		name, n := string(rest[:4]), int64(le.Uint32(rest[4:]))
		rest = rest[8:]
		if name == "data" && n == math.MaxUint32 { // written into a pipe, whose end was not known
			n = int64(len(rest))
		}
		if n > int64(len(rest)) {
			return sound{}, bad("the chunk %q of this wav has %d bytes, and the file ends after %d", name, n, len(rest))
		}
		chunk := rest[:n]
		rest = rest[min(int64(len(rest)), n+n&1):]
		switch name {
		case "fmt ":
			if len(chunk) < 16 {
				return sound{}, bad("the format of this wav has %d bytes, want 16", len(chunk))
			}
			form, s.channels, s.rate, s.bits = int(le.Uint16(chunk)), int(le.Uint16(chunk[2:])), int(le.Uint32(chunk[4:])), int(le.Uint16(chunk[14:]))
			if form == wavExtensible && len(chunk) >= 26 {
				form = int(le.Uint16(chunk[24:]))
			}
			s.float = form == wavFloat
		case "data":
			if form == 0 {
				return sound{}, bad("this wav has no format before its data")
			}
			s.data = chunk
			return s, s.checkWAV(form)
		}
	}
	return sound{}, bad("this wav has no data")
}

func (s *sound) checkWAV(form int) error {
	ok := form == wavPCM && (s.bits == 8 || s.bits == 16 || s.bits == 24 || s.bits == 32) || form == wavFloat && (s.bits == 32 || s.bits == 64)
	if !ok {
		return bad("the samples of this wav are of form %d with %d bits; want integers of 8, 16, 24 or 32 bits, or floats of 32 or 64", form, s.bits)
	}
	if err := s.check(); err != nil {
		return err
	}
	if s.count = len(s.data) / s.frame(); s.count == 0 || len(s.data)%s.frame() != 0 {
		return bad("this wav has %d bytes of data for frames of %d", len(s.data), s.frame())
	}
	return nil
}

func (s *sound) check() error {
	if s.channels < 1 || s.channels > maxChannels || s.rate < 1 || s.rate > 1<<24 {
		return bad("a sound of %d channels at %d Hz: want 1 to %d channels at 1 to %d Hz", s.channels, s.rate, maxChannels, 1<<24)
	}
	return nil
}

// convert writes the samples of a WAV file as I16 or F32.
func (s *sound) convert(to []byte) {
	le := binary.LittleEndian
	float := func(i int, v float64) { le.PutUint32(to[4*i:], math.Float32bits(float32(v))) }
	step := s.bits / 8
	for i := range s.count * s.channels {
		at := s.data[i*step:]
		switch {
		case s.bits == 8:
			le.PutUint16(to[2*i:], uint16(int16(int(at[0])-128)<<8))
		case s.bits == 16:
			copy(to[2*i:2*i+2], at)
		case s.bits == 24:
			float(i, float64(int32(uint32(at[0])<<8|uint32(at[1])<<16|uint32(at[2])<<24))/(1<<31))
		case !s.float:
			float(i, float64(int32(le.Uint32(at)))/(1<<31))
		case s.bits == 32:
			copy(to[4*i:4*i+4], at)
		default:
			float(i, math.Float64frombits(le.Uint64(at)))
		}
	}
}

// flacHeader reads the first block of a FLAC file.
func flacHeader(file []byte) (s sound, err error) {
	if len(file) < 42 || file[4]&0x7f != 0 {
		return sound{}, bad("this flac does not begin with a description of the stream")
	}
	v := binary.BigEndian.Uint64(file[18:])
	s = sound{rate: int(v >> 44), channels: int(v>>41&7) + 1, bits: int(v>>36&31) + 1, count: int(v & (1<<36 - 1))}
	if s.count == 0 {
		return sound{}, bad("this flac does not state its length")
	}
	return s, s.check()
}

// flac has ffmpeg decode a file into exactly the bytes that its header promises.
func (d *Decoder) flac(ctx context.Context, m *rewards.Media, s sound, to []byte) error {
	form := "s16le"
	if s.wide() {
		form = "f32le"
	}
	args := append(d.input(containers[rewards.FLAC]), "-map", "0:a:0", "-c:a", "pcm_"+form, "-f", form, "pipe:1")
	return d.play(ctx, m.Encoding, m.Data, args, func(out io.Reader) error {
		r := bufio.NewReader(out)
		if _, err := io.ReadFull(r, to); err != nil {
			return bad("this flac ends before the %d samples of its header", s.count)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			return bad("this flac has more than the %d samples of its header", s.count)
		}
		return nil
	})
}
