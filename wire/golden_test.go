package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var update = flag.Bool("update", false, "write testdata anew")

// goldenFrame is testdata/<name>.json: what a client in any language needs to
// build testdata/<name>.bin.
type goldenFrame struct {
	// Sample holds the sample's fields in the order in which they are written.
	Sample json.RawMessage `json:"sample"`
	Media  []goldenMedia   `json:"media,omitempty"`
	// DeadlineMS is 0 where the frame has none.
	DeadlineMS int64 `json:"deadline_ms,omitempty"`
	// Header is the JSON header as text, padding included.
	Header string `json:"header"`
	Size   int64  `json:"size"`
	CRC32C string `json:"crc32c"`
}

type goldenMedia struct {
	Kind       rewards.Kind     `json:"kind"`
	Layout     rewards.Layout   `json:"layout,omitempty"`
	Encoding   rewards.Encoding `json:"encoding"`
	FPS        float64          `json:"fps,omitempty"`
	SampleRate int              `json:"sample_rate,omitempty"`
	DType      string           `json:"dtype"`
	Shape      []int            `json:"shape,omitempty"`
	Data       []byte           `json:"data_b64,omitempty"`
	Frames     [][]byte         `json:"frames_b64,omitempty"`
}

// build returns the sample the description stands for.
func (g *goldenFrame) build(tb testing.TB) (*rewards.Sample, wire.Options) {
	tb.Helper()
	s := new(rewards.Sample)
	require.NoError(tb, json.Unmarshal(g.Sample, s))
	s.GroundTruth, s.ExtraInfo = compact(tb, s.GroundTruth), compact(tb, s.ExtraInfo)
	for _, m := range g.Media {
		s.Media = append(s.Media, &rewards.Media{
			Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, FPS: m.FPS, SampleRate: m.SampleRate,
			DType: m.DType, Shape: m.Shape, Data: m.Data, Frames: m.Frames,
		})
	}
	return s, wire.Options{Deadline: time.Duration(g.DeadlineMS) * time.Millisecond}
}

func compact(tb testing.TB, text json.RawMessage) json.RawMessage {
	tb.Helper()
	if text == nil {
		return nil
	}
	var out bytes.Buffer
	require.NoError(tb, json.Compact(&out, text))
	return out.Bytes()
}

// describe is the inverse of build.
func describe(tb testing.TB, s *rewards.Sample, opt wire.Options, m *wire.Message) *goldenFrame {
	tb.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	require.NoError(tb, enc.Encode(s))
	g := &goldenFrame{
		Sample: bytes.TrimSpace(text.Bytes()), DeadlineMS: opt.Deadline.Milliseconds(), Header: string(m.Head[8:]), Size: m.Size(),
		CRC32C: fmt.Sprintf("%08x", crc32.Checksum(m.Bytes(), crc32.MakeTable(crc32.Castagnoli))),
	}
	for _, m := range s.Media {
		g.Media = append(g.Media, goldenMedia{
			Kind: m.Kind, Layout: m.Layout, Encoding: m.Encoding, FPS: m.FPS, SampleRate: m.SampleRate,
			DType: m.DType, Shape: m.Shape, Data: m.Data, Frames: m.Frames,
		})
	}
	return g
}

// ramp returns n bytes that differ from their neighbours.
func ramp(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + seed + i>>5)
	}
	return b
}

func floats(n int) []byte {
	b := make([]byte, 0, 4*n)
	for i := range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Sin(float64(i)/3))))
	}
	return b
}

func picture(tb testing.TB, w, h, seed int) []byte {
	tb.Helper()
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.SetRGBA(x, y, color.RGBA{byte(x * 9), byte(y * 11), byte(seed * 40), 255})
		}
	}
	var out bytes.Buffer
	require.NoError(tb, jpeg.Encode(&out, img, &jpeg.Options{Quality: 90}))
	return out.Bytes()
}

func raw(kind rewards.Kind, layout rewards.Layout, dtype string, data []byte, shape ...int) *rewards.Media {
	return &rewards.Media{Kind: kind, Layout: layout, Encoding: rewards.Raw, DType: dtype, Shape: shape, Data: data}
}

// goldenSamples are the frames of testdata; -update writes them.
func goldenSamples(tb testing.TB) map[string]func() (*rewards.Sample, wire.Options) {
	tb.Helper()
	index := int64(0)
	jpg := func(w, h, seed int) *rewards.Media {
		b := picture(tb, w, h, seed)
		return &rewards.Media{Kind: rewards.Image, Encoding: rewards.JPEG, DType: "U8", Shape: []int{len(b)}, Data: b}
	}
	plain := func(s *rewards.Sample) func() (*rewards.Sample, wire.Options) {
		return func() (*rewards.Sample, wire.Options) { return s, wire.Options{} }
	}
	video := raw(rewards.Video, rewards.THWC, "U8", ramp(3*4*6*3, 5), 3, 4, 6, 3)
	video.FPS = 29.97
	frames := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8", FPS: 8}
	for i := range 3 {
		frames.Frames = append(frames.Frames, picture(tb, 8, 8, i))
	}
	audio := raw(rewards.Audio, "CT", "F32", floats(2*50), 2, 50)
	audio.SampleRate = 16000
	return map[string]func() (*rewards.Sample, wire.Options){
		"text_only": plain(&rewards.Sample{
			ID: "r1/7/train/t-0", Run: "r1", Step: 7, Split: rewards.Train, Prompt: "What is 6 × 7?", Response: "Let me think.\n\\boxed{42}\t\u2028</s>\x00\x1f\x7f", GroundTruth: json.RawMessage(`"42"`),
		}),
		"image_raw_hwc": plain(&rewards.Sample{
			ID: "a-0", Prompt: "a red cube \"left\" of a <blue> & green sphere", Media: []*rewards.Media{raw(rewards.Image, rewards.HWC, "U8", ramp(6*8*3, 1), 6, 8, 3)},
		}),
		"image_raw_chw": func() (*rewards.Sample, wire.Options) {
			return &rewards.Sample{
				ID: "a-1", Run: "flow", Step: 12, Split: rewards.Val, Index: &index, Reward: "ocr", DataSource: "ocr",
				Prompt: "ein Schild mit „Grüße 😀“", Media: []*rewards.Media{raw(rewards.Image, rewards.CHW, "U8", ramp(3*6*8, 2), 3, 6, 8)},
			}, wire.Options{Deadline: 90 * time.Second}
		},
		"image_jpeg": plain(&rewards.Sample{ID: "a-2", Prompt: "p", Media: []*rewards.Media{jpg(16, 8, 3)}}),
		"video_raw":  plain(&rewards.Sample{ID: "v-0", Prompt: "a wave", Media: []*rewards.Media{video}}),
		"video_frames": plain(&rewards.Sample{
			ID: "v-1", Prompt: "a wave", Media: []*rewards.Media{frames},
		}),
		"latent": plain(&rewards.Sample{
			ID: "l-0", Prompt: "p", Media: []*rewards.Media{raw(rewards.Latent, "CHW", "BF16", ramp(16*2*3*2, 9), 16, 2, 3)},
		}),
		"audio": plain(&rewards.Sample{ID: "s-0", Prompt: "rain", Media: []*rewards.Media{audio}}),
		"files": plain(&rewards.Sample{ID: "f-0", Prompt: "a wave and its sound", Media: []*rewards.Media{
			{Kind: rewards.Video, Encoding: rewards.MP4, DType: "U8", Shape: []int{24}, Data: []byte("\x00\x00\x00\x14ftypisom\x00\x00\x02\x00isom\x00\x00\x00\x00"), FPS: 8},
			{Kind: rewards.Audio, Encoding: rewards.WAV, DType: "U8", Shape: []int{12}, Data: []byte("RIFF\x04\x00\x00\x00WAVE")},
		}}),
		"mixed": plain(&rewards.Sample{
			ID: "m-0", Prompt: "narrow and wide tensors", Media: []*rewards.Media{jpg(8, 8, 1), raw(rewards.Latent, "CHW", "F16", ramp(4*3*3*2, 4), 4, 3, 3), audio, video},
		}),
		"traced": plain(&rewards.Sample{ID: "t-0", Prompt: "p", Traceparent: traceparent}),
		"group": func() (*rewards.Sample, wire.Options) {
			return &rewards.Sample{
				ID: "g/3/u17_0_5", Run: "flow", Step: 3, Split: rewards.Train, Index: &index, UID: "u17", GroupSize: 8, DataSource: "geneval", Prompt: "two dogs",
				GroundTruth: json.RawMessage(`{"tag":"counting","include":[{"class":"dog","count":2}],"score":0.5,"none":null}`),
				ExtraInfo:   json.RawMessage(`{"num_turns":1,"nested":{"a":[1,2.5,-0.125,true]},"text":"a/b \"c\""}`),
				Media:       []*rewards.Media{raw(rewards.Image, rewards.HWC, "U8", ramp(2*2*3, 6), 2, 2, 3)},
			}, wire.Options{Deadline: 1500 * time.Millisecond}
		},
	}
}

func TestGoldenFramesAreEncodedToTheSameBytes(t *testing.T) {
	t.Parallel()
	if *update {
		writeGolden(t)
	}
	files, err := filepath.Glob("testdata/*.bin")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 10, "testdata has lost frames")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			g := readGolden(t, file)
			s, opt := g.build(t)
			m, err := wire.Encode(s, opt)
			require.NoError(t, err)
			require.Equal(t, string(want), string(m.Bytes()))
			assert.Equal(t, g.Header, string(m.Head[8:]))
			assert.Zero(t, len(m.Head)%8, "the head is padded")

			f, err := wire.Decode(want, wire.Limits{})
			require.NoError(t, err)
			assert.Equal(t, s, f.Sample(), "decoding gives the sample back")
			assert.Equal(t, opt.Deadline, f.Header().Deadline)
			assert.Equal(t, g.Size, f.Size())
			assert.Equal(t, g.CRC32C, fmt.Sprintf("%08x", f.Sum().CRC32C))
		})
	}
}

func readGolden(tb testing.TB, bin string) *goldenFrame {
	tb.Helper()
	text, err := os.ReadFile(bin[:len(bin)-len("bin")] + "json")
	require.NoError(tb, err)
	g := new(goldenFrame)
	require.NoError(tb, json.Unmarshal(text, g))
	return g
}

func writeGolden(t *testing.T) {
	t.Helper()
	for name, build := range goldenSamples(t) {
		s, opt := build()
		m, err := wire.Encode(s, opt)
		require.NoError(t, err, name)
		require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".bin"), m.Bytes(), 0o644))
		var text bytes.Buffer
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		require.NoError(t, enc.Encode(describe(t, s, opt, m)))
		require.NoError(t, os.WriteFile(filepath.Join("testdata", name+".json"), text.Bytes(), 0o644))
	}
}
