package plot

import (
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// BarsData is a picture of bars, those of one group side by side, each with its value.
type BarsData struct {
	Title  string
	YLabel string
	// Groups are the names under the bars; a line break is one.
	Groups []string
	// Series has one bar in every group.
	Series []Series
	// Ordered says that the series are steps of one quantity: they get shades of one colour.
	Ordered bool
	// Top is where the axis ends; a bar beyond is cut, and says how far it goes. 0: at the
	// highest.
	Top float64
	// MarkName is the legend's word for the series' marks.
	MarkName string
	Foot     string
}

// Bars writes the picture.
func Bars(file string, d BarsData) error {
	if err := check(d.Series, len(d.Groups), "groups"); err != nil {
		return err
	}
	b := &bars{d: d, colours: colours(len(d.Series), d.Ordered)}
	p := axes("", d.YLabel)
	p.NominalX(level(d.Groups)...)
	p.X.Min, p.X.Max = -0.5, float64(len(d.Groups))-0.5
	p.X.Tick.Label.YAlign = text.YTop
	p.X.Tick.Length = 3
	b.top = d.Top
	if b.top == 0 {
		b.top = 1.08 * b.highest()
	}
	p.Y.Min, p.Y.Max = 0, b.top
	p.Add(grid{}, b)
	s := sheet{file: file, width: 760, height: 400, title: d.Title, foot: d.Foot}
	s.width = max(s.width, vg.Length(24*len(d.Groups)*(len(d.Series)+1)))
	for i, series := range d.Series {
		s.legend = append(s.legend, entry{series.Name, swatch(b.colours[i])})
	}
	if d.MarkName != "" {
		s.legend = append(s.legend, entry{d.MarkName, func(c draw.Canvas) {
			c.StrokeLine2(markLine(), c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
		}})
	}
	return s.save(func(c draw.Canvas) { p.Draw(c) })
}

// level gives all names as many lines, so that their first ones are level.
func level(names []string) []string {
	lines := 0
	for _, n := range names {
		lines = max(lines, strings.Count(n, "\n"))
	}
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = n + strings.Repeat("\n ", lines-strings.Count(n, "\n"))
	}
	return out
}

// bars draws them.
type bars struct {
	d       BarsData
	colours []color.Color
	top     float64
}

// highest is the highest bar or mark, at least a little.
func (b *bars) highest() float64 {
	high := 1e-9
	for _, s := range b.d.Series {
		for _, v := range append(append([]float64{}, s.Values...), s.Marks...) {
			if v > high { // not for NaN
				high = v
			}
		}
	}
	return high
}

func markLine() draw.LineStyle { return draw.LineStyle{Color: grey(0x11), Width: 1.6} }

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	width := (x(1) - x(0)) * 0.86 / vg.Length(len(b.d.Series))
	label := styled(small, grey(0x22))
	label.XAlign, label.YAlign = text.XCenter, text.YBottom
	for i, s := range b.d.Series {
		for g, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			left := x(float64(g)) + vg.Length(float64(i)-float64(len(b.d.Series))/2)*width
			right := left + width*0.92
			high := y(min(max(v, 0), b.top))
			c.FillPolygon(b.colours[i], rectangle(left, y(0), right, high))
			if v > b.top {
				b.cut(c, left, right, high)
			}
			above := high + 2
			if g < len(s.Marks) && s.Marks[g] <= b.top {
				mark := y(s.Marks[g])
				c.StrokeLine2(draw.LineStyle{Color: color.White, Width: 3.4}, left-1, mark, right+1, mark) // on a dark bar
				c.StrokeLine2(markLine(), left-1, mark, right+1, mark)
				if mark > high-2 && mark < above+small {
					above = mark + 3 // the mark would cross out the value
				}
			}
			c.FillText(label, vg.Point{X: (left + right) / 2, Y: above}, brief(v))
		}
	}
}

// cut draws a white stroke across a bar that goes on.
func (b *bars) cut(c draw.Canvas, left, right, high vg.Length) {
	for _, below := range []vg.Length{9, 13} {
		line := draw.LineStyle{Color: color.White, Width: 1.6}
		c.StrokeLine2(line, left-1, high-below-3, right+1, high-below+3)
	}
}

// GlyphBoxes implements plot.GlyphBoxer: labels need room above the highest bar.
func (b *bars) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	return []plot.GlyphBox{{Y: 1, Rectangle: vg.Rectangle{Max: vg.Point{Y: small + 4}}}}
}
