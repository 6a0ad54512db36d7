package demo

import (
	"errors"
	"fmt"
	"math"

	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/wire"
)

// tolerance is for sums that two programs add up in different orders.
const tolerance = 1e-9

// Report contains every figure that the demo shows, computed only from a Demo.
type Report struct {
	About   About
	Samples int
	Scored  int
	// Groups are the prompt groups in the order of their first samples. ZeroStd is the number of
	// groups in which all scored members got the same reward.
	Groups  []Group
	ZeroStd int
	// Truth compares the rewards with the true rewards of the pictures.
	Truth Truth
	// Same is the number of samples with the same score in both runs.
	Same int
	// Failures are the reasons of samples without a score, those of the streaming run first.
	Failures []string
	// Streaming and Batch are the reports of the two runs. They are nil if a sample got no score,
	// because the step is then incomplete and has no duration.
	Streaming, Batch *trace.Report
}

// Group is a row of the group table.
type Group struct {
	wire.GroupStats
	Target string
	// Truth is the mean of the true rewards of the scored members; nil if there are none.
	Truth *float64
}

// Truth compares rewards with true rewards, which are the formula applied to the text that is
// really in the picture, over the scored samples.
type Truth struct {
	// MeanError is the mean of |reward − true reward|, Worst the maximum.
	MeanError, Worst float64
	WorstID          string
	// Exact is the number of rewards that equal the true reward.
	Exact int
}

// Report computes the figures. It fails if the Demo contradicts itself.
func (d *Demo) Report() (*Report, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	rep := &Report{About: d.Record.About, Samples: len(d.Record.Samples), Failures: d.failures()}
	for _, s := range d.Record.Samples {
		if s.Streaming != nil {
			rep.Scored++
			if equal(s.Streaming, s.Batch) {
				rep.Same++
			}
		}
	}
	truth, err := d.truth()
	if err != nil {
		return nil, err
	}
	rep.group(d.Record.Samples, truth)
	rep.compareTruth(d.Record.Samples, truth)
	if err := errors.Join(d.compareGroups(rep.Groups), rep.measure(&d.Record)); err != nil {
		return nil, err
	}
	return rep, nil
}

func (d *Demo) failures() []string {
	var all []string
	for _, s := range d.Scores {
		if s.RewardScore == nil {
			why := "no reason given"
			if len(s.Errors) > 0 {
				why = fmt.Sprintf("%s: %s", s.Errors[0].Class, s.Errors[0].Message)
			}
			all = append(all, fmt.Sprintf("%s %s, %s", s.ID, s.Outcome, why))
		}
	}
	for _, s := range d.Record.Samples {
		if s.Batch == nil {
			all = append(all, s.ID+" got no score in the batch run")
		}
	}
	return all
}

// truth returns the true reward of every sample.
func (d *Demo) truth() ([]float64, error) {
	formula, err := ocr.Preset(ocr.FlowGRPO)
	if err != nil {
		return nil, err
	}
	truth := make([]float64, len(d.Record.Samples))
	for i, s := range d.Record.Samples {
		m, err := formula.Compare(s.Target, s.Rendered)
		if err != nil {
			return nil, fmt.Errorf("the true reward of %q: %w", s.ID, err)
		}
		truth[i] = m.Value
	}
	return truth, nil
}

// check holds the parts of a Demo against each other.
func (d *Demo) check() error {
	r := &d.Record
	n := len(r.Samples)
	if n == 0 || len(d.Scores) != n || len(r.Streaming.Spans) != n || len(r.Batch.Spans) != n {
		return fmt.Errorf("%d samples, but %d scores and traces of %d and %d spans",
			n, len(d.Scores), len(r.Streaming.Spans), len(r.Batch.Spans))
	}
	var errs []error
	for i, s := range r.Samples {
		sc, a, b := d.Scores[i], r.Streaming.Spans[i], r.Batch.Spans[i]
		switch {
		case s.Index != i || sc.Index != i || sc.ID != s.ID || sc.UID != s.UID || a.ID != s.ID || b.ID != s.ID:
			errs = append(errs, fmt.Errorf("row %d is sample %q of group %q at index %d, but %q of %q at %d among the scores and %q and %q in the traces",
				i, s.ID, s.UID, s.Index, sc.ID, sc.UID, sc.Index, a.ID, b.ID))
		case !equal(sc.RewardScore, s.Streaming):
			errs = append(errs, fmt.Errorf("sample %q scored %s, but %s in the trace", s.ID, show(sc.RewardScore), show(s.Streaming)))
		case (s.Streaming != nil) != (a.Scored != nil) || (s.Batch != nil) != (b.Scored != nil):
			errs = append(errs, fmt.Errorf("sample %q has a score without a time, or a time without a score", s.ID))
		}
		if len(errs) == 10 {
			break
		}
	}
	return errors.Join(errs...)
}

func (rep *Report) group(samples []Sample, truth []float64) {
	for _, uid := range uniqueUIDs(samples) {
		g := Group{GroupStats: wire.GroupStats{UID: uid}}
		var rewards []float64
		sum, trueSum := 0.0, 0.0
		for i, s := range samples {
			if s.UID != uid {
				continue
			}
			g.Target = s.Target
			g.Size++
			if s.Streaming == nil {
				g.Failed++
				continue
			}
			g.Scored++
			rewards = append(rewards, *s.Streaming)
			sum, trueSum = sum+*s.Streaming, trueSum+truth[i]
		}
		if g.Scored > 0 {
			mean, squares, zero := sum/float64(g.Scored), 0.0, g.Scored > 1
			for _, v := range rewards {
				squares += (v - mean) * (v - mean)
				zero = zero && v == rewards[0]
			}
			g.Mean, g.Std, g.ZeroStd = &mean, new(math.Sqrt(squares/float64(g.Scored))), zero
			g.Truth = new(trueSum / float64(g.Scored))
		}
		if g.ZeroStd {
			rep.ZeroStd++
		}
		rep.Groups = append(rep.Groups, g)
	}
}

// compareGroups holds the table against what the server said of the groups. Groups
// that were cut short are never complete, so the server says nothing of them.
func (d *Demo) compareGroups(table []Group) error {
	said := map[string]wire.GroupStats{}
	for _, g := range d.Record.Groups {
		said[g.UID] = g
	}
	var errs []error
	for _, g := range table {
		s, ok := said[g.UID]
		if !ok {
			continue
		}
		if s.Size != g.Size || s.Scored != g.Scored || s.Failed != g.Failed || s.ZeroStd != g.ZeroStd || !near(s.Mean, g.Mean) || !near(s.Std, g.Std) {
			errs = append(errs, fmt.Errorf("group %q: the server says size %d, %d scored, mean %s, std %s; its scores give size %d, %d scored, mean %s, std %s",
				g.UID, s.Size, s.Scored, show(s.Mean), show(s.Std), g.Size, g.Scored, show(g.Mean), show(g.Std)))
		}
	}
	return errors.Join(errs...)
}

func (rep *Report) compareTruth(samples []Sample, truth []float64) {
	for i, s := range samples {
		if s.Streaming == nil {
			continue
		}
		e := math.Abs(*s.Streaming - truth[i])
		rep.Truth.MeanError += e / float64(rep.Scored)
		if e <= tolerance {
			rep.Truth.Exact++
		}
		if e > rep.Truth.Worst {
			rep.Truth.Worst, rep.Truth.WorstID = e, s.ID
		}
	}
}

// measure holds the runs against the bounds, if both are complete.
func (rep *Report) measure(r *Record) error {
	if rep.Scored < rep.Samples {
		return nil
	}
	for _, s := range r.Samples {
		if s.Batch == nil {
			return nil
		}
	}
	for _, run := range []struct {
		name  string
		trace trace.Trace
		into  **trace.Report
	}{{"streaming", r.Streaming, &rep.Streaming}, {"batch", r.Batch, &rep.Batch}} {
		m, err := trace.Measure(run.trace)
		if err != nil {
			return fmt.Errorf("the %s run: %w", run.name, err)
		}
		if m.Unscored > 0 || m.Peak > m.Servers {
			return fmt.Errorf("the %s run has %d samples without a score, and up to %d at once on %d places: the lower bound cannot be computed", run.name, m.Unscored, m.Peak, m.Servers)
		}
		*run.into = &m
	}
	return nil
}

func equal(a, b *float64) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func near(a, b *float64) bool {
	return a == nil && b == nil || a != nil && b != nil && math.Abs(*a-*b) <= tolerance
}

func show(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%v", *v)
}
