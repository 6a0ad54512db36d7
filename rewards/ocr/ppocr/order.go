package ppocr

import (
	"cmp"
	"slices"
)

// lineGap is how many pixels further down a box may begin than the one before it and
// still be of the same line.
const lineGap = 10

// sortRegions sorts regions by lines from the top and by X within a line, by their top
// left corners: a line ends where the next box, by Y, begins 10 pixels or more below
// the one before. This is RapidOCR's order from 3.9 on; it sorts rs itself.
func sortRegions(rs []region) []region {
	slices.SortStableFunc(rs, func(a, b region) int { return cmp.Compare(a.Quad[0].Y, b.Quad[0].Y) })
	for from := 0; from < len(rs); {
		to := from + 1
		for to < len(rs) && rs[to].Quad[0].Y-rs[to-1].Quad[0].Y < lineGap {
			to++
		}
		slices.SortStableFunc(rs[from:to], func(a, b region) int { return cmp.Compare(a.Quad[0].X, b.Quad[0].X) })
		from = to
	}
	return rs
}

// sortRegionsBubble is the order of PaddleOCR and of RapidOCR before 3.9: by Y and X,
// then every box moves ahead of its neighbours of which it begins to the left, as long
// as they begin less than 10 pixels higher or lower. It sorts rs itself; at most n²/2
// swaps, 500,000 for the 1000 boxes that there can be.
func sortRegionsBubble(rs []region) []region {
	slices.SortStableFunc(rs, func(a, b region) int {
		if c := cmp.Compare(a.Quad[0].Y, b.Quad[0].Y); c != 0 {
			return c
		}
		return cmp.Compare(a.Quad[0].X, b.Quad[0].X)
	})
	for i := 1; i < len(rs); i++ {
		for j := i; j > 0; j-- {
			a, b := rs[j-1].Quad[0], rs[j].Quad[0]
			if gap := b.Y - a.Y; gap >= lineGap || gap <= -lineGap || b.X >= a.X {
				break
			}
			rs[j-1], rs[j] = rs[j], rs[j-1]
		}
	}
	return rs
}
