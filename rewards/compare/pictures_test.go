package compare_test

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

func TestPicturesComeBeforeTheTextAndInTheOrderOfTheCandidates(t *testing.T) {
	t.Parallel()
	brighter := func(q question) (string, error) {
		if len(q.pictures) != 2 || q.a != "Picture 1." || q.b != "Picture 2." {
			return "", fmt.Errorf("%w: %d pictures, %q, %q", rewards.Internal, len(q.pictures), q.a, q.b)
		}
		return prefers(grey(q.pictures[0]) - grey(q.pictures[1])), nil
	}
	g := shown(shade{grey: 40, frames: 1}, shade{grey: 200, frames: 1}, shade{grey: 120, frames: 1})
	for _, format := range []string{"png", "jpeg", "as_is"} {
		j := &judge{verdict: brighter}
		got := scores(t, build(t, j, "pairwise", `{"image_format":"`+format+`"}`), g)
		assert.Equal(t, []float64{-1, 1, 0}, got)
		for _, q := range j.questions() {
			mime := "image/png"
			if format == "jpeg" {
				mime = "image/jpeg"
			}
			assert.Equal(t, mime, q.request.Messages[0].Parts[0].MIME)
		}
	}
}

func TestAPictureCanBeSentInTheBytesItCameIn(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	require.NoError(t, png.Encode(&file, image.NewGray(image.Rect(0, 0, 3, 3))))
	g := shown(shade{grey: 1, frames: 1}, shade{grey: 2, frames: 1})
	g.Members[0].Sample.Media[0].Encoding, g.Members[0].Sample.Media[0].Data = rewards.PNG, file.Bytes()
	j := &judge{verdict: func(question) (string, error) { return "<result>tie</result>", nil }}
	scores(t, build(t, j, "pairwise", `{"image_format":"as_is"}`), g)
	for _, q := range j.questions() {
		sides := []int{q.pictures[0].Bounds().Dx(), q.pictures[1].Bounds().Dx()}
		assert.ElementsMatch(t, []int{3, 8}, sides, "the other came raw, and goes as PNG")
	}
}

func TestAVideoIsShownInFrames(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		if len(q.pictures) != 8 || !strings.HasPrefix(q.b, "Pictures 5 to 8, frames") {
			return "", fmt.Errorf("%w: %d pictures, %q", rewards.Internal, len(q.pictures), q.b)
		}
		for i := range 4 { // of 10 frames: 0, 2, 5, 7
			assert.InDelta(t, []float64{0, 2, 5, 7}[i], grey(q.pictures[i])-grey(q.pictures[0]), 1)
		}
		return prefers(grey(q.pictures[0]) - grey(q.pictures[4])), nil
	}}
	got := scores(t, build(t, j, "pairwise", `{"resize":16}`), shown(shade{grey: 60, frames: 10}, shade{grey: 20, frames: 10}))
	assert.Equal(t, []float64{1, -1}, got)
	assert.Equal(t, 16, j.questions()[0].pictures[0].Bounds().Dx())
}

func TestAPictureThatCannotBeShownFailsAlone(t *testing.T) {
	t.Parallel()
	j := &judge{verdict: func(q question) (string, error) {
		return prefers(grey(q.pictures[0]) - grey(q.pictures[1])), nil
	}}
	g := shown(
		shade{grey: 40, frames: 1}, shade{err: fmt.Errorf("%w: no JPEG", rewards.BadInput)}, shade{grey: 120, frames: 1},
		shade{panics: true}, shade{frames: 0},
	)
	got, err := build(t, j, "pairwise", `{}`).ScoreGroup(t.Context(), g)
	require.NoError(t, err)
	assert.InDelta(t, -1, got[0].Score.Value, 0)
	require.ErrorIs(t, got[1].Err, rewards.BadInput)
	assert.InDelta(t, 1, got[2].Score.Value, 0)
	require.ErrorIs(t, got[3].Err, rewards.Panicked)
	require.ErrorIs(t, got[4].Err, rewards.BadInput)
	assert.InDelta(t, 1, got[0].Score.Extra["losses"], 0)
}
