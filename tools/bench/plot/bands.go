package plot

import (
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// BandsData is a picture of what happened when: a row for everyone, a band for every
// stretch of time.
type BandsData struct {
	Title  string
	XLabel string // with the unit
	Rows   []Row  // the first is at the top
	// Kinds are the legend, in order; a band's Kind is one of them.
	Kinds []string
	Foot  string
}

// Row is the bands of one name.
type Row struct {
	Name  string
	Bands []Band
}

// Band is a stretch of time.
type Band struct {
	From, To float64
	Kind     string
	// Label stands in the band, where it fits.
	Label string
}

// Bands writes the picture.
func Bands(file string, d BandsData) error {
	end, err := d.end()
	if err != nil {
		return err
	}
	p := axes(d.XLabel, "")
	names := make([]string, len(d.Rows))
	for i, r := range d.Rows {
		names[len(names)-1-i] = r.Name
	}
	p.NominalY(names...)
	p.Y.Tick.Label.XAlign = text.XRight
	p.X.Min, p.X.Max = 0, end
	p.Y.Min, p.Y.Max = -0.5, float64(len(d.Rows))-0.5
	b := bands{d: d, colours: map[string]color.Color{}}
	s := sheet{file: file, width: 760, height: vg.Length(130 + 30*len(d.Rows)), title: d.Title, foot: d.Foot}
	for i, col := range colours(len(d.Kinds), false) {
		b.colours[d.Kinds[i]] = col
		s.legend = append(s.legend, entry{d.Kinds[i], swatch(col)})
	}
	p.Add(b)
	return s.save(func(c draw.Canvas) { p.Draw(c) })
}

// end checks the data and returns the last moment.
func (d BandsData) end() (float64, error) {
	end := 0.0
	for _, r := range d.Rows {
		for _, b := range r.Bands {
			if !(b.From >= 0 && b.To >= b.From) || math.IsInf(b.To, 0) || !slices.Contains(d.Kinds, b.Kind) {
				return 0, fmt.Errorf("%w: row %q has a band of kind %q from %v to %v; kinds are %q", ErrData, r.Name, b.Kind, b.From, b.To, d.Kinds)
			}
			end = max(end, b.To)
		}
	}
	if end == 0 {
		return 0, fmt.Errorf("%w: no band", ErrData)
	}
	return end, nil
}

type bands struct {
	d       BandsData
	colours map[string]color.Color
}

// Plot implements plot.Plotter.
func (b bands) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	half := (y(1) - y(0)) * 0.36
	label := styled(small, color.White)
	label.XAlign, label.YAlign = text.XCenter, text.YCenter
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(draw.LineStyle{Color: grey(0xDD), Width: hairline}, x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	for i, r := range b.d.Rows {
		at := y(float64(len(b.d.Rows) - 1 - i))
		for _, band := range r.Bands {
			from, to := x(band.From), x(band.To)
			c.FillPolygon(b.colours[band.Kind], rectangle(from, at-half, to, at+half))
			c.StrokeLine2(draw.LineStyle{Color: color.White, Width: hairline}, to, at-half, to, at+half)
			if band.Label != "" && label.Width(band.Label)+4 < to-from {
				label.Color = readable(b.colours[band.Kind])
				c.FillText(label, vg.Point{X: (from + to) / 2, Y: at}, band.Label)
			}
		}
	}
}

// readable is the colour of text on a colour: white on dark ones.
func readable(on color.Color) color.Color {
	if c, _ := color.GrayModel.Convert(on).(color.Gray); c.Y > 140 {
		return grey(0x11)
	}
	return color.White
}

var (
	_ plot.Plotter    = bands{}
	_ plot.Plotter    = (*bars)(nil)
	_ plot.GlyphBoxer = (*bars)(nil)
	_ plot.Plotter    = (*lines)(nil)
	_ plot.Plotter    = grid{}
)
