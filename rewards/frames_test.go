package rewards_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestAChoiceOfFramesIsReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text  string
		count int
		fps   float64
		want  []int
	}{
		{"all", 4, 0, []int{0, 1, 2, 3}},
		{"first", 4, 0, []int{0}},
		{"every:3", 7, 0, []int{0, 3, 6}},
		{"every:9", 7, 0, []int{0}},
		{"uniform:8", 81, 0, []int{0, 10, 20, 30, 40, 50, 60, 70}},
		{"uniform:9", 3, 0, []int{0, 1, 2}},
		{"fps:2", 16, 8, []int{0, 4, 8, 12}},
		{"fps:3", 8, 8, []int{0, 2, 5}},
		{"fps:30", 3, 24, []int{0, 1, 2}},
		{"fps:0.5", 48, 16, []int{0, 32}},
	} {
		f, err := rewards.ParseFrames(c.text)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.text, f.String())
		got, err := f.Of(c.count, c.fps)
		require.NoError(t, err, c.text)
		assert.Equal(t, c.want, got, c.text)
		text, err := json.Marshal(f)
		require.NoError(t, err)
		var again rewards.FrameChoice
		require.NoError(t, json.Unmarshal(text, &again))
		assert.Equal(t, f, again)
	}
	var n rewards.FrameChoice
	require.NoError(t, json.Unmarshal([]byte("6"), &n))
	assert.Equal(t, rewards.EvenFrames(6), n)
	require.NoError(t, json.Unmarshal([]byte("null"), &n))
	assert.Equal(t, rewards.EvenFrames(6), n, "null changes nothing")
	for _, wrong := range []string{`"every"`, `"every:0"`, `"every:x"`, `"first:1"`, `"all:"`, `"fps:0"`, `"fps:NaN"`, `"last"`, `""`, `0`, `-1`, `1.5`, `true`, `[1]`, `"uniform:99999999"`} {
		require.ErrorContains(t, json.Unmarshal([]byte(wrong), &n), "frames: ", wrong)
	}
}

func TestFramesInASecondNeedAFrameRate(t *testing.T) {
	t.Parallel()
	f, err := rewards.ParseFrames("fps:2")
	require.NoError(t, err)
	_, err = f.Of(9, 0)
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "needs a video whose frame rate is known")
}

// painted is a decoder of videos that cannot choose.
type painted struct{ frames int }

func (p painted) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	px := &rewards.Pixels{Width: 1, Height: 1, Count: p.frames}
	for i := range p.frames {
		px.RGB = append(px.RGB, byte(i), 0, 0)
	}
	return px, nil
}

func TestAViewShowsTheChosenFramesOfAVideoAndTheOnePictureOfAnImage(t *testing.T) {
	t.Parallel()
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, FPS: 8}
	m.SetDecoder(painted{9})
	v, giveBack, err := m.BorrowFrames(t.Context(), rewards.EveryFrame(4))
	require.NoError(t, err)
	defer giveBack()
	assert.Equal(t, []int{0, 4, 8}, v.Number)
	assert.Equal(t, []byte{8, 0, 0}, v.Bytes(2))
	assert.Equal(t, []int{8}, v.Places([]int{8}))
	assert.InDelta(t, 2, v.FPS, 1e-9)

	picture := &rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw}
	picture.SetDecoder(painted{1})
	fps, err := rewards.ParseFrames("fps:2")
	require.NoError(t, err)
	v, err = picture.PixelsOf(t.Context(), fps)
	require.NoError(t, err)
	assert.Equal(t, []int{0}, v.At)

	none := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw}
	none.SetDecoder(painted{0})
	_, _, err = none.BorrowFrames(t.Context(), rewards.AllFrames())
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "a video without a frame")
}
