package ocr_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// The worked example: nine frames of 2×2 pixels, of which the frames 0, 4 and 8 are
// read. What they say stands in the colour of their pixels.
//
//	frame  text       flow_grpo_video              verl_omni
//	0      cat        1 - 0/3 = 1                  1
//	4      the cat    1 - min(3, 3)/3 = 0: left out  1: it contains the target
//	8      ca         1 - 1/3 = 2/3                2/3
//	                  (1 + 2/3)/2 = 5/6            (1 + 1 + 2/3)/3 = 8/9
const (
	workedFlowGRPO = 5.0 / 6
	workedVerlOmni = 8.0 / 9
)

func workedTexts() map[byte]string {
	return map[byte]string{10: "cat", 50: "the cat", 90: "ca"}
}

// byColour reads what a frame says from its colour, and refuses a frame whose
// channels were mixed up.
type byColour struct{ t *testing.T }

func (b byColour) ReadText(_ context.Context, px *rewards.Pixels, i int) ([]ocr.Line, error) {
	f := px.Frame(i)
	for p := 0; p < len(f); p += 3 {
		require.Equal(b.t, []byte{f[0], f[0] + 1, f[0] + 2}, f[p:p+3], "frame %d pixel %d", i, p/3)
	}
	return []ocr.Line{{Text: workedTexts()[f[0]], Confidence: 0.9}}, nil
}

// worked makes the video in a layout: colour c of frame t is 10·(t+1)+c.
func worked(t *testing.T, layout rewards.Layout) *rewards.Sample {
	t.Helper()
	const frames, side = 9, 2
	shape := map[rewards.Layout][]int{
		rewards.THWC: {frames, side, side, 3}, rewards.TCHW: {frames, 3, side, side}, rewards.CTHW: {3, frames, side, side},
	}[layout]
	data := make([]byte, frames*side*side*3)
	for at := range data {
		// The axes of position at, slowest first.
		var index [4]int
		for axis, rest := 3, at; axis >= 0; axis-- {
			index[axis], rest = rest%shape[axis], rest/shape[axis]
		}
		var frame, colour int
		for axis, name := range string(layout) {
			switch name {
			case 'T':
				frame = index[axis]
			case 'C':
				colour = index[axis]
			}
		}
		data[at] = byte(10*(frame+1) + colour)
	}
	m := &rewards.Media{Kind: rewards.Video, Layout: layout, Encoding: rewards.Raw, DType: "U8", Shape: shape, Data: data}
	d, err := media.New(media.Config{})
	require.NoError(t, err)
	m.SetDecoder(d)
	return &rewards.Sample{ID: "v", Prompt: `a sign that says "cat"`, GroundTruth: quote("cat"), Media: []*rewards.Media{m}}
}

func TestAVideoHasTheRewardOfTheWorkedExampleInEveryLayout(t *testing.T) {
	t.Parallel()
	for _, layout := range []rewards.Layout{rewards.THWC, rewards.TCHW, rewards.CTHW} {
		for preset, want := range map[string]float64{"flow_grpo_video": workedFlowGRPO, "verl_omni": workedVerlOmni} {
			got, err := newScorer(t, `{"preset":"`+preset+`"}`, byColour{t}).Score(t.Context(), worked(t, layout))
			require.NoError(t, err)
			require.InDelta(t, want, got.Value, 1e-12, "%s in %s", preset, layout)
			require.EqualValues(t, 3, got.Details["frames_read"])
		}
	}
}
