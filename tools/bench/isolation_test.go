package main

import (
	"bytes"
	"errors"
	"math"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/tools/bench/cputime"
	"github.com/rewardloop/rewardloop/tools/bench/report"
	"github.com/rewardloop/rewardloop/wire"
)

func TestAGapIsTheLongestTimeWithoutAResultFromTheFirstMomentToTheLast(t *testing.T) {
	t.Parallel()
	scored, failed := &wire.Result{Outcome: rewards.Scored}, &wire.Result{Outcome: rewards.Failed}
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	for name, tt := range map[string]struct {
		results []float64 // seconds; the tally is open from 10 to 20
		gap     float64
		counted int
	}{
		"nothing":                    {nil, 10, 0},
		"before it is opened":        {[]float64{9, 9.5}, 10, 0},
		"one in the middle":          {[]float64{15}, 5, 1},
		"late ones":                  {[]float64{17, 18}, 7, 2},
		"early ones":                 {[]float64{11, 12}, 8, 2},
		"some, one after the end":    {[]float64{13, 16, 19, 21}, 3, 3},
		"the gap across the opening": {[]float64{1, 10.5, 13, 16, 19}, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c tally
			opened, closed := false, false
			for _, s := range tt.results {
				if s >= 10 && !opened {
					c.open(at(10))
					opened = true
				}
				if s >= 20 && !closed {
					c.close(at(20))
					closed = true
				}
				c.result(at(s), scored, "")
			}
			if !opened {
				c.open(at(10))
			}
			if !closed {
				c.close(at(20))
			}
			assert.InDelta(t, tt.gap, c.gap.Seconds(), 1e-9)
			assert.Equal(t, tt.counted, c.scored)
			assert.InDelta(t, float64(tt.counted)/10, c.perSecond(), 1e-9)
			assert.Equal(t, len(tt.results), c.all)
		})
	}
	var c tally
	c.close(at(5))
	assert.Zero(t, c.perSecond(), "it was never open")
	c.open(at(0))
	failed.Errors = []rewards.ComponentError{{Message: "it " + guardMessage}}
	c.result(at(1), failed, guardMessage)
	c.result(at(1), &wire.Result{Outcome: rewards.OutcomeCancelled}, guardMessage)
	assert.Equal(t, 2, c.failed)
	assert.Equal(t, 1, c.told)
	assert.Contains(t, c.quote, guardMessage)
}

func TestWhatTheHealthySamplesDidNotCostTheFailingRunDid(t *testing.T) {
	t.Parallel()
	i := isolated{healthy: &tally{scored: 500, took: 10 * time.Second}, used: 15 * time.Second, below: 4 * time.Second}
	python, rest := i.failingCores(0.02)
	assert.InDelta(t, 0.4, python, 1e-9)
	assert.InDelta(t, 0.5, rest, 1e-9, "1.5 cores less 50 samples a second of 20 ms")
	assert.InDelta(t, 0.03, i.cost(), 1e-9)
	_, rest = i.failingCores(0.1)
	assert.Zero(t, rest, "never less than nothing")
	assert.False(t, math.IsInf(isolated{healthy: &tally{took: time.Second}, used: time.Second}.cost(), 0), "without a sample")
}

func TestASampleThatWaitedForAPlaceIsLate(t *testing.T) {
	t.Parallel()
	s := time.Second
	assert.Equal(t, 2, late([]time.Duration{2 * s, 2*s + s/10, 4 * s, 30 * s}, 2*s))
	assert.Zero(t, late(nil, s))
	assert.Equal(t, 3*s, longest([]time.Duration{s, 3 * s, 2 * s}))
}

func TestTheWorstRepetitionCountsWhereTheRowSaysSo(t *testing.T) {
	t.Parallel()
	row := Row{Name: "gap", Value: reading("s"), Worst: true, Target: atMost(2)}
	f, err := figure("x", row, []Readings{{"s": 0.1}, {"s": 5}, {"s": 0.2}}, nil)
	require.NoError(t, err)
	assert.InDelta(t, 5, f.Value, 0)
	assert.False(t, f.Held)
	_, err = figure("x", row, []Readings{{"s": 0.1}, {}, {"s": 0.2}}, nil)
	require.ErrorContains(t, err, "not a number")
}

func TestAnExperimentThatGoesOnMissesItsRowsWhereItFails(t *testing.T) {
	t.Parallel()
	f := rates(1, 1)
	f.err = errors.New("the server did not start\nwhat it said")
	suites := fakeSuite(f)
	suites[0].Experiments[0].GoesOn = true
	last := suites[0].Experiments[0]
	last.Name, last.Setup = "y", suites[0].Experiments[0].Setup
	suites[0].Experiments = append(suites[0].Experiments, last)
	s := place(t, listed)
	s.out = filepath.Join(t.TempDir(), "out")
	var out bytes.Buffer
	missed, err := measure(t.Context(), suites, s, &out)
	require.NoError(t, err)
	assert.True(t, missed, "a miss that is listed is excused, not one that was never measured")
	assert.Contains(t, out.String(), "not measured: repetition 1: the server did not start")
	assert.Contains(t, out.String(), "y/rate", "the next experiment was tried")
	reports, err := report.ReadReports(s.out)
	require.NoError(t, err)
	require.Len(t, reports[0].Rows, 4)
	assert.False(t, reports[0].Rows[0].Held)
	assert.True(t, reports[0].Rows[1].Held, "a row without a target promises nothing")
}

func TestAPatientClientConfirmsOnlyWhatHasComeWithoutAGap(t *testing.T) {
	t.Parallel()
	p := &patient{open: map[string][]byte{"a": nil, "b": nil, "c": nil, "d": nil}, above: map[uint64]bool{}}
	p.take(&wire.Result{ID: "a", Seq: 1, Outcome: rewards.Scored})
	p.take(&wire.Result{ID: "c", Seq: 3, Outcome: rewards.Failed})
	assert.Equal(t, uint64(1), p.confirmed())
	p.take(&wire.Result{ID: "b", Seq: 2, Outcome: rewards.Rejected})
	assert.Equal(t, uint64(3), p.confirmed())
	assert.Len(t, p.open, 2, "what was rejected is sent again")
	assert.True(t, p.waiting())
	frames, err := p.due()
	require.NoError(t, err)
	assert.Len(t, frames, 4, "those without a result, and two more")
	p.full = true
	frames, err = p.due()
	require.NoError(t, err)
	assert.Len(t, frames, 4)
}

func TestTheStubEngineScoresGoodQuestionsOnly(t *testing.T) {
	t.Parallel()
	e, err := newStubEngine(t.Context())
	require.NoError(t, err)
	defer e.close()
	for question, want := range map[string]bool{flagGood + " 1": true, flagBad + " 1": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"/v1/chat/completions", strings.NewReader(question))
		require.NoError(t, err)
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		require.NoError(t, err)
		var body bytes.Buffer
		_, err = body.ReadFrom(res.Body)
		require.NoError(t, errors.Join(err, res.Body.Close()))
		assert.Equal(t, want, strings.Contains(body.String(), "score>1"), question)
	}
}

func TestTheBeginningAndTheEndOfWhatAProgramSaysAreKept(t *testing.T) {
	t.Parallel()
	var s saying
	for _, text := range []string{"first ", strings.Repeat("x", 3*sayingBytes), " last"} {
		n, err := s.Write([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, len(text), n)
	}
	assert.True(t, strings.HasPrefix(s.String(), "first x"))
	assert.True(t, strings.HasSuffix(s.String(), "x last"))
	assert.LessOrEqual(t, len(s.String()), 2*sayingBytes)
}

// rootWithPython is the repository's root, where there is a Python for what is started here.
func rootWithPython(t *testing.T) string {
	t.Helper()
	root, err := report.Repository()
	require.NoError(t, err)
	if err := exec.CommandContext(t.Context(), interpreter(root), "-c", "").Run(); err != nil || runtime.GOOS != "linux" {
		t.Skipf("SKIPPED: no Python in %s (%v): the isolation benchmarks were not tried; make deps, or name one in REWARDLOOP_PYTHON", interpreter(root), err)
	}
	return root
}

func TestABurnerComputesUntilItIsStoppedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	root := rootWithPython(t)
	trial := &isolationTrial{root: root}
	use, end, err := trial.burn(t.Context(), map[int]float64{0: 0.05, 5: 0.1}, 0.05)
	require.NoError(t, err)
	defer end()
	require.Eventually(t, func() bool { return len(cputime.Trees(trial.burners...).Descendants) == 2 && use() > 0 }, overtime, 10*time.Millisecond)
	below := cputime.Trees(trial.burners...).Descendants
	end()
	require.Eventually(t, func() bool {
		for _, c := range below {
			if c.Lives() {
				return false
			}
		}
		return true
	}, overtime, 10*time.Millisecond)
}

// TestAQuickRunBesideFailingSamplesWorks starts the program as it was built.
func TestAQuickRunBesideFailingSamplesWorks(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts processes")
	}
	root := rootWithPython(t)
	if _, err := rewardloopProgram(root); err != nil {
		t.Skipf("SKIPPED: %v: the isolation benchmarks were not tried", err)
	}
	var out, stderr bytes.Buffer
	code := run(t.Context(), suites(), []string{"-quick", "-rows", "embedded-judge/|embedded-closed_port/places|remote-resumes/unanswered"}, &out, &stderr)
	require.Equal(t, exitHeld, code, stderr.String())
	assert.NotContains(t, out.String(), "not measured")
	assert.Contains(t, out.String(), "embedded-judge/throughput")
}
