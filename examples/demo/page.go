package demo

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/distribution"
	"github.com/rewardloop/rewardloop/internal/htmlreport"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/media"
)

// PageFile is the name of the HTML report with pictures.
const PageFile = "report.html"

// pagePictures is how many of the best and of the worst pictures the page shows.
const pagePictures = 8

// SavePage writes report.html to a folder to which Save has written.
func (d *Demo) SavePage(ctx context.Context, dir string, pictures []Picture, rep *Report) (err error) {
	r, err := d.page(ctx, pictures, rep)
	if err != nil {
		return fmt.Errorf("%s: %w", PageFile, err)
	}
	f, err := os.Create(filepath.Join(dir, PageFile))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = cmp.Or(r.Write(out), out.Flush())
	return cmp.Or(err, f.Close())
}

func (d *Demo) page(ctx context.Context, pictures []Picture, rep *Report) (*htmlreport.Report, error) {
	decoder, err := media.New(media.Config{})
	if err != nil {
		return nil, err
	}
	reader, _, _ := strings.Cut(rep.About.Reader, "\n")
	r := &htmlreport.Report{
		Title: "A training step on real pictures",
		Lead: fmt.Sprintf("%d pictures of %d prompts from %d simulated GPUs were scored by reading them (%s) on %s.",
			rep.Samples, len(rep.Groups), rep.About.GPUs, reader, count(rep.About.Places, "place")),
		Facts: []htmlreport.Fact{
			{Value: fmt.Sprintf("%d of %d", rep.Scored, rep.Samples), Name: "pictures with a reward"},
			{Value: fmt.Sprintf("%.4f", rep.Truth.MeanError), Name: "mean error of the reward against the truth"},
			{Value: fmt.Sprintf("%d of %d", rep.ZeroStd, len(rep.Groups)), Name: "groups without any spread"},
		},
		Reward: new(distribution.Column),
		Foot:   fmt.Sprintf("Written by rewardloop demo %s with seed %d. The GPUs are simulated: they wait. Pictures, reading, reward, server and queue are real.", rep.About.Version, rep.About.Seed),
	}
	if s, t := rep.Streaming, rep.Batch; s != nil && t != nil {
		r.Facts = append(r.Facts,
			htmlreport.Fact{Value: fmt.Sprintf("%.2f s", t.Makespan), Name: "a step that scores after the rollout"},
			htmlreport.Fact{Value: fmt.Sprintf("%.2f s", s.Makespan), Name: "the same step, scored while it is generated"},
		)
		r.Steps = []htmlreport.Step{
			d.track("Scored after the rollout", t, d.Record.Batch), d.track("Streamed: scored while others are generated", s, d.Record.Streaming),
		}
	}
	d.rewards(r, pictures)
	order := make([]int, 0, len(d.Scores))
	for i, s := range d.Scores {
		if s.RewardScore != nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(*d.Scores[a].RewardScore, *d.Scores[b].RewardScore) })
	most := min(pagePictures, len(order)/2)
	for _, i := range order[:most] {
		r.Worst = append(r.Worst, d.sample(ctx, decoder, pictures, i))
	}
	for _, i := range d.best(order, most) {
		r.Best = append(r.Best, d.sample(ctx, decoder, pictures, i))
	}
	return r, nil
}

// best takes the last of an order, of each prompt group one while there are others: many
// pictures have the highest reward.
func (d *Demo) best(order []int, most int) []int {
	var first, rest []int
	seen := map[string]bool{}
	for _, i := range slices.Backward(order) {
		if uid := d.Record.Samples[i].UID; seen[uid] {
			rest = append(rest, i)
		} else {
			seen[uid], first = true, append(first, i)
		}
	}
	taken := slices.Concat(first, rest)[:most]
	slices.SortStableFunc(taken, func(a, b int) int { return cmp.Compare(*d.Scores[b].RewardScore, *d.Scores[a].RewardScore) })
	return taken
}

// rewards fills in how the rewards are spread, the groups, and what failed.
func (d *Demo) rewards(r *htmlreport.Report, pictures []Picture) {
	at := map[string]int{}
	failures := map[string]int{}
	for i, s := range d.Scores {
		if _, there := at[s.UID]; !there {
			at[s.UID] = len(r.Groups)
			r.Groups = append(r.Groups, htmlreport.Group{Name: s.UID, Text: pictures[i].Prompt})
		}
		g := &r.Groups[at[s.UID]]
		if s.RewardScore != nil {
			r.Reward.Add(*s.RewardScore)
			g.Dots = append(g.Dots, htmlreport.Dot{ID: s.ID, Reward: *s.RewardScore})
			continue
		}
		g.Failed++
		f := htmlreport.Failure{Outcome: string(s.Outcome), Class: "none", Message: "no reason was given"}
		if len(s.Errors) > 0 {
			f.Class, f.Message = string(s.Errors[0].Class), s.Errors[0].Message
		}
		n, there := failures[f.Outcome+f.Class]
		if !there {
			n = len(r.Failures)
			failures[f.Outcome+f.Class] = n
			r.Failures = append(r.Failures, f)
		}
		r.Failures[n].Count++
		if len(r.Failures[n].IDs) < 3 {
			r.Failures[n].IDs = append(r.Failures[n].IDs, s.ID)
		}
	}
}

func (d *Demo) sample(ctx context.Context, decoder *media.Decoder, pictures []Picture, i int) htmlreport.Sample {
	s, p := &d.Scores[i], &pictures[i]
	out := htmlreport.Sample{
		ID: s.ID, Group: s.UID, Reward: *s.RewardScore, Pictures: htmlreport.Pictures(ctx, decoder, p.sample(i).Media),
		Texts: []htmlreport.Text{{Name: "prompt", Text: p.Prompt}, {Name: "asked for", Text: p.Target}},
	}
	if read, ok := s.Details["text"].(string); ok {
		out.Texts = append(out.Texts, htmlreport.Text{Name: "read in the picture", Text: read})
	}
	return out
}

// track draws who generated and who scored when.
func (d *Demo) track(title string, m *trace.Report, t trace.Trace) htmlreport.Step {
	s := htmlreport.Step{
		Title: title,
		Text:  fmt.Sprintf("The step takes %.2f s, of which the trainer waits %.2f s for rewards after the rollout.", m.Makespan, m.Exposed),
		Marks: []htmlreport.Mark{{Name: "rollout ends", At: m.Rollout}, {Name: "all scored", At: m.Makespan}},
	}
	gpus := make([]htmlreport.Track, d.Record.About.GPUs)
	for i := range gpus {
		gpus[i] = htmlreport.Track{Name: fmt.Sprintf("GPU %d", i), Kind: htmlreport.Rollout}
	}
	workers := map[string]*htmlreport.Track{}
	order := make([]int, len(t.Spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.Spans[a].Generated, t.Spans[b].Generated) })
	for _, i := range order {
		p := t.Spans[i]
		g := &gpus[d.Record.Samples[i].GPU]
		from := 0.0 // a GPU makes one picture after the other
		if n := len(g.Spans); n > 0 {
			from = g.Spans[n-1].To
		}
		g.Spans = append(g.Spans, htmlreport.Span{ID: p.ID, From: from, To: p.Generated})
		if p.Started == nil || p.Scored == nil {
			continue
		}
		w := workers[p.Worker]
		if w == nil {
			w = &htmlreport.Track{Name: "worker " + p.Worker, Kind: htmlreport.Scoring}
			workers[p.Worker] = w
		}
		w.Spans = append(w.Spans, htmlreport.Span{ID: p.ID, From: *p.Started, To: *p.Scored})
	}
	s.Tracks = gpus
	for _, w := range workers {
		s.Tracks = append(s.Tracks, *w)
	}
	slices.SortStableFunc(s.Tracks[len(gpus):], func(a, b htmlreport.Track) int { return strings.Compare(a.Name, b.Name) })
	return s
}
