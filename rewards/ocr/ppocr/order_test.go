package ppocr

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func regionsAt(places [][2]float64) []region {
	var rs []region
	for _, p := range places {
		rs = append(rs, region{Quad: rect(p[0], p[1], p[0]+50, p[1]+20)})
	}
	return rs
}

func TestGoldenOrdersAreTheReferences(t *testing.T) {
	t.Parallel()
	for _, c := range golden[[]struct{ Boxes, Lines, Bubble [][2]float64 }](t, "geometry/order.json") {
		assert.Equal(t, regionsAt(c.Lines), sortRegions(regionsAt(c.Boxes)))
		assert.Equal(t, regionsAt(c.Bubble), sortRegionsBubble(regionsAt(c.Boxes)))
	}
}

func TestALineGoesOnAsLongAsEachBoxIsNearTheOneBefore(t *testing.T) {
	t.Parallel()
	stairs := [][2]float64{{300, 0}, {200, 9}, {100, 18}, {0, 28}}
	assert.Equal(t, regionsAt([][2]float64{{100, 18}, {200, 9}, {300, 0}, {0, 28}}), sortRegions(regionsAt(stairs)))
	assert.Equal(t, regionsAt([][2]float64{{200, 9}, {300, 0}, {100, 18}, {0, 28}}), sortRegionsBubble(regionsAt(stairs)))
}

func TestSortingNothingIsNothing(t *testing.T) {
	t.Parallel()
	assert.Empty(t, sortRegions(nil))
	assert.Empty(t, sortRegionsBubble(nil))
}
