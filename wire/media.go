package wire

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/rewardloop/rewardloop/rewards"
)

// Bounds of a media entry that have nothing to do with memory.
const (
	maxFPS        = 1e6
	minFPS        = 1e-3
	maxSampleRate = 1 << 24
	maxRank       = 8
)

// encodings lists what media may be encoded in, for errors.
const encodings = "raw, jpeg, png, webp, frames, mp4, webm, gif, wav and flac"

// dtypeSize returns the bytes of one element of a safetensors dtype, 0 if unknown.
func dtypeSize(name string) int64 {
	switch name {
	case "U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2":
		return 1
	case "U16", "I16", "F16", "BF16":
		return 2
	case "U32", "I32", "F32":
		return 4
	case "U64", "I64", "F64":
		return 8
	}
	return 0
}

// tensorBytes returns dtype size times the product of shape, refusing overflow,
// empty axes and more than maxRank axes.
func tensorBytes(dtype string, shape []int) (int64, error) {
	size := dtypeSize(dtype)
	if size == 0 {
		return 0, fmt.Errorf("%w %q", ErrDType, dtype)
	}
	if len(shape) > maxRank {
		return 0, fmt.Errorf("%w: %d axes, want at most %d", ErrShape, len(shape), maxRank)
	}
	n := uint64(size)
	for _, d := range shape {
		if d < 1 {
			return 0, fmt.Errorf("%w: axis of size %d in %v", ErrShape, d, shape)
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("%w: %s %v has more bytes than can be counted", ErrShape, dtype, shape)
		}
		n = lo
	}
	return int64(n), nil
}

// checkMedia checks one media entry against its tensor: m carries everything but
// the data; DType and Shape are those of the tensor (of an entry with frames, "U8"
// and no shape). Encode and the decoder share it, so that nothing can be sent
// that would be refused.
func checkMedia(m *rewards.Media) error {
	switch m.Kind {
	case rewards.Image, rewards.Video, rewards.Latent, rewards.Audio:
	default:
		return fmt.Errorf("%w: kind %q, want image, video, latent or audio", ErrMedia, m.Kind)
	}
	if m.FPS != 0 && (m.Kind != rewards.Video || !(m.FPS >= minFPS && m.FPS <= maxFPS)) {
		return fmt.Errorf("%w: fps %v of a %s; only a video has one, from %v to %v", ErrMedia, m.FPS, m.Kind, minFPS, maxFPS)
	}
	if m.SampleRate != 0 && (m.Kind != rewards.Audio || m.SampleRate < 1 || m.SampleRate > maxSampleRate) {
		return fmt.Errorf("%w: sample_rate %d of a %s; only audio has one, from 1 to %d", ErrMedia, m.SampleRate, m.Kind, maxSampleRate)
	}
	switch m.Encoding {
	case rewards.Raw:
		return checkRaw(m)
	case rewards.JPEG, rewards.PNG, rewards.WebP:
		return checkEncoded(m, rewards.Image)
	case rewards.Frames, rewards.MP4, rewards.WebM, rewards.GIF:
		return checkEncoded(m, rewards.Video)
	case rewards.WAV, rewards.FLAC:
		return checkEncoded(m, rewards.Audio)
	case "":
		return fmt.Errorf("%w: no encoding, want one of %s", ErrMedia, encodings)
	}
	return fmt.Errorf("%w %q, want one of %s", ErrEncoding, clip([]byte(m.Encoding)), encodings)
}

func checkEncoded(m *rewards.Media, want rewards.Kind) error {
	switch {
	case m.Kind != want:
		return fmt.Errorf("%w: encoding %q is for %s, not %s", ErrMedia, m.Encoding, want, m.Kind)
	case m.Layout != "":
		return fmt.Errorf("%w: layout %q with encoding %q; only raw media has a layout", ErrMedia, clip([]byte(m.Layout)), m.Encoding)
	case m.Encoding != rewards.Frames && (m.DType != "U8" || len(m.Shape) != 1):
		return fmt.Errorf("%w: a file is a U8 tensor of one axis, not %s %v", ErrMedia, m.DType, m.Shape)
	}
	return nil
}

func checkRaw(m *rewards.Media) error {
	if m.Layout == "" {
		return fmt.Errorf("%w: raw %s without a layout", ErrMedia, m.Kind)
	}
	if len(m.Layout) != len(m.Shape) {
		return fmt.Errorf("%w: layout %q names %d axes, the tensor has %v", ErrMedia, clip([]byte(m.Layout)), len(m.Layout), m.Shape)
	}
	layouts, dtypes := "", ""
	switch m.Kind {
	case rewards.Image:
		layouts, dtypes = "HWC CHW", "U8"
	case rewards.Video:
		layouts, dtypes = "THWC TCHW CTHW", "U8"
	case rewards.Audio:
		layouts, dtypes = "T CT TC", "I16 F16 BF16 F32"
		if m.SampleRate == 0 {
			return fmt.Errorf("%w: raw audio without sample_rate", ErrMedia)
		}
	case rewards.Latent:
		dtypes = "F16 BF16 F32"
		for _, axis := range m.Layout {
			if axis < 'A' || axis > 'Z' || strings.Count(string(m.Layout), string(axis)) > 1 {
				return fmt.Errorf("%w: layout %q, want a different letter A to Z for each axis", ErrMedia, clip([]byte(m.Layout)))
			}
		}
	}
	if layouts != "" && !oneOf(layouts, string(m.Layout)) {
		return fmt.Errorf("%w: layout %q of a raw %s, want one of %s", ErrMedia, clip([]byte(m.Layout)), m.Kind, layouts)
	}
	if !oneOf(dtypes, m.DType) {
		return fmt.Errorf("%w: dtype %s of a raw %s, want one of %s", ErrMedia, m.DType, m.Kind, dtypes)
	}
	if m.Kind == rewards.Image || m.Kind == rewards.Video {
		c := m.Shape[strings.IndexByte(string(m.Layout), 'C')]
		if c != 1 && c != 3 && c != 4 {
			return fmt.Errorf("%w: %d channels in %s %v, want 1, 3 or 4", ErrMedia, c, m.Layout, m.Shape)
		}
	}
	return nil
}

// oneOf reports whether word is one of the space-separated words.
func oneOf(words, word string) bool {
	for w := range strings.SplitSeq(words, " ") {
		if w == word {
			return true
		}
	}
	return false
}
