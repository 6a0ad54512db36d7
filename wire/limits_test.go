package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func TestLimitsReportAllTheirFaults(t *testing.T) {
	t.Parallel()
	require.NoError(t, wire.Limits{}.WithDefaults().Validate())
	err := wire.Limits{HeaderBytes: wire.MaxHeaderBytes + 1, MessageBytes: 9}.Validate()
	for _, want := range []string{"header_bytes is 1048577", "message_bytes is 9"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, wire.Limits{MessageBytes: math.MaxInt64}.WithDefaults().Validate(), "message_bytes")
}

// A frame that keeps to the format and is beyond what this receiver takes.
func TestAFrameBeyondTheReceiversLimitsIsTooLarge(t *testing.T) {
	t.Parallel()
	picture := &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, Data: []byte{4}}
	s := sampleOf(picture)
	whole := mustEncode(t, s).Bytes()
	list := func(n int, of string) string { return strings.TrimSuffix(strings.Repeat(of+",", n), ",") }
	named := framed(`{"id":"s","media":[{"tensors":[`+list(wire.MaxTensors+1, `"x"`)+`],"kind":"video","encoding":"frames"}]}`, "", 0)
	held := make([]string, wire.MaxTensors+1)
	for i := range held {
		held[i] = fmt.Sprintf(`"t%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, i, i, i+1)
	}
	video := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, Frames: slices.Repeat([][]byte{{1}}, wire.MaxTensors+1)}
	for _, c := range []struct {
		frame  []byte
		limits wire.Limits
		want   string
	}{
		{framed(`{"id":"s"}`, strings.Join(held, ","), len(held)), wire.Limits{}, "more than 4096 tensors"},
		{named, wire.Limits{}, "more than 4096 tensors"},
		{framed(withMedia(list(wire.MaxMedia+1, `{}`)), "", 0), wire.Limits{}, "more than 64 media"},
		{whole, wire.Limits{HeaderBytes: 64}, "the limit is 64"},
		{whole, wire.Limits{MessageBytes: int64(len(whole)) - 1}, "the limit is"},
	} {
		_, err := wire.ReadHeader(bytes.NewReader(c.frame), c.limits)
		require.ErrorIs(t, err, rewards.TooLarge, c.want)
		require.ErrorContains(t, err, c.want)
	}
	for _, limits := range []wire.Limits{{HeaderBytes: 64}, {MessageBytes: 64}} {
		_, err := wire.Encode(s, wire.Options{Limits: limits})
		require.ErrorIs(t, err, rewards.TooLarge, "%+v: a sender with the receiver's limits does not send it", limits)
	}
	for _, s := range []*rewards.Sample{sampleOf(video), sampleOf(slices.Repeat([]*rewards.Media{picture}, wire.MaxMedia+1)...)} {
		_, err := wire.Encode(s, wire.Options{})
		require.ErrorIs(t, err, rewards.TooLarge)
	}
}

// Names of more than eight tensors are looked up through a map.
func TestEveryOneOfManyTensorsIsFoundByItsName(t *testing.T) {
	t.Parallel()
	var media []*rewards.Media
	for i := range 20 {
		media = append(media, &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Shape: []int{i + 1}, Data: bytes.Repeat([]byte{byte(i)}, i+1)})
	}
	whole := mustEncode(t, sampleOf(media...)).Bytes()
	f, err := wire.Decode(whole, wire.Limits{})
	require.NoError(t, err)
	require.Equal(t, media, f.Sample().Media)
	other := bytes.Replace(whole, []byte(strconv.Quote("media19")+":{"), []byte(strconv.Quote("mediaXX")+":{"), 1)
	_, err = wire.Decode(other, wire.Limits{})
	require.ErrorIs(t, err, wire.ErrMedia)
	require.ErrorContains(t, err, `no tensor "media19"`)
}

func TestABufferAboveTheLargestClassIsExactAndCounted(t *testing.T) {
	t.Parallel()
	var buffers wire.Buffers
	const n = 256<<20 + 1
	d := buffers.Draft(n)
	require.Equal(t, int64(n), buffers.Live())
	require.Len(t, d.Rest(), n)
	d.Release()
	require.Zero(t, buffers.Live())
}

// A connection that fails is not the sender's mistake: the error is the reader's own, also
// behind the last byte of a frame.
func TestAConnectionThatFailsBehindAFrameIsNoRefusal(t *testing.T) {
	t.Parallel()
	whole := framed(withMedia(imageEntry), rgb2x2, 12)
	broken := errors.New("connection reset")
	r := io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(broken))
	h, err := wire.ReadHeader(r, wire.Limits{})
	require.NoError(t, err)
	var buffers wire.Buffers
	_, err = h.ReadBody(r, &buffers)
	require.ErrorIs(t, err, broken)
	var refused *wire.FrameError
	assert.NotErrorAs(t, err, &refused)
	require.Zero(t, buffers.Live())
}

// tight takes so many bytes.
type tight int

func (w *tight) Write(b []byte) (int, error) {
	n := min(len(b), int(*w))
	if *w -= tight(n); n < len(b) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

func TestAMessageThatCannotBeWrittenSaysHowFarItCame(t *testing.T) {
	t.Parallel()
	m := mustEncode(t, sampleOf(raw(rewards.Image, rewards.HWC, "U8", ramp(12, 0), 2, 2, 3), raw(rewards.Image, rewards.HWC, "U8", ramp(12, 1), 2, 2, 3)))
	room := len(m.Head) + 5
	w := tight(room)
	n, err := m.WriteTo(&w)
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Equal(t, int64(room), n)
}

func TestATextIsEncodedInItsShortestFormAndComesOutAsItWas(t *testing.T) {
	t.Parallel()
	text := "\b\f\n\r\t\"\\/\x00\x1fé\u2028" + strings.Repeat("x", 10)
	s := sampleOf()
	s.Prompt = text
	m := mustEncode(t, s)
	f, err := wire.Decode(m.Bytes(), wire.Limits{})
	require.NoError(t, err)
	require.Equal(t, text, f.Sample().Prompt)
	require.Contains(t, string(m.Head), `\\b\\f\\n\\r\\t`)
}
