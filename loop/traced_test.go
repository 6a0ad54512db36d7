package loop_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/tracing"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// recorder keeps spans.
type recorder struct {
	mu    sync.Mutex
	spans []*tracing.Span // guarded by mu
}

func (r *recorder) tracer() *tracing.Tracer {
	return tracing.New(1, func(s *tracing.Span) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spans = append(r.spans, s)
	})
}

// tree has each span below its parent, as name and seconds, and why it failed; traces are in the order of their end.
func (r *recorder) tree() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out strings.Builder
	var write func(s *tracing.Span, depth int)
	write = func(s *tracing.Span, depth int) {
		fmt.Fprintf(&out, "%s%s %g", strings.Repeat(" ", depth), s.Name, s.End.Sub(s.Start).Seconds())
		if s.Error != "" {
			fmt.Fprintf(&out, " (%s)", s.Error)
		}
		out.WriteString("\n")
		below := slices.DeleteFunc(slices.Clone(r.spans), func(x *tracing.Span) bool { return x.Trace != s.Trace || x.Parent != s.Span })
		slices.SortStableFunc(below, func(a, b *tracing.Span) int { return a.Start.Compare(b.Start) })
		for _, x := range below {
			write(x, depth+1)
		}
	}
	for _, s := range r.spans {
		if s.Parent == (tracing.SpanID{}) {
			write(s, 0)
		}
	}
	return out.String()
}

// check checks what holds of spans whatever has happened: a trace has one sample, and every span a parent there. Both spans of
// a ticket that a worker has claimed twice have one id.
func (r *recorder) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	samples, seen := map[[16]byte]int{}, map[tracing.Context]bool{}
	for _, s := range r.spans {
		require.False(t, s.End.Before(s.Start), "%s ends before it begins", s.Name)
		require.True(t, s.Name == "attempt" || !seen[s.Context], "two spans named %s have one id", s.Name)
		seen[s.Context] = true
		if s.Name == "sample" {
			samples[s.Trace]++
		}
	}
	for _, s := range r.spans {
		require.Equal(t, 1, samples[s.Trace], "samples in the trace of a %s", s.Name)
		parent := s.Context
		parent.Span = s.Parent
		require.True(t, s.Name == "sample" || seen[parent], "%s without a parent", s.Name)
	}
}

// slow scores after so many seconds as the digit at the end of the id says.
func slow(t *testing.T) map[string]*rewards.Manager {
	t.Helper()
	return profiles(t, rewards.Component{Key: "slow", Weight: 1, Required: true, Timeout: time.Minute, Scorer: rewards.ScorerFunc(
		func(ctx context.Context, s *rewards.Sample) (rewards.Score, error) {
			return rewards.Score{Value: 1}, pause(ctx, time.Duration(s.ID[len(s.ID)-1]-'0')*time.Second)
		})})
}

func TestTheSpansOfASampleSayWhereItsTimeWent(t *testing.T) {
	t.Parallel()
	r := new(recorder)
	onStage(t, rig.Options{Workers: 1, Profiles: slow(t), Tracer: r.tracer(), Loop: loop.Config{SampleTimeout: time.Minute}}, func(t *testing.T, s *stage) {
		t.Helper()
		first, second := s.submit(t, "run", rig.Sample("a5", 30)), s.submit(t, "run", rig.Sample("b3", 30))
		for _, f := range []*loop.Future{first, second} {
			_, err := f.Wait(t.Context())
			require.NoError(t, err)
		}
	})
	assert.Equal(t, `sample 5
 queue 0
 attempt 5
  score 5
   claim 0
   component/slow 5
sample 8
 queue 5
 attempt 3
  score 3
   claim 0
   component/slow 3
`, r.tree())
}

func TestALostWorkerIsAnAttemptThatFailed(t *testing.T) {
	t.Parallel()
	r := new(recorder)
	onStage(t, rig.Options{Workers: 1, Profiles: slow(t), Tracer: r.tracer(), Loop: loop.Config{SampleTimeout: time.Minute}}, func(t *testing.T, s *stage) {
		t.Helper()
		f := s.submit(t, "run", rig.Sample("a5", 30))
		time.Sleep(2 * time.Second)
		s.Workers[0].Kill()
		s.Manager.Lost([]string{"w0"})
		s.Replace("w1")
		_, err := f.Wait(t.Context())
		require.NoError(t, err)
	})
	tree := r.tree()
	assert.Contains(t, tree, "\n attempt 2 (lost)\n", tree)
	assert.Equal(t, 2, strings.Count(tree, "\n queue "), tree)
	assert.Contains(t, tree, "\n attempt 5\n  score 5\n", tree)
}

func TestASampleThatEndsInTheQueueHasItsWaitAndWhy(t *testing.T) {
	t.Parallel()
	r := new(recorder)
	onStage(t, rig.Options{Profiles: slow(t), Tracer: r.tracer(), Loop: loop.Config{SampleTimeout: 7 * time.Second}}, func(t *testing.T, s *stage) {
		t.Helper()
		_, err := s.submit(t, "run", rig.Sample("a5", 30)).Wait(t.Context())
		require.NoError(t, err)
	})
	tree := r.tree()
	assert.Equal(t, "sample 6.3 (unavailable: no worker serves the profile \"default\")\n queue 6.3\n", tree)
}

// The members of a group have a trace each; the scoring of the group is one more, with links to theirs.
func TestTheScoringOfAGroupIsATraceThatNamesItsMembers(t *testing.T) {
	t.Parallel()
	r, c := new(recorder), &comparison{takes: 5 * time.Second}
	onStage(t, rig.Options{
		Workers: 2, Worker: rig.Settings{Places: 2}, Loop: loop.Config{SampleTimeout: time.Minute}, Profiles: compared(t, c), Tracer: r.tracer(),
	}, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		samples := fourOf("u")
		samples[0].Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00" // nobody records it
		for _, sample := range samples {
			p.send(t, sample)
		}
		for _, sample := range samples {
			require.Equal(t, rewards.Scored, p.result(t, sample.ID).Outcome)
		}
	})
	tree := r.tree()
	assert.Equal(t, 3, strings.Count(tree, "sample 8\n"), tree)
	assert.Contains(t, tree, " group_wait 6\n", "of the second one")
	assert.Contains(t, tree, "group 5\n queue 0\n attempt 5\n  score 5\n   claim 0\n   component/place 5\n")
	traces := map[[16]byte]bool{}
	for _, s := range r.spans {
		if s.Name == "sample" {
			traces[s.Trace] = true
		}
	}
	for _, s := range r.spans {
		if s.Name == "group" {
			assert.Len(t, s.Links, 3)
			for _, l := range s.Links {
				assert.True(t, traces[l.Trace])
			}
		}
	}
}

func TestWithoutATracerASampleCostsNoAllocationForIt(t *testing.T) { //nolint:paralleltest // AllocsPerRun counts those of all
	assert.Zero(t, testing.AllocsPerRun(100, loop.Untraced))
}
