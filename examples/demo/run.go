package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards/ocr"
)

// Bounds of the waits. A demo takes about a minute; these are for what hangs.
const (
	sampleDeadline = 2 * time.Minute
	stepDeadline   = 5 * time.Minute
	reconnectFor   = 10 * time.Second
)

// ErrNothingScored means that none of the first pictures got a score, so that the demo could not
// measure their cost.
var ErrNothingScored = errors.New("no picture of the calibration got a score")

// Server is the demo's server.
type Server struct {
	// Page is the address of the server's status page.
	Page string
	node *node.Node
}

// Stop stops the server.
func (s *Server) Stop() { s.node.Stop() }

// Run runs the demo with the given pictures. Failed samples are not an error; they are in the Demo.
// An error means that there is nothing to show.
func Run(ctx context.Context, cfg Config, pictures []Picture) (*Demo, error) {
	d, server, err := RunServing(ctx, cfg, pictures)
	if err != nil {
		return nil, err
	}
	server.Stop()
	return d, nil
}

// RunServing is like Run, but does not stop the server, whose status page shows the scored samples.
func RunServing(ctx context.Context, cfg Config, pictures []Picture) (_ *Demo, _ *Server, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, nil, err
	}
	if cfg.Samples > 0 {
		pictures = pictures[:min(cfg.Samples, len(pictures))]
	}
	if len(pictures) == 0 {
		return nil, nil, errors.New("no pictures")
	}
	nodeConfig, err := cfg.node()
	if err != nil {
		return nil, nil, fmt.Errorf("the demo's own configuration: %w", err)
	}
	reader, err := whoReads(cfg, nodeConfig)
	if err != nil {
		return nil, nil, err
	}
	n, err := node.New(node.Options{Config: nodeConfig, Log: cfg.Log, Version: cfg.Version})
	if err != nil {
		return nil, nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, nil, err // Start has taken down what it had brought up
	}
	defer func() {
		if err != nil {
			n.Stop()
		}
	}()
	addr, err := n.Listen(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &stage{cfg: cfg, url: "ws://" + addr.String(), pictures: pictures}
	streaming, batch, plan, err := s.perform(ctx)
	if err != nil {
		return nil, nil, err
	}
	about := About{Version: cfg.Version, Reader: reader, Places: cfg.Places, GPUs: cfg.GPUs, Seed: cfg.Seed}
	return newRecord(about, pictures, plan, streaming, batch), &Server{"http://" + addr.String() + "/", n}, nil
}

// whoReads says what reads the pictures, and if it is not PP-OCR, why.
func whoReads(cfg Config, nodeConfig *config.Config) (string, error) {
	readers, err := node.NewReaders(nodeConfig.Pool)
	if err != nil {
		return "", err
	}
	o := ocr.DefaultReader()
	o.Reader = cfg.Reader
	choice, err := readers.Choose(o)
	if err != nil {
		return "", err
	}
	if choice.Instead != nil {
		return fmt.Sprintf("%s\n  instead of PP-OCR: %v", choice.Detail, choice.Instead), nil //nolint:nilerr // why it is not PP-OCR is told, and is no failure
	}
	return choice.Detail, nil
}

// stage is where the two runs take place: pictures and a running node.
type stage struct {
	cfg      Config
	url      string
	pictures []Picture
}

// perform calibrates and plays the step both ways.
func (s *stage) perform(ctx context.Context) (streaming, batch *played, plan Plan, err error) {
	mean, err := s.calibrate(ctx)
	if err != nil {
		return nil, nil, Plan{}, err
	}
	work := time.Duration(len(s.pictures)) * mean / time.Duration(s.cfg.Places)
	length := min(time.Duration(float64(work)/s.cfg.Load), s.cfg.MaxRollout)
	plan = NewPlan(uids(s.pictures), s.cfg.GPUs, s.cfg.Seed)
	if streaming, err = s.step(ctx, "streaming", plan, length, false); err != nil {
		return nil, nil, plan, err
	}
	batch, err = s.step(ctx, "batch after rollout", plan, length, true)
	return streaming, batch, plan, err
}

// calibrate scores every fourth picture, all submitted at once as in a busy pool,
// and returns the mean time one took on its place.
func (s *stage) calibrate(ctx context.Context) (time.Duration, error) {
	few := &stage{cfg: s.cfg, url: s.url}
	for i := 0; i < len(s.pictures); i += 4 {
		few.pictures = append(few.pictures, s.pictures[i])
	}
	at := NewPlan(uids(few.pictures), s.cfg.GPUs, s.cfg.Seed)
	run, err := few.step(ctx, "measuring the pool", at, 0, true)
	if err != nil {
		return 0, err
	}
	return meanScore(run.seen, 2*s.cfg.Places)
}

// meanScore leaves the first results out, unless they are more than half: a reader's
// first pictures take twice as long as the others (measured).
func meanScore(seen []observation, first int) (time.Duration, error) {
	got := slices.DeleteFunc(slices.Clone(seen), func(o observation) bool { return o.res.RewardScore == nil })
	if len(got) == 0 {
		res := seen[0].res
		return 0, fmt.Errorf("%w; sample %s was %s: %v", ErrNothingScored, res.ID, res.Outcome, res.Errors)
	}
	slices.SortFunc(got, func(a, b observation) int { return cmp.Compare(a.res.Seq, b.res.Seq) })
	got = got[min(first, len(got)/2):]
	var sum time.Duration
	for _, o := range got {
		sum += o.score()
	}
	return sum / time.Duration(len(got)), nil
}

func (s *stage) dial(ctx context.Context, run string) (*client.Client, error) {
	return client.Dial(ctx, client.Config{URL: s.url, Run: run, Client: "rollout", ReconnectFor: reconnectFor})
}

func uids(pictures []Picture) []string {
	out := make([]string, len(pictures))
	for i, p := range pictures {
		out[i] = p.UID
	}
	return out
}
