package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func sampleOf(media ...*rewards.Media) *rewards.Sample {
	return &rewards.Sample{ID: "s", Prompt: "a photo", Media: media}
}

func mustEncode(tb testing.TB, s *rewards.Sample) *wire.Message {
	tb.Helper()
	m, err := wire.Encode(s, wire.Options{})
	require.NoError(tb, err)
	return m
}

func TestEncodeDoesNotCopyThePixels(t *testing.T) {
	t.Parallel()
	img := raw(rewards.Image, rewards.HWC, "U8", ramp(4*4*3, 0), 4, 4, 3)
	m := mustEncode(t, sampleOf(img))
	require.Len(t, m.Parts, 1)
	assert.Same(t, &img.Data[0], &m.Parts[0][0])
	var out bytes.Buffer
	n, err := m.WriteTo(&out)
	require.NoError(t, err)
	assert.Equal(t, m.Size(), n)
	assert.Equal(t, m.Bytes(), out.Bytes())
	assert.Equal(t, m.Bytes(), bytes.Join(m.Buffers(), nil))
}

func TestEncodeRefusesWhatAReceiverWouldRefuse(t *testing.T) {
	t.Parallel()
	negative := int64(-1)
	img := func() *rewards.Media { return raw(rewards.Image, rewards.HWC, "U8", make([]byte, 12), 2, 2, 3) }
	with := func(change func(s *rewards.Sample)) *rewards.Sample {
		s := sampleOf(img())
		change(s)
		return s
	}
	for name, c := range map[string]struct {
		sample *rewards.Sample
		want   error
	}{
		"no id":                     {&rewards.Sample{}, wire.ErrMissing},
		"a long id":                 {&rewards.Sample{ID: strings.Repeat("x", 513)}, wire.ErrValue},
		"invalid UTF-8":             {with(func(s *rewards.Sample) { s.Prompt = "\xff" }), wire.ErrUTF8},
		"a prompt of 10 MB":         {with(func(s *rewards.Sample) { s.Prompt = strings.Repeat("p", 10<<20) }), rewards.TooLarge},
		"a header beyond 1 MiB":     {with(func(s *rewards.Sample) { s.Prompt = strings.Repeat("\n", 400<<10) }), rewards.TooLarge},
		"a split that is none":      {with(func(s *rewards.Sample) { s.Split = "test" }), wire.ErrValue},
		"a negative index":          {with(func(s *rewards.Sample) { s.Index = &negative }), wire.ErrValue},
		"a negative group":          {with(func(s *rewards.Sample) { s.GroupSize = -2 }), wire.ErrValue},
		"ground truth that is none": {with(func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`{"a":}`) }), wire.ErrJSON},
		"ground truth with a tail":  {with(func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`1 2`) }), wire.ErrJSON},
		"ground truth, empty":       {with(func(s *rewards.Sample) { s.GroundTruth = json.RawMessage{} }), wire.ErrJSON},
		"ground truth, repeated":    {with(func(s *rewards.Sample) { s.GroundTruth = json.RawMessage(`{"a":1,"a":2}`) }), wire.ErrDuplicate},
		"extra info that is a list": {with(func(s *rewards.Sample) { s.ExtraInfo = json.RawMessage(` [1]`) }), wire.ErrJSON},
		"ground truth too deep": {with(func(s *rewards.Sample) {
			s.GroundTruth = json.RawMessage(strings.Repeat("[", 64) + strings.Repeat("]", 64))
		}), wire.ErrNesting},
		"data too short":      {with(func(s *rewards.Sample) { s.Media[0].Data = s.Media[0].Data[1:] }), wire.ErrShape},
		"no layout":           {with(func(s *rewards.Sample) { s.Media[0].Layout = "" }), wire.ErrMedia},
		"an unknown encoding": {with(func(s *rewards.Sample) { s.Media[0].Encoding = "avi" }), wire.UnsupportedEncoding},
		"an empty picture":    {sampleOf(&rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG}), wire.ErrShape},
		"no frames":           {sampleOf(&rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames}), wire.ErrMedia},
		"an empty frame":      {sampleOf(&rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, Frames: [][]byte{{1}, {}}}), wire.ErrShape},
		"65 media":            {with(func(s *rewards.Sample) { s.Media = bytesTimes(65, img()) }), rewards.TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := wire.Encode(c.sample, wire.Options{})
			require.ErrorIs(t, err, c.want)
			var refused *wire.FrameError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, c.sample.ID, refused.ID)
		})
	}
	_, err := wire.Encode(sampleOf(), wire.Options{Deadline: -time.Second})
	require.ErrorIs(t, err, wire.ErrValue)
	_, err = wire.Encode(sampleOf(img()), wire.Options{Limits: wire.Limits{MessageBytes: 64}})
	require.ErrorIs(t, err, rewards.TooLarge)
}

func bytesTimes(n int, m *rewards.Media) []*rewards.Media {
	list := make([]*rewards.Media, n)
	for i := range list {
		list[i] = m
	}
	return list
}

func TestADeadlineIsRoundedUpToAMillisecond(t *testing.T) {
	t.Parallel()
	m, err := wire.Encode(sampleOf(), wire.Options{Deadline: 1})
	require.NoError(t, err)
	f, err := wire.Decode(m.Bytes(), wire.Limits{})
	require.NoError(t, err)
	assert.Equal(t, time.Millisecond, f.Header().Deadline)
}

func TestEveryViewOfAFrameIsFreshAndAliasesIt(t *testing.T) {
	t.Parallel()
	frames := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8", Frames: [][]byte{{1, 2}, {3}}}
	s := sampleOf(raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3), frames)
	f, err := wire.NewFrame(mustEncode(t, s), nil)
	require.NoError(t, err)
	a, b := f.Sample(), f.Sample()
	require.Equal(t, s, a)
	assert.NotSame(t, a, b)
	assert.NotSame(t, a.Media[0], b.Media[0], "decoded pixels of one attempt are not those of another")
	assert.Same(t, &a.Media[0].Data[0], &b.Media[0].Data[0])
	assert.Equal(t, len(a.Media[0].Data), cap(a.Media[0].Data), "an append cannot reach the next tensor")
	assert.Equal(t, 2, cap(a.Media[1].Frames[0]))
}

func TestTheLastReleaseReturnsThePoisonedBuffer(t *testing.T) {
	t.Parallel()
	pool := wire.Buffers{Poison: true}
	f, err := wire.NewFrame(mustEncode(t, sampleOf(raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3))), &pool)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, pool.Live(), f.Size())
	pixels := f.Sample().Media[0].Data
	f.Retain()
	f.Release()
	require.Equal(t, ramp(12, 1), pixels, "one reference is left")
	f.Release()
	assert.Equal(t, bytes.Repeat([]byte{0xDB}, 12), pixels)
	assert.Zero(t, pool.Live())
	assert.Equal(t, "s", f.Header().Sample.ID, "the header outlives the buffer")

	for name, use := range map[string]func(){
		"release": f.Release,
		"retain":  func() { f.Retain() },
		"sample":  func() { f.Sample() },
		"bytes":   func() { f.Bytes() },
	} {
		assert.Panics(t, use, name)
	}
}

func TestReferencesAreCountedAcrossGoroutines(t *testing.T) {
	t.Parallel()
	pool := wire.Buffers{Poison: true}
	f, err := wire.NewFrame(mustEncode(t, sampleOf(raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3))), &pool)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 16 {
		f.Retain()
		wg.Go(func() {
			defer f.Release()
			assert.Equal(t, ramp(12, 1), f.Sample().Media[0].Data)
		})
	}
	f.Release()
	wg.Wait()
	assert.Zero(t, pool.Live())
}

func TestNewFrameRefusesAMessageThatWasTamperedWith(t *testing.T) {
	t.Parallel()
	m := mustEncode(t, sampleOf(raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3)))
	m.Parts[0] = m.Parts[0][:11]
	_, err := wire.NewFrame(m, nil)
	require.ErrorIs(t, err, rewards.Malformed)
	_, err = wire.NewFrame(&wire.Message{}, nil)
	require.ErrorIs(t, err, wire.ErrTruncated)
}

func TestBuffersWasteAtMostAQuarter(t *testing.T) {
	t.Parallel()
	for _, size := range []int{5000, 8192, 10_240, 100_000, 786_432, 3_145_728, 5 << 20, 33 << 20} {
		for _, n := range []int{size - 1, size, size + 1} {
			var pool wire.Buffers
			s := sampleOf(raw(rewards.Latent, "D", "F16", make([]byte, n/2*2), n/2))
			f, err := wire.NewFrame(mustEncode(t, s), &pool)
			require.NoError(t, err)
			require.GreaterOrEqual(t, pool.Live(), f.Size())
			require.LessOrEqual(t, pool.Live(), f.Size()+f.Size()/4)
			f.Release()
		}
	}
}
