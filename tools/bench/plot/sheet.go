package plot

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	gonumfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Series is one colour of a picture.
type Series struct {
	// Name is its entry in the legend.
	Name string
	// Values has one for each group or X; NaN: there is none.
	Values []float64
	// Marks are drawn across the bars: what each was to keep. NaN, or too few of them: none.
	Marks []float64
	// Dashed says that the line is a reference, not a measurement.
	Dashed bool
}

// ErrData is the class of every refusal of data.
var ErrData = errors.New("plot: data cannot be drawn")

// Sizes in points, of which a browser shows 96 in 72.
const (
	margin   = vg.Length(14)
	gap      = vg.Length(8)
	large    = vg.Length(15)
	medium   = vg.Length(11)
	small    = vg.Length(9.5)
	hairline = vg.Length(0.6)
)

func grey(v uint8) color.Color { return color.RGBA{v, v, v, 255} }

// distinct are the colours of Okabe and Ito, less their yellow, which is faint on white.
func distinct() []color.Color {
	return []color.Color{
		color.RGBA{0x00, 0x72, 0xB2, 255},
		color.RGBA{0xE6, 0x9F, 0x00, 255},
		color.RGBA{0x00, 0x9E, 0x73, 255},
		color.RGBA{0xCC, 0x79, 0xA7, 255},
		color.RGBA{0x56, 0xB4, 0xE9, 255},
		color.RGBA{0xD5, 0x5E, 0x00, 255},
		color.RGBA{0x55, 0x55, 0x55, 255},
	}
}

// colours returns n of them; ordered ones are shades, the last the darkest.
func colours(n int, ordered bool) []color.Color {
	if !ordered {
		all := distinct()
		for len(all) < n {
			all = append(all, all...)
		}
		return all[:n]
	}
	light, dark := [3]float64{0xB5, 0xD6, 0xEE}, [3]float64{0x08, 0x30, 0x6B}
	out := make([]color.Color, n)
	for i := range out {
		t := 1.0
		if n > 1 {
			t = float64(i) / float64(n-1)
		}
		shade := func(k int) uint8 { return uint8(math.Round(light[k] + t*(dark[k]-light[k]))) }
		out[i] = color.RGBA{shade(0), shade(1), shade(2), 255}
	}
	return out
}

// entry is a line of the legend.
type entry struct {
	name  string
	thumb func(c draw.Canvas) // draws into the small canvas
}

// swatch is the thumb of a filled area.
func swatch(col color.Color) func(draw.Canvas) {
	return func(c draw.Canvas) { c.FillPolygon(col, rectangle(c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)) }
}

func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}}
}

// sheet is what stands around a picture.
type sheet struct {
	file          string
	width, height vg.Length
	title, foot   string
	legend        []entry
}

// styled is text of the pictures' typeface.
func styled(size vg.Length, col color.Color) text.Style {
	return text.Style{
		Color: col, Font: gonumfont.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
		Handler: text.Plain{Fonts: gonumfont.DefaultCache},
	}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = font.WeightBold
	return s
}

// axes is an empty plot in the pictures' style.
func axes(xLabel, yLabel string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []struct {
		axis  *plot.Axis
		label string
	}{{&p.X, xLabel}, {&p.Y, yLabel}} {
		a.axis.Label.Text = a.label
		upright := a.axis.Label.TextStyle
		a.axis.Label.TextStyle = styled(medium, grey(0x33))
		a.axis.Label.TextStyle.Rotation, a.axis.Label.TextStyle.XAlign, a.axis.Label.TextStyle.YAlign = upright.Rotation, upright.XAlign, upright.YAlign
		tick := a.axis.Tick.Label
		a.axis.Tick.Label = styled(small, grey(0x33))
		a.axis.Tick.Label.XAlign, a.axis.Tick.Label.YAlign = tick.XAlign, tick.YAlign
		a.axis.Color, a.axis.Tick.Color = grey(0x88), grey(0x88)
		a.axis.Width, a.axis.Tick.Width = hairline, hairline
		a.axis.Padding, a.axis.Label.Padding = 0, 4
		a.axis.Tick.Marker = round{}
	}
	return p
}

// draw puts title, legend, picture and foot onto a canvas.
func (s sheet) draw(c draw.Canvas, picture func(draw.Canvas)) {
	c.FillPolygon(color.White, rectangle(c.Min.X, c.Min.Y, c.Max.X, c.Max.Y))
	c = draw.Crop(c, margin, -margin, margin, -margin)
	down := func(sty text.Style, txt string) { // a text at the top, which then ends below it
		sty.YAlign = text.YTop
		c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Max.Y}, txt)
		c = draw.Crop(c, 0, 0, 0, -sty.Height(txt)-gap)
	}
	down(bold(styled(large, grey(0x11))), s.title)
	if len(s.legend) > 0 {
		c = s.drawLegend(c)
	}
	if s.foot != "" {
		sty := styled(small, grey(0x66))
		lines := wrap(sty, s.foot, c.Max.X-c.Min.X)
		h := sty.Height(lines)
		sty.YAlign = text.YTop
		c.FillText(sty, vg.Point{X: c.Min.X, Y: c.Min.Y + h}, lines)
		c = draw.Crop(c, 0, 0, h+gap, 0)
	}
	picture(c)
}

// drawLegend puts the entries into lines at the top.
func (s sheet) drawLegend(c draw.Canvas) draw.Canvas {
	const thumb = vg.Length(14)
	sty := styled(medium, grey(0x33))
	sty.YAlign = text.YCenter
	line := sty.FontExtents().Height + 4
	at := vg.Point{X: c.Min.X, Y: c.Max.Y - line/2}
	for _, e := range s.legend {
		w := thumb + gap/2 + sty.Width(e.name)
		if at.X > c.Min.X && at.X+w > c.Max.X {
			at = vg.Point{X: c.Min.X, Y: at.Y - line}
		}
		e.thumb(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: at.X, Y: at.Y - 4.5}, Max: vg.Point{X: at.X + thumb, Y: at.Y + 4.5},
		}})
		c.FillText(sty, vg.Point{X: at.X + thumb + gap/2, Y: at.Y}, e.name)
		at.X += w + 2*gap
	}
	return draw.Crop(c, 0, 0, 0, at.Y-line/2-gap-c.Max.Y)
}

// wrap breaks a text at spaces so that its lines fit.
func wrap(sty text.Style, txt string, width vg.Length) string {
	var lines []string
	for paragraph := range strings.SplitSeq(txt, "\n") {
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			longer := strings.TrimSpace(line + " " + word)
			if line != "" && sty.Width(longer) > width {
				lines = append(lines, line)
				longer = word
			}
			line = longer
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// save draws the sheet and writes the file. Gonum panics where it cannot draw; here
// that is an error.
func (s sheet) save(picture func(draw.Canvas)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %s: %v", ErrData, s.file, r)
		}
	}()
	format := strings.TrimPrefix(filepath.Ext(s.file), ".")
	if !slices.Contains([]string{"svg", "png"}, format) {
		return fmt.Errorf("%w: %s: want a name ending in .svg or .png", ErrData, s.file)
	}
	c, err := draw.NewFormattedCanvas(s.width, s.height, format)
	if err != nil {
		return fmt.Errorf("plot: %s: %w", s.file, err)
	}
	s.draw(draw.New(c), picture)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return fmt.Errorf("plot: %s: %w", s.file, err)
	}
	out := b.Bytes()
	if format == "svg" {
		out = s.dress(out)
	}
	return os.WriteFile(s.file, out, 0o644) //nolint:gosec // results are for everybody
}

// dress gives an SVG a title for who does not see it, and typefaces with the same widths
// for who has no Liberation.
func (s sheet) dress(svg []byte) []byte {
	svg = bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif"))
	svg = bytes.ReplaceAll(svg, []byte("font-variant:sans;"), nil)
	open := bytes.Index(svg, []byte("<svg"))
	end := open + bytes.IndexByte(svg[open:], '>') + 1
	title := `<title>` + html.EscapeString(s.title) + "</title>\n"
	return slices.Concat(svg[:end], []byte("\n"+title), svg[end:])
}

// check reports series that do not have n values each.
func check(series []Series, n int, of string) error {
	var errs []error
	if n == 0 || len(series) == 0 {
		errs = append(errs, fmt.Errorf("%w: %d series over %d %s", ErrData, len(series), n, of))
	}
	for _, s := range series {
		if len(s.Values) != n {
			errs = append(errs, fmt.Errorf("%w: series %q has %d values for %d %s", ErrData, s.Name, len(s.Values), n, of))
		}
		for i, v := range s.Values {
			if math.IsInf(v, 0) {
				errs = append(errs, fmt.Errorf("%w: value %d of series %q is %v", ErrData, i, s.Name, v))
			}
		}
	}
	return errors.Join(errs...)
}

// brief writes a value with up to three significant digits, and all before the point; at
// most three stand behind it.
func brief(v float64) string {
	a, digits := math.Abs(v), 3
	switch {
	case a >= 99.95:
		digits = 0
	case a >= 9.995:
		digits = 1
	case a >= 0.0995:
		digits = 2
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// round is gonum's choice of ticks, with numbers as people write them.
type round struct{}

// Ticks implements plot.Ticker.
func (round) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i, t := range ticks {
		if !t.IsMinor() {
			ticks[i].Label = strconv.FormatFloat(t.Value, 'g', 6, 64)
		}
	}
	return ticks
}

// grid draws thin lines at the axis' major ticks, behind the data.
type grid struct{ x bool }

// Plot implements plot.Plotter.
func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	line := draw.LineStyle{Color: grey(0xDD), Width: hairline}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if at := y(t.Value); !t.IsMinor() && c.ContainsY(at) {
			c.StrokeLine2(line, c.Min.X, at, c.Max.X, at)
		}
	}
	if !g.x {
		return
	}
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if at := x(t.Value); !t.IsMinor() && c.ContainsX(at) {
			c.StrokeLine2(line, at, c.Min.Y, at, c.Max.Y)
		}
	}
}
