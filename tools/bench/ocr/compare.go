package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

const (
	// near is how far a corner may be off, in pixels.
	near = 1.0
	// apart is how far corners of the same line may be apart at most; beyond it they
	// are different lines.
	apart = 40.0
	// same is what rewards may differ by and still be identical.
	same = 1e-9
)

// theLines is the cause of a reward that differs.
const theLines = "what was read differs"

// tally adds up how two readers compare.
type tally struct {
	pictures int
	// lines is the sum over the pictures of the larger number of lines.
	lines, texts, corners int
	rewards, sameRewards  int
	differences           []difference
}

// difference is one thing that two readers do not agree on.
type difference struct {
	File  string `json:"file"`
	Kind  string `json:"kind"`
	What  string `json:"what"`
	Cause string `json:"cause"`
}

func (t *tally) part(n, of int) float64 { return float64(n) / float64(max(of, 1)) }

// add compares what two readers read of a picture.
func (t *tally) add(p picture, want, got []line) error {
	t.pictures++
	t.lines += max(len(want), len(got))
	tell := func(cause, format string, args ...any) {
		t.differences = append(t.differences, difference{p.File, p.Kind, fmt.Sprintf(format, args...), cause})
	}
	partner := match(want, got)
	for i, j := range partner {
		if j < 0 {
			tell(lonely(want[i]), "only the reference has %q", want[i].text)
			continue
		}
		off := distance(want[i].quad, got[j].quad)
		if off <= near {
			t.corners++
		}
		if want[i].text == got[j].text {
			t.texts++
		}
		switch {
		case off > near && want[i].text != got[j].text:
			tell("another region, and so another crop", "%q and %q, corners %.0f px apart", want[i].text, got[j].text, off)
		case off > near:
			tell("another region", "%q, corners %.0f px apart", want[i].text, off)
		case want[i].text != got[j].text:
			tell("the same region; the crops differ by grey levels or padding", "%q and %q", want[i].text, got[j].text)
		}
	}
	for j := range got {
		if !slices.Contains(partner, j) {
			tell(lonely(got[j]), "only ours has %q", got[j].text)
		}
	}
	a, asked, err := reward(p, want)
	if err != nil || !asked {
		return err
	}
	b, _, err := reward(p, got)
	if err != nil {
		return err
	}
	t.rewards++
	if math.Abs(a-b) < same {
		t.sameRewards++
	} else {
		tell(theLines, "rewards %.4f and %.4f of %.60q and %.60q", a, b, text(want), text(got))
	}
	return nil
}

// lonely says why a line may have no partner.
func lonely(l line) string {
	if math.Abs(l.score-.5) < .05 {
		return fmt.Sprintf("its confidence, %.3f, is near the bound of 0.5", l.score)
	}
	return "regions are split, joined or found by one only"
}

// match pairs lines whose corners are nearest, nearest pairs first; -1 stands for none.
func match(want, got []line) []int {
	partner := slices.Repeat([]int{-1}, len(want))
	for taken := map[int]bool{}; ; {
		best, bi, bj := apart, -1, -1
		for i := range want {
			for j := range got {
				if d := distance(want[i].quad, got[j].quad); partner[i] < 0 && !taken[j] && d < best {
					best, bi, bj = d, i, j
				}
			}
		}
		if bi < 0 {
			return partner
		}
		partner[bi], taken[bj] = bj, true
	}
}

// distance is that of the corners farthest apart, by the larger axis.
func distance(a, b [4][2]float64) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(a[i][0]-b[i][0]), math.Abs(a[i][1]-b[i][1]))
	}
	return d
}

// text is what flow_grpo compares with the target.
func text(lines []line) string {
	read := make([]ocr.Line, len(lines))
	for i, l := range lines {
		read[i] = ocr.Line{Text: l.text, Confidence: l.score}
	}
	return ocr.Text(read)
}

// reward is flow_grpo's for the lines; not asked for a picture of which nobody asked a
// text.
func reward(p picture, lines []line) (value float64, asked bool, err error) {
	return rewardOf(p, text(lines))
}

func rewardOf(p picture, read string) (value float64, asked bool, err error) {
	o, err := ocr.Preset(ocr.FlowGRPO)
	if err != nil || p.Prompt == "" {
		return 0, false, err
	}
	target, err := o.Target(&rewards.Sample{ID: p.File, Prompt: p.Prompt})
	if err != nil || target == "" {
		return 0, false, err
	}
	m, err := o.Compare(target, read)
	return m.Value, true, err
}

// fidelity is how near rewards are to those that a reader without mistakes would give,
// on pictures of which is known what is written.
type fidelity struct {
	pictures, exact int
	sum, worst      float64
}

func (f *fidelity) add(p picture, lines []line) error {
	if p.Rendered == "" {
		return nil
	}
	want, asked, err := rewardOf(p, p.Rendered)
	if err != nil || !asked {
		return err
	}
	got, _, err := reward(p, lines)
	if err != nil {
		return err
	}
	d := math.Abs(want - got)
	f.pictures++
	f.sum += d
	f.worst = max(f.worst, d)
	if d < same {
		f.exact++
	}
	return nil
}

// mean is the mean absolute error.
func (f *fidelity) mean() float64 { return f.sum / float64(max(f.pictures, 1)) }

// share is the part of the pictures with exactly the reward.
func (f *fidelity) share() float64 { return float64(f.exact) / float64(max(f.pictures, 1)) }
