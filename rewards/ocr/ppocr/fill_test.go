package ppocr

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGoldenBoxScoresAreFillPolyMeans(t *testing.T) {
	t.Parallel()
	prob, w, h := goldenMap(t, "score.png")
	same, cases := 0, golden[[]struct {
		Box   goldenBox
		Score float64
	}](t, "geometry/score.json")
	for i, c := range cases {
		got := new(filler).boxMean(prob, w, h, c.Box.corners())
		if assert.InDelta(t, c.Score, got, 1e-6, "case %d: %v", i, c.Box) {
			same++
		}
	}
	t.Logf("%d of %d are the same", same, len(cases))
}

func TestAScoreCountsTheOutline(t *testing.T) {
	t.Parallel()
	prob := make([]float32, 10*10)
	for y := 2; y <= 5; y++ {
		for x := 1; x <= 6; x++ {
			prob[y*10+x] = 1
		}
	}
	var f filler
	assert.InDelta(t, 1, f.boxMean(prob, 10, 10, [4]corner{{1, 2}, {6, 2}, {6, 5}, {1, 5}}), 0)
	assert.InDelta(t, 24./28, f.boxMean(prob, 10, 10, [4]corner{{1, 2}, {7, 2}, {7, 5}, {1, 5}}), 1e-12)
	assert.InDelta(t, 0, f.boxMean(prob, 10, 10, [4]corner{{-9, -9}, {-5, -9}, {-5, -6}, {-9, -6}}), 0)
}
