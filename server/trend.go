package server

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stats"
)

// pageRun is one run on the page.
type pageRun struct {
	loop.RunState

	Trends []trend
}

// trend is one column of a run and split on the page: its latest step, and how its mean
// has moved over those before.
type trend struct {
	stats.ColumnStats

	Split string
	Step  int64
	// Points are the means in the coordinates of a box of trendWidth × trendHeight, the
	// latest last; X and Y are that one's. Says is the same in words.
	Points, X, Y, Says string

	running bool
}

// The box of a line, its margin included: a point at the route must not be cut.
const (
	trendWidth  = 120
	trendHeight = 28
	trendMargin = 3
)

// trends makes a line for each column of each split. A step that runs has no place in
// it while there are others: the mean of its first samples would look like a leap.
func trends(steps []loop.StepState) []trend {
	steps = slices.Clone(steps)
	slices.SortStableFunc(steps, func(a, b loop.StepState) int {
		return cmp.Or(cmp.Compare(a.Split, b.Split), cmp.Compare(a.Step, b.Step))
	})
	type key struct{ split, column string }
	lines := map[key][]trend{}
	for _, running := range []bool{false, true} {
		for _, st := range steps {
			for _, c := range st.Stats {
				k := key{string(st.Split), c.Column}
				t := trend{ColumnStats: c, Split: k.split, Step: st.Step, running: running}
				switch {
				case running != (st.InFlight > 0):
				case !running:
					lines[k] = append(lines[k], t)
				case len(lines[k]) == 0 || lines[k][0].running:
					lines[k] = []trend{t}
				}
			}
		}
	}
	list := make([]trend, 0, len(lines))
	for _, line := range lines {
		latest := line[len(line)-1]
		latest.draw(line)
		list = append(list, latest)
	}
	slices.SortFunc(list, func(a, b trend) int {
		return cmp.Or(cmp.Compare(a.Split, b.Split), -compareBool(a.isReward(), b.isReward()), cmp.Compare(a.Column, b.Column))
	})
	return list
}

func (t *trend) isReward() bool { return t.Column == "reward_score" }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// draw puts the means of the steps that have one onto the line, from route to route.
func (t *trend) draw(line []trend) {
	line = slices.DeleteFunc(slices.Clone(line), func(p trend) bool { return p.Mean == nil })
	if len(line) == 0 {
		return
	}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, p := range line {
		lo, hi = min(lo, *p.Mean), max(hi, *p.Mean)
	}
	var points []string
	for i, p := range line {
		x, y := 1.0, 0.5
		if len(line) > 1 {
			x = float64(i) / float64(len(line)-1)
		}
		if span := hi/2 - lo/2; span > 0 { // halves: the ends may be that far apart
			y = (*p.Mean/2 - lo/2) / span
		}
		t.X = coordinate(x, trendWidth)
		t.Y = coordinate(1-y, trendHeight)
		points = append(points, t.X+","+t.Y)
	}
	t.Points = strings.Join(points, " ")
	t.Says = fmt.Sprintf("mean of %s, steps %d to %d: from %s to %s, between %s and %s", t.Column, line[0].Step, line[len(line)-1].Step,
		showScore(line[0].Mean), showScore(line[len(line)-1].Mean), showScore(&lo), showScore(&hi))
}

func coordinate(share float64, side int) string {
	return strconv.FormatFloat(trendMargin+share*float64(side-2*trendMargin), 'f', 1, 64)
}

// rewardOf is what a step's table says of its reward; nil: nothing yet.
func rewardOf(st loop.StepState) *stats.ColumnStats {
	if len(st.Stats) == 0 || st.Stats[0].Count == 0 {
		return nil
	}
	return &st.Stats[0]
}

// showDrift shows a drift with its sign.
func showDrift(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%+.2f σ", *v)
}

// leapt reports whether a mean is more than one standard deviation from the step before.
func leapt(v *float64) bool { return v != nil && math.Abs(*v) > 1 }
