package ppocr

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

type goldenRectangle struct {
	Hull      [][2]int32
	Box       goldenBox
	Side      float64
	Distance  float64
	Outline   [][2]int32
	Grown     goldenBox
	GrownSide float64 `json:"grown_side"`
}

func TestGoldenBoxesAroundBarsAreMinAreaRects(t *testing.T) {
	t.Parallel()
	same, cases := 0, golden[[]goldenRectangle](t, "geometry/rectangles.json")
	for _, c := range cases {
		hull := cells(c.Hull)
		readingOrder(hull)
		hull = appendHull(nil, hull)
		startOuter(hull)
		box, side := new(calipers).miniBox(hull)
		assert.LessOrEqual(t, c.Box.apart(box), .001)
		assert.InDelta(t, c.Side, side, .001)
		if c.Box.apart(box) == 0 {
			same++
		}
	}
	t.Logf("%d of %d are the same to the last bit", same, len(cases))
	assert.GreaterOrEqual(t, same, len(cases)*99/100)
}

func TestAHullWithoutAnAreaHasNoBox(t *testing.T) {
	t.Parallel()
	for _, hull := range [][]cell{nil, {{3, 4}}, {{0, 0}, {9, 9}}} {
		_, side := new(calipers).miniBox(hull)
		assert.Zero(t, side)
	}
}
