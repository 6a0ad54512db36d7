package python_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// pixels are the numbers 0 to n-1.
func pixels(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// still gives the same pixels for every encoded picture.
type still struct{ px *rewards.Pixels }

func (d still) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) { return d.px, nil }

func TestPixelsArriveAsTheTrainersHaveThem(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/rewards.py", Name: "pixels", Pixels: "numpy"})
	warm(t, s)
	encoded := &rewards.Media{Kind: rewards.Image, Encoding: rewards.PNG, DType: "U8", Data: []byte("png"), Shape: []int{3}}
	encoded.SetDecoder(still{&rewards.Pixels{Width: 2, Height: 1, Count: 1, RGB: pixels(6)}})
	tests := map[string]struct {
		media *rewards.Media
		shape string
		first float64 // the second element: it tells one order from another
	}{
		"HWC":     {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.HWC, DType: "U8", Shape: []int{1, 2, 3}, Data: pixels(6)}, "(3, 1, 2)", 3},
		"CHW":     {&rewards.Media{Kind: rewards.Image, Encoding: rewards.Raw, Layout: rewards.CHW, DType: "U8", Shape: []int{3, 1, 2}, Data: pixels(6)}, "(3, 1, 2)", 1},
		"THWC":    {&rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, Layout: rewards.THWC, DType: "U8", Shape: []int{2, 1, 2, 3}, Data: pixels(12)}, "(2, 3, 1, 2)", 3},
		"CTHW":    {&rewards.Media{Kind: rewards.Video, Encoding: rewards.Raw, Layout: rewards.CTHW, DType: "U8", Shape: []int{3, 2, 1, 2}, Data: pixels(12)}, "(2, 3, 1, 2)", 1},
		"encoded": {encoded, "(3, 1, 2)", 3},
	}
	for name, tt := range tests {
		got, err := score(t, s, &rewards.Sample{ID: name, Media: []*rewards.Media{tt.media}})
		require.NoError(t, err, name)
		assert.Equal(t, tt.shape, got.Extra["shape"], name)
		assert.InDelta(t, tt.first, got.Extra["first"], 0, name)
		assert.Equal(t, "uint8", got.Extra["dtype"], name)
	}
}

func TestLatentsAndNamedTensorsArrive(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/rewards.py", Name: "pixels", Pixels: "numpy"})
	latent := &rewards.Media{Kind: rewards.Latent, Encoding: rewards.Raw, Layout: "CHW", DType: "BF16", Shape: []int{1, 1, 3}, Data: []byte{0x80, 0x3f, 0x00, 0x40, 0x40, 0x40}}
	named := &rewards.Media{Kind: rewards.Latent, Encoding: rewards.Raw, Layout: "LD", DType: "F32", Shape: []int{2, 1}, Data: make([]byte, 8)}
	got, err := score(t, s, &rewards.Sample{
		ID: "a", Media: []*rewards.Media{latent, named}, ExtraInfo: json.RawMessage(`{"rewardloop_tensors":["prompt_embeds"]}`),
	})
	require.NoError(t, err)
	assert.InDelta(t, 6.0, got.Value, 0, "1 + 2 + 3 in bfloat16")
	assert.Equal(t, "(2, 1)", got.Extra["prompt_embeds"])
}

func TestASampleWithoutThePictureAFunctionNeedsIsABadInput(t *testing.T) {
	t.Parallel()
	s := function(t, python.Config{}, "first_byte")
	_, err := score(t, s, &rewards.Sample{ID: "text", Response: "x"})
	assert.Equal(t, rewards.BadInput, rewards.ClassOf(err))
	assert.ErrorContains(t, err, "needs solution_image")
}
