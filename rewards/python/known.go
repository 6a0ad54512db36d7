package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

var (
	_ rewards.Knower  = (*Scorer)(nil)
	_ rewards.Reliant = (*Scorer)(nil)
	_ rewards.Reliant = (*postProcess)(nil)
)

// Kinds are what known samples may be: Options.Probe.
func Kinds() []string { return []string{string(rewards.Image), string(rewards.Video), textKind} }

const textKind = "text"

// lacking is the error of a call that failed because a module is not there.
type lacking struct {
	error
	module string
}

// Unwrap returns the error itself.
func (e *lacking) Unwrap() error { return e.error }

// TryKnown implements rewards.Knower. The calls are ordinary ones of the function's processes.
// If all of them fail because a module is not there, the function depends on it from then on
// and takes no samples, until another TryKnown finds it.
func (s *Scorer) TryKnown(ctx context.Context, timeout time.Duration) (all []rewards.Tried) {
	lacks, last := "", ""
	for _, kind := range s.kinds() {
		begun := time.Now()
		err := s.try(ctx, timeout, kind)
		if ctx.Err() != nil {
			return nil
		}
		t := rewards.Tried{Kind: kind, Err: err, Took: time.Since(begun)}
		if l, ok := errors.AsType[*lacking](err); ok {
			t.Lacks, lacks, last = l.module, l.module, err.Error()
		}
		all = append(all, t)
	}
	if slices.ContainsFunc(all, func(t rewards.Tried) bool { return t.Lacks == "" }) {
		lacks, last = "", ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lacks, s.lacksWhy = lacks, last
	return all
}

// kinds are those of the known samples that the function is called with.
func (s *Scorer) kinds() []string {
	if s.opts.Probe != nil {
		return s.opts.Probe
	}
	s.pool.mu.Lock()
	takes, known := s.pool.takes, s.pool.known
	s.pool.mu.Unlock()
	if !known {
		return nil // no process has started, which Warm has said
	}
	names := func(list []string, any ...string) bool {
		return slices.ContainsFunc(any, func(n string) bool { return slices.Contains(list, n) })
	}
	image := names(takes.Names, "solution_image", "media") || takes.Everything && !names(takes.Names, "solution_str")
	text := names(takes.Names, "solution_str") || !image
	switch {
	case names(takes.Needed, "solution_image"): // a text alone is not enough; where it needs one, the picture has it beside
		text = false
	case names(takes.Needed, "solution_str"):
		image = image && names(takes.Names, "solution_image", "media")
	}
	var kinds []string
	if image {
		kinds = append(kinds, string(rewards.Image))
	}
	if text {
		kinds = append(kinds, textKind)
	}
	return kinds
}

// try calls the function with one known sample.
func (s *Scorer) try(ctx context.Context, timeout time.Duration, kind string) error {
	s.pool.mu.Lock()
	both := slices.Contains(s.pool.takes.Needed, "solution_str")
	s.pool.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := s.Score(ctx, known(kind, both))
	return err
}

// The known picture is of coloured squares; the known video has some of it.
const (
	knownSide   = 64
	knownFrames = 4
)

// known is a sample as verl-omni hands it to a function, with a picture, a video or a text.
func known(kind string, both bool) *rewards.Sample {
	const prompt = `a sign that says "hello"`
	s := &rewards.Sample{
		ID: "rewardloop-known-" + kind, DataSource: "rewardloop_known", Prompt: prompt, GroundTruth: json.RawMessage(`"hello"`),
		ExtraInfo: json.RawMessage(`{"index": 0, "split": "test", "prompt": "a sign that says \"hello\"", "num_turns": 1, "rollout_reward_scores": {}}`),
	}
	if both || kind == textKind {
		s.Response = "hello"
	}
	frames := 1
	m := &rewards.Media{Kind: rewards.Image, Layout: rewards.HWC, Encoding: rewards.Raw, DType: "U8", Shape: []int{knownSide, knownSide, 3}}
	switch kind {
	case textKind:
		return s
	case string(rewards.Video):
		frames = knownFrames
		m.Kind, m.Layout, m.Shape, m.FPS = rewards.Video, rewards.THWC, append([]int{frames}, m.Shape...), 8
	}
	m.Data = make([]byte, frames*knownSide*knownSide*3)
	for i := range m.Data {
		pixel := i / 3
		m.Data[i] = byte(32 + 64*((pixel/8+pixel/knownSide/8+i%3)%4))
	}
	s.Media = []*rewards.Media{m}
	return s
}

// Dependency is the module that the function needs and this machine lacks, as the last
// TryKnown has found; none where all is there.
func (s *Scorer) Dependency() rewards.Dependency {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lacks == "" {
		return rewards.Dependency{}
	}
	return rewards.Dependency{Name: fmt.Sprintf("the Python module %s, which %s needs", s.lacks, s.opts.label()), Down: true, Last: s.lacksWhy}
}

// Dependency is the Scorer's, whose processes it uses.
func (p *postProcess) Dependency() rewards.Dependency { return p.s.Dependency() }
