package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// LinesData is a picture of lines over a common axis.
type LinesData struct {
	Title          string
	XLabel, YLabel string
	// X ascends; with LogX it is above 0, and every value stands under its point.
	X    []float64
	LogX bool
	// Series has a value for every X.
	Series []Series
	// FromZero begins the vertical axis at 0.
	FromZero bool
	Foot     string
}

// Lines writes the picture.
func Lines(file string, d LinesData) error {
	if err := check(d.Series, len(d.X), "values of x"); err != nil {
		return err
	}
	if !slices.IsSorted(d.X) || slices.ContainsFunc(d.X, math.IsNaN) || math.IsInf(d.X[0], 0) || math.IsInf(d.X[len(d.X)-1], 0) || d.LogX && d.X[0] <= 0 {
		return fmt.Errorf("%w: x must ascend, and be above 0 on a logarithmic axis: %v", ErrData, d.X)
	}
	l := &lines{d: d, colours: colours(len(d.Series), false)}
	p := axes(d.XLabel, d.YLabel)
	l.ranges(p)
	p.Add(grid{x: true}, l)
	s := sheet{file: file, width: 640, height: 400, title: d.Title, foot: d.Foot}
	for i, series := range d.Series {
		s.legend = append(s.legend, entry{series.Name, func(c draw.Canvas) {
			y := c.Center().Y
			c.StrokeLine2(l.style(i), c.Min.X, y, c.Max.X, y)
			l.dot(c, i, c.Center())
		}})
	}
	return s.save(func(c draw.Canvas) { p.Draw(c) })
}

type lines struct {
	d       LinesData
	colours []color.Color
}

// ranges sets both axes.
func (l *lines) ranges(p *plot.Plot) {
	p.X.Min, p.X.Max = l.d.X[0], l.d.X[len(l.d.X)-1]
	room := 0.03 * (p.X.Max - p.X.Min)
	if l.d.LogX {
		p.X.Scale = plot.LogScale{}
		var ticks plot.ConstantTicks
		for _, x := range l.d.X {
			ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', -1, 64)})
		}
		p.X.Tick.Marker = ticks
		k := math.Pow(p.X.Max/p.X.Min, 0.03)
		p.X.Min, p.X.Max = p.X.Min/k, p.X.Max*k*k*k // values stand on the right
	} else {
		p.X.Min, p.X.Max = p.X.Min-room, p.X.Max+3*room
	}
	if p.X.Min == p.X.Max {
		p.X.Min, p.X.Max = p.X.Min/2, p.X.Max*2
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range l.d.Series {
		for _, v := range s.Values {
			if !math.IsNaN(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if low > high {
		low, high = 0, 1
	}
	if l.d.FromZero {
		low = min(low, 0)
	}
	space := 0.06 * max(high-low, 1e-9)
	p.Y.Max = high + space
	p.Y.Min = low - space
	if l.d.FromZero && low == 0 {
		p.Y.Min = 0
	}
}

func (l *lines) style(i int) draw.LineStyle {
	sty := draw.LineStyle{Color: l.colours[i], Width: 2}
	if l.d.Series[i].Dashed {
		sty.Dashes, sty.Width = []vg.Length{5, 3}, 1.4
	}
	return sty
}

// dot marks a measurement, each series with a shape of its own.
func (l *lines) dot(c draw.Canvas, i int, at vg.Point) {
	if l.d.Series[i].Dashed {
		return
	}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.SquareGlyph{}, draw.RingGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}}
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: l.colours[i], Radius: 3.2, Shape: shapes[i%len(shapes)]}, at)
}

// Plot implements plot.Plotter.
func (l *lines) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, s := range l.d.Series {
		var parts [][]vg.Point
		open := false
		for k, v := range s.Values {
			if math.IsNaN(v) {
				open = false
				continue
			}
			if !open {
				parts, open = append(parts, nil), true
			}
			last := len(parts) - 1
			parts[last] = append(parts[last], vg.Point{X: x(l.d.X[k]), Y: y(v)})
		}
		c.StrokeLines(l.style(i), parts...)
		for _, part := range parts {
			for _, at := range part {
				l.dot(c, i, at)
			}
		}
	}
	l.values(c, x, y)
}

// darker is a colour for thin letters.
func darker(c color.Color) color.Color {
	r, g, b, _ := c.RGBA()
	part := func(v uint32) uint8 { return uint8(v >> 8 * 7 / 10) } //nolint:gosec // of 16 bits
	return color.RGBA{part(r), part(g), part(b), 255}
}

// values writes every measurement above and to the right of its point, those of one X
// apart from each other.
func (l *lines) values(c draw.Canvas, x, y func(float64) vg.Length) {
	type label struct {
		at  vg.Length
		txt string
		col color.Color
	}
	sty := styled(small, nil)
	sty.YAlign = text.YCenter
	for k := range l.d.X {
		var labels []label
		for i, s := range l.d.Series {
			if v := s.Values[k]; !math.IsNaN(v) && !s.Dashed {
				labels = append(labels, label{y(v), brief(v), l.colours[i]})
			}
		}
		slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.at, b.at) })
		for i, b := range labels {
			b.at += small / 2
			if i > 0 {
				b.at = max(b.at, labels[i-1].at+small)
			}
			labels[i], sty.Color = b, darker(b.col)
			left, half := x(l.d.X[k])+6, small/2
			c.FillPolygon(color.NRGBA{255, 255, 255, 210}, rectangle(left-1, b.at-half, left+sty.Width(b.txt)+1, b.at+half))
			c.FillText(sty, vg.Point{X: left, Y: b.at}, b.txt)
		}
	}
}
