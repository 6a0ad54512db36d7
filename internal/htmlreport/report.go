package htmlreport

import (
	"bytes"
	"cmp"
	_ "embed" // the page is part of the program
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/rewardloop/rewardloop/internal/distribution"
)

// Report is the content of a report. Empty fields are omitted.
type Report struct {
	Title string
	// Lead is a sentence about what was scored and with which reward.
	Lead string
	// Notes are important remarks for the reader, such as that the run was interrupted.
	Notes []string
	Facts []Fact
	// Reward is the distribution of the rewards; nil: nothing was scored.
	Reward *distribution.Column
	// Components are the parts of the reward, and Pairs the correlations of two of them.
	Components []Component
	Pairs      []Pair
	// Best and Worst are samples with a reward, the best and the worst first.
	Best, Worst []Sample
	// Failures are the reasons why samples have no reward, the most frequent first.
	Failures []Failure
	Groups   []Group
	// MoreGroups is the number of groups that are not listed.
	MoreGroups int
	// Steps are drawn below one another with the same time scale.
	Steps []Step
	// Foot describes the program that made the report.
	Foot string
}

// Fact is a figure with its name.
type Fact struct{ Value, Name string }

// Component is a part of the reward.
type Component struct {
	Name   string
	Column *distribution.Column
}

// Pair is the correlation of two components.
type Pair struct {
	A, B        string
	Correlation *distribution.Correlation
}

// Sample is a sample with its data.
type Sample struct {
	ID, Group string
	Reward    float64
	// Values are the values of the sample's components by name.
	Values []Value
	// Texts are the prompt, the response and similar texts of the sample.
	Texts    []Text
	Pictures Strip
}

// Value is a number with a name.
type Value struct {
	Name  string
	Value float64
}

// Text is a text with a name.
type Text struct{ Name, Text string }

// Failure is a reason why samples have no reward.
type Failure struct {
	// Outcome is the outcome of the samples, Class the class of their first error.
	Outcome, Class string
	Count          int
	// Message and IDs are the message and the ids of the first few samples.
	Message string
	IDs     []string
}

// Group is a prompt group: a row of dots.
type Group struct {
	Name, Text string
	Dots       []Dot
	// Failed is the number of members without a reward.
	Failed int
}

// Dot is the reward of a member.
type Dot struct {
	ID     string
	Reward float64
}

// Step is a timeline of a step.
type Step struct {
	Title, Text string
	Tracks      []Track
	// Marks are points in time, such as the end of the rollout.
	Marks []Mark
}

// Track is the timeline of one GPU or one worker.
type Track struct {
	Name  string
	Kind  Kind
	Spans []Span
}

// Kind selects the colour of a track.
type Kind string

// The kinds of tracks.
const (
	Rollout Kind = "rollout"
	Scoring Kind = "scoring"
)

// Span is a span of a track, in seconds from the beginning of the step.
type Span struct {
	ID       string
	From, To float64
}

// Mark is a point in time of a step, in seconds from its beginning.
type Mark struct {
	Name string
	At   float64
}

// How much a report shows at most. What is beyond is said to be there.
const (
	maxPictures     = 96
	maxPictureBytes = 6 << 20
	maxSamples      = 24
	maxFailures     = 50
	maxComponents   = 32
	maxMatrix       = 12
	maxGroups       = 64
	maxDots         = 256
	maxTracks       = 64
	maxSpans        = 4096
	maxText         = 4000 // characters
	maxName         = 200
)

//go:embed report.html
var page string

//nolint:gochecknoglobals // a table, parsed once
var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"name": func(s string) string { return clip(s, maxName) }, "text": func(s string) string { return clip(s, maxText) },
	"number": number, "short": func(v float64) string { return fmt.Sprintf("%.3g", v) }, "long": func(s string) bool { return len([]rune(s)) > 220 || strings.Count(s, "\n") > 4 },
	"jpeg": jpegURL, "brief": func(s string) string { return clip(strings.Join(strings.Fields(s), " "), 220) },
	"left": func(v float64) string { return fmt.Sprintf("%.2f", 100*min(max(v, 0), 1)) },
}).Parse(page))

// Write writes the report as HTML.
func (r *Report) Write(w io.Writer) error {
	v := view{
		Report: r, Best: r.Best[:min(len(r.Best), maxSamples)], Worst: r.Worst[:min(len(r.Worst), maxSamples)],
		Failures: r.Failures[:min(len(r.Failures), maxFailures)],
	}
	if r.Reward != nil && r.Reward.Count() > 0 {
		h := draw("reward", r.Reward, 48)
		v.Reward = &h
	}
	for _, c := range r.Components[:min(len(r.Components), maxComponents)] {
		if c.Column.Count() > 0 {
			v.Components = append(v.Components, draw(c.Name, c.Column, 24))
		}
	}
	v.Matrix = matrix(r.Components, r.Pairs)
	v.drawGroups(r)
	if err := v.drawSteps(r.Steps); err != nil {
		return err
	}
	v.boundPictures()
	var b bytes.Buffer // a template that fails leaves no half of a file
	if err := pageTemplate.Execute(&b, v); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// view is a report as the template reads it.
type view struct {
	*Report

	Reward      *histogram
	Components  []histogram
	Best, Worst []Sample
	Failures    []Failure
	Matrix      *table
	Rows        []row
	RowsOf      int
	Low, High   float64 // of the groups' scale
	Steps       []step
}

// histogram is a column as bars.
type histogram struct {
	Name                      string
	Column                    *distribution.Column
	Bars                      []bar
	Mean, P10, Median, P90    float64
	MeanAt, P10At, Mid, P90At float64 // shares of the width
	Flat                      bool
}

type bar struct {
	Height   float64 // share
	From, To float64
	Count    int
}

func draw(name string, c *distribution.Column, n int) histogram {
	h := histogram{Name: name, Column: c, Mean: c.Mean(), P10: c.Quantile(0.1), Median: c.Quantile(0.5), P90: c.Quantile(0.9), Flat: c.Min() == c.Max()}
	h.MeanAt, h.P10At, h.Mid, h.P90At = share(h.Mean, c), share(h.P10, c), share(h.Median, c), share(h.P90, c)
	bins := c.Bins(n)
	most := max(1, slices.Max(bins))
	for i, count := range bins {
		at := func(i int) float64 { s := float64(i) / float64(n); return c.Min()*(1-s) + c.Max()*s }
		b := bar{Height: float64(count) / float64(most), From: at(i), To: at(i + 1), Count: count}
		if h.Flat {
			b.From, b.To = c.Min(), c.Max()
		}
		h.Bars = append(h.Bars, b)
	}
	return h
}

// share is where a value lies between the least and the greatest.
func share(v float64, c *distribution.Column) float64 { return between(v, c.Min(), c.Max()) }

func between(v, low, high float64) float64 {
	if high <= low {
		return 0.5
	}
	return min(max((v/2-low/2)/(high/2-low/2), 0), 1)
}

// table is the correlation of components, two by two.
type table struct {
	Names []string
	Rows  [][]tableCell
	More  int
}

type tableCell struct {
	R           float64
	Known, Same bool
	Percent     int
	Negative    bool
	Pairs       int
}

func matrix(components []Component, pairs []Pair) *table {
	if len(components) < 2 {
		return nil
	}
	t := &table{More: max(0, len(components)-maxMatrix)}
	for _, c := range components[:min(len(components), maxMatrix)] {
		t.Names = append(t.Names, c.Name)
	}
	t.Rows = make([][]tableCell, len(t.Names))
	for i, a := range t.Names {
		t.Rows[i] = make([]tableCell, len(t.Names))
		for j, b := range t.Names {
			c := &t.Rows[i][j]
			if c.Same = i == j; c.Same {
				continue
			}
			for _, p := range pairs {
				if p.A == a && p.B == b || p.A == b && p.B == a {
					c.R, c.Known = p.Correlation.Pearson()
					c.Pairs = p.Correlation.Count()
				}
			}
			c.Percent, c.Negative = int(math.Round(70*math.Abs(c.R))), c.R < 0
		}
	}
	return t
}

// row is a group as a row of dots.
type row struct {
	Group

	Dots      []rowDot
	Mean, Std float64
	MeanAt    float64
	More      int
	Flat      bool
}

type rowDot struct {
	Dot

	At float64
}

func (v *view) drawGroups(r *Report) {
	v.RowsOf = len(r.Groups) + r.MoreGroups
	all := new(distribution.Column)
	groups := r.Groups[:min(len(r.Groups), maxGroups)]
	for _, g := range groups {
		for _, d := range g.Dots {
			all.Add(d.Reward)
		}
	}
	v.Low, v.High = all.Min(), all.Max()
	for _, g := range groups {
		row := row{Group: g, More: max(0, len(g.Dots)-maxDots)}
		var c distribution.Column
		for i, d := range g.Dots {
			c.Add(d.Reward)
			if i < maxDots {
				row.Dots = append(row.Dots, rowDot{d, share(d.Reward, all)})
			}
		}
		row.Mean, row.Std, row.MeanAt, row.Flat = c.Mean(), c.Std(), share(c.Mean(), all), c.Count() > 1 && c.Min() == c.Max()
		v.Rows = append(v.Rows, row)
	}
}

// step is a step on a scale of time.
type step struct {
	Step

	Tracks []track
	Marks  []mark
	End    float64
}

type track struct {
	Name  string
	Kind  Kind
	Spans []span
}

// span is a rectangle of 1000 units a step.
type span struct {
	Span

	X, Width string
}

type mark struct {
	Mark

	Share float64
	Right bool // its name stands left of it
}

var errTime = errors.New("a step's times must be finite, from 0 on, and in order")

func (v *view) drawSteps(steps []Step) error {
	end, spans := 0.0, 0
	for _, s := range steps {
		for _, t := range s.Tracks {
			for _, p := range t.Spans {
				if !(p.From >= 0 && p.To >= p.From) || math.IsInf(p.To, 0) {
					return fmt.Errorf("%w: %q of %q from %v to %v", errTime, p.ID, t.Name, p.From, p.To)
				}
				end = max(end, p.To)
			}
		}
		for _, m := range s.Marks {
			if !(m.At >= 0) || math.IsInf(m.At, 0) {
				return fmt.Errorf("%w: %q at %v", errTime, m.Name, m.At)
			}
			end = max(end, m.At)
		}
	}
	for _, s := range steps {
		drawn := step{Step: s, End: end}
		for _, t := range s.Tracks[:min(len(s.Tracks), maxTracks)] {
			row := track{Name: t.Name, Kind: t.Kind}
			for _, p := range t.Spans {
				if spans++; spans > maxSpans {
					break
				}
				row.Spans = append(row.Spans, span{p, fmt.Sprintf("%.2f", 1000*between(p.From, 0, end)), fmt.Sprintf("%.2f", max(1, 1000*(p.To-p.From)/end-0.8))})
			}
			drawn.Tracks = append(drawn.Tracks, row)
		}
		for _, m := range s.Marks {
			at := between(m.At, 0, end)
			drawn.Marks = append(drawn.Marks, mark{m, at, at > 0.5})
		}
		slices.SortFunc(drawn.Marks, func(a, b mark) int { return cmp.Compare(a.At, b.At) })
		v.Steps = append(v.Steps, drawn)
	}
	return nil
}

// boundPictures leaves pictures away beyond what a report may hold.
func (v *view) boundPictures() {
	left, bytes := maxPictures, maxPictureBytes
	for _, list := range []*[]Sample{&v.Best, &v.Worst} {
		*list = slices.Clone(*list)
		for i := range *list {
			p := &(*list)[i].Pictures
			size := 0
			for _, j := range p.JPEGs {
				size += len(j)
			}
			if left, bytes = left-len(p.JPEGs), bytes-size; left < 0 || bytes < 0 {
				left, bytes = left+len(p.JPEGs), bytes+size
				p.JPEGs, p.Lost = nil, "The report has no room for more pictures."
			}
		}
	}
}

// number is a number for people: four digits that count.
func number(v float64) string {
	if v != 0 && (math.Abs(v) < 1e-4 || math.Abs(v) >= 1e6) {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// clip cuts a text to so many characters, and takes out those that are no text: controls, and
// what turns the direction of what follows.
func clip(s string, most int) string {
	if len(s) > 8*most { // a character that is cut is cut once more below
		s = s[:8*most]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r):
			return -1
		case r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}
