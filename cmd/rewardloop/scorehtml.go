package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/internal/htmlreport"
	"github.com/rewardloop/rewardloop/rewards"
)

// What a report shows of the samples at most.
const (
	reportSamples  = 12
	reportFailures = 50
	reportGroups   = 40
	reportIDs      = 3
	// reportPictures bounds the wait for its pictures.
	reportPictures = time.Minute
)

// scoreReport gathers what the report of a run shows.
type scoreReport struct {
	files   *scoreFiles
	media   *mediaFiles
	decoder rewards.Decoder
	show    *progress
	ended   bool // before the input did

	best, worst []*reportSample // the outermost first
	failures    map[[2]string]*htmlreport.Failure
	groups      map[groupName]*htmlreport.Group
	order       []groupName
	more        map[groupName]bool
	count       int
}

// reportSample is a sample of which a report may show a picture.
type reportSample struct {
	number int // of the item, from 1 on
	line   *sampleLine
	result *outputLine
}

// write writes the report of what is kept.
func (s *scoreReport) write(ctx context.Context, k *kept, out io.Writer) error {
	s.failures, s.groups, s.more = map[[2]string]*htmlreport.Failure{}, map[groupName]*htmlreport.Group{}, map[groupName]bool{}
	if err := k.each(s.take); err != nil {
		return err
	}
	// A run that was told to end shows what it has, pictures included.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), reportPictures)
	defer stop()
	return s.report(ctx).Write(out)
}

// take notes one sample.
func (s *scoreReport) take(l *sampleLine, r *outputLine) error {
	s.count++
	scored := r.Outcome == rewards.Scored && r.RewardScore != nil
	if scored {
		one := &reportSample{s.count, l, r}
		s.best = outermost(s.best, one, func(a, b float64) bool { return a > b })
		s.worst = outermost(s.worst, one, func(a, b float64) bool { return a < b })
	} else {
		s.fail(r)
	}
	if l == nil || !l.sample.HasGroup() {
		return nil
	}
	name := groupName{l.sample.Split, l.sample.Step, l.sample.UID}
	g := s.groups[name]
	if g == nil {
		if len(s.groups) == reportGroups {
			if len(s.more) < maxGroups {
				s.more[name] = true
			}
			return nil
		}
		g = &htmlreport.Group{Name: l.sample.UID, Text: l.sample.Prompt}
		s.groups[name], s.order = g, append(s.order, name)
	}
	if scored {
		g.Dots = append(g.Dots, htmlreport.Dot{ID: r.ID, Reward: *r.RewardScore})
	} else {
		g.Failed++
	}
	return nil
}

// outermost puts a sample into a list of at most reportSamples; of equal ones the first stays.
func outermost(list []*reportSample, one *reportSample, before func(a, b float64) bool) []*reportSample {
	at := len(list)
	for at > 0 && before(*one.result.RewardScore, *list[at-1].result.RewardScore) {
		at--
	}
	if at == reportSamples {
		return list
	}
	list = slices.Insert(list, at, one)
	return list[:min(len(list), reportSamples)]
}

func (s *scoreReport) fail(r *outputLine) {
	class, message := "none", "no reason was given"
	if len(r.Errors) > 0 {
		class, message = string(r.Errors[0].Class), r.Errors[0].Message
	}
	key := [2]string{string(r.Outcome), class}
	f := s.failures[key]
	if f == nil {
		if len(s.failures) == reportFailures {
			return
		}
		f = &htmlreport.Failure{Outcome: key[0], Class: class, Message: message}
		s.failures[key] = f
	}
	if f.Count++; len(f.IDs) < reportIDs {
		f.IDs = append(f.IDs, r.ID)
	}
}

func (s *scoreReport) report(ctx context.Context) *htmlreport.Report {
	p := s.show
	p.mu.Lock()
	defer p.mu.Unlock()
	scored := p.outcomes[rewards.Scored]
	of := filepath.Base(s.files.source)
	if s.files.source == "-" {
		of = "standard input"
	}
	r := &htmlreport.Report{
		Title: "Rewards of " + of, Lead: fmt.Sprintf("%d of %d samples have a reward.", scored, p.count),
		Foot: fmt.Sprintf("Written by rewardloop score %s on %s.", release(), time.Now().UTC().Format("2006-01-02 15:04 MST")),
		Facts: []htmlreport.Fact{
			{Value: fmt.Sprintf("%d of %d", scored, p.count), Name: "samples with a reward"},
			{Value: time.Since(p.begun).Round(100 * time.Millisecond).String(), Name: fmt.Sprintf("%.1f samples a second", p.rate())},
		},
	}
	if s.ended {
		r.Notes = append(r.Notes, "The run was told to end before all samples of the input were scored. This report shows those that it had read.")
	}
	if scored > 0 {
		r.Reward = &p.figures.reward
		r.Facts = slices.Insert(r.Facts, 1, htmlreport.Fact{Value: brief(p.sum / float64(scored)), Name: "mean reward"})
	}
	if groups := p.closed + len(p.groups); groups > 0 {
		r.Facts = append(r.Facts, htmlreport.Fact{Value: fmt.Sprintf("%d of %d", p.flat+p.flatOpen(), groups), Name: "groups without any spread"})
	}
	for _, name := range slices.Sorted(maps.Keys(p.figures.components)) {
		r.Components = append(r.Components, htmlreport.Component{Name: name, Column: p.figures.components[name]})
	}
	for pair, c := range p.figures.pairs {
		r.Pairs = append(r.Pairs, htmlreport.Pair{A: pair[0], B: pair[1], Correlation: c})
	}
	best := min(reportSamples, (scored+1)/2) // a sample is reportSample once
	for _, one := range s.best[:min(best, len(s.best))] {
		r.Best = append(r.Best, s.sample(ctx, one))
	}
	for _, one := range s.worst[:min(scored-best, len(s.worst))] {
		r.Worst = append(r.Worst, s.sample(ctx, one))
	}
	for _, f := range s.failures {
		r.Failures = append(r.Failures, *f)
	}
	slices.SortFunc(r.Failures, func(a, b htmlreport.Failure) int {
		return cmp.Or(b.Count-a.Count, strings.Compare(a.Outcome+" "+a.Class, b.Outcome+" "+b.Class))
	})
	for _, name := range s.order {
		r.Groups = append(r.Groups, *s.groups[name])
	}
	r.MoreGroups = len(s.more)
	return r
}

// sample is a sample as the report shows it.
func (s *scoreReport) sample(ctx context.Context, one *reportSample) htmlreport.Sample {
	out := htmlreport.Sample{ID: one.result.ID, Reward: *one.result.RewardScore}
	values := componentsOf(one.result)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out.Values = append(out.Values, htmlreport.Value{Name: name, Value: values[name]})
	}
	if one.line == nil {
		return out
	}
	sample := &one.line.sample
	out.Group = sample.UID
	for _, t := range []htmlreport.Text{
		{Name: "prompt", Text: sample.Prompt}, {Name: "response", Text: sample.Response}, {Name: "ground truth", Text: string(sample.GroundTruth)},
	} {
		if t.Text != "" {
			out.Texts = append(out.Texts, t)
		}
	}
	all, err := s.load(one)
	switch {
	case err != nil:
		out.Pictures.Lost = fmt.Sprintf("The picture cannot be read again: %v", err)
	case len(all) > 0:
		out.Pictures = htmlreport.Pictures(ctx, s.decoder, all)
	}
	return out
}

// load reads the pictures of a sample once more: none is kept while others are scored.
func (s *scoreReport) load(one *reportSample) ([]*rewards.Media, error) {
	l := one.line
	if rows, ok := s.files.in.(*parquetLines); ok {
		line, err := rows.at(one.number)
		if err != nil {
			return nil, err
		}
		if l, err = line.sample(); err != nil {
			return nil, err
		}
	}
	return s.media.load(l)
}
