package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

var (
	_ rewards.Knower  = (*Scorer)(nil)
	_ rewards.Reliant = (*Scorer)(nil)
	_ rewards.Reliant = (*postProcess)(nil)
)

// Kinds returns the kinds of known samples, which are the values of Options.Probe.
func Kinds() []string { return []string{string(rewards.Image), string(rewards.Video), textKind} }

const textKind = "text"

// lacking is the error of a call that failed because a module is not there.
type lacking struct {
	error
	module string
}

// Unwrap returns the error itself.
func (e *lacking) Unwrap() error { return e.error }

// knownCalls is what calls with known samples have found.
type knownCalls struct {
	mu         sync.Mutex
	lacks, why string // guarded by mu; the module without which no known sample has a score; "": none
}

// try calls a function with known samples of those kinds.
func (k *knownCalls) try(ctx context.Context, timeout time.Duration, kinds []string, call func(ctx context.Context, kind string) error) (all []rewards.Tried) {
	lacks, last := "", ""
	for _, kind := range kinds {
		begun := time.Now()
		limited, cancel := context.WithTimeout(ctx, timeout)
		err := call(limited, kind)
		cancel()
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
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lacks, k.why = lacks, last
	return all
}

// dependency is the module that is missing, as the last try has found; none where all is there.
func (k *knownCalls) dependency(opts Options) rewards.Dependency {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lacks == "" {
		return rewards.Dependency{}
	}
	return rewards.Dependency{Name: fmt.Sprintf("the Python module %s, which %s needs", k.lacks, opts.label()), Down: true, Last: k.why}
}

// knownKinds are the kinds of known sample that the function takes, and whether each has a text as well.
func (s *Scorer) knownKinds() (kinds []string, text bool) {
	s.pool.mu.Lock()
	takes, started := s.pool.takes, s.pool.known
	s.pool.mu.Unlock()
	kinds = s.opts.Probe
	if kinds == nil && started { // else Warm has said why no process has
		kinds = takes.Kinds
	}
	return kinds, takes.Text
}

// KnownSamples implements rewards.Knower.
func (s *Scorer) KnownSamples() []*rewards.Sample { return knownSamples(s.knownKinds()) }

// TryKnown implements rewards.Knower. The calls are ordinary calls in the function's processes. If
// all of them fail because a module is missing, the function depends on that module and gets no
// samples until another TryKnown succeeds.
func (s *Scorer) TryKnown(ctx context.Context, timeout time.Duration) []rewards.Tried {
	kinds, text := s.knownKinds()
	return s.known.try(ctx, timeout, kinds, func(ctx context.Context, kind string) error {
		_, err := s.Score(ctx, KnownSample(kind, text))
		return err
	})
}

func knownSamples(kinds []string, text bool) []*rewards.Sample {
	out := make([]*rewards.Sample, len(kinds))
	for i, kind := range kinds {
		out[i] = KnownSample(kind, text)
	}
	return out
}

// The known picture is of coloured squares; the known video has some of it.
const (
	knownSide   = 64
	knownFrames = 4
)

// KnownSample returns a sample in the form of verl-omni with a picture, a video or a text; kind is
// one of Kinds. text adds a text to a sample with pixels. python/rewardloop/check.py creates the
// same samples.
func KnownSample(kind string, text bool) *rewards.Sample {
	const prompt = `a sign that says "hello"`
	s := &rewards.Sample{
		ID: "rewardloop-known-" + kind, DataSource: "rewardloop_known", Prompt: prompt, GroundTruth: json.RawMessage(`"hello"`),
		ExtraInfo: json.RawMessage(`{"index": 0, "split": "test", "prompt": "a sign that says \"hello\"", "num_turns": 1, "rollout_reward_scores": {}}`),
	}
	if text || kind == textKind {
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

// Dependency returns the module that the function needs and that is missing on this machine,
// according to the last TryKnown. It returns the zero value if nothing is missing.
func (s *Scorer) Dependency() rewards.Dependency { return s.known.dependency(s.opts) }

// Dependency is the Scorer's, whose processes it uses.
func (p *postProcess) Dependency() rewards.Dependency { return p.s.Dependency() }
