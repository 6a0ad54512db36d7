package main

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/tools/bench/report"
)

var experimentSize = stepSize{samples: dispatchSamples, rollout: dispatchRollout, update: dispatchUpdate}

func TestADrawnStepKeepsThePoolAtItsLoad(t *testing.T) {
	t.Parallel()
	for _, s := range scenes() {
		for _, width := range widths {
			d := s.load.draw(experimentSize, width, 3)
			work, capacity := 0.0, 0.0
			for _, r := range d.r {
				work += r
			}
			for _, v := range d.speeds {
				capacity += v
			}
			assert.InDelta(t, poolLoad, work/(capacity*dispatchRollout), 1e-9, s.name)
			assert.True(t, slices.IsSorted(d.g))
			assert.InDelta(t, dispatchRollout, d.g[len(d.g)-1], 0, "the last sample ends the rollout")
			if s.load.slow {
				assert.InDelta(t, float64(width)*(0.75+0.25/3), capacity, 1e-9)
			} else {
				assert.InDelta(t, width, capacity, 0)
			}
		}
	}
}

func TestPoliciesAreComparedOnTheSameStep(t *testing.T) {
	t.Parallel()
	draws := func(name string, rep int) []float64 {
		i := slices.IndexFunc(scenes(), func(s scene) bool { return s.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		return scenes()[i].load.draw(experimentSize, 8, rep).r
	}
	assert.Equal(t, draws("lognormal-random", 1), draws("lognormal-random_blind-simulated", 1))
	assert.NotEqual(t, draws("lognormal-random", 1), draws("lognormal-random", 2), "each repetition draws anew")
	for _, k := range killings() {
		assert.Equal(t, draws("uniform-random", 1), k.load.draw(experimentSize, 8, 1).r, "the step without the kill")
	}
}

func TestBurstsComeTogether(t *testing.T) {
	t.Parallel()
	d := workload{size: flat, burst: 64}.draw(experimentSize, 8, 0)
	assert.InDelta(t, d.g[0], d.g[63], 0)
	assert.InDelta(t, 2*d.g[0], d.g[64], 1e-9)
	odd := workload{size: flat, burst: 64}.draw(stepSize{samples: 70, rollout: 10}, 8, 0)
	assert.InDelta(t, 10, odd.g[69], 0, "a burst that is not full ends the rollout, too")
}

func TestStragglersAreDrawnForEachAttemptAndKeepTheMean(t *testing.T) {
	t.Parallel()
	w := workload{size: flat, stragglers: hiccup, burst: 1}
	d := drawn{r: []float64{1, 1}, speeds: []float64{1, 0.5}, seed: 7}
	a, b := newAttempts(w, d, 1), newAttempts(w, d, 1)
	const n = 20_000
	sum, slow := 0.0, 0
	for range n {
		took := a.next(0, 1)
		require.Equal(t, took, b.next(0, 1), "the same attempt takes the same time in every run")
		sum += took.Seconds()
		if took > 5*time.Second {
			slow++
			require.InDelta(t, hiccupTimes, took.Seconds(), 1e-6)
		}
	}
	assert.InDelta(t, 1, sum/n, 0.05)
	assert.InDelta(t, hiccupShare, float64(slow)/n, 0.004)
	even := newAttempts(workload{size: flat, burst: 1}, d, 10)
	assert.Equal(t, 200*time.Millisecond, even.next(1, 0.5), "speed and scale count")
}

func TestTheSimulationIsGivenTheSameStep(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(scenes(), killings()) {
		d := s.load.draw(experimentSize, 16, 0)
		work, cfg := s.simulated(d, 1)
		require.NoError(t, cfg.Validate(), s.name)
		got, err := sim.Dispatch(d.g, work, cfg)
		require.NoError(t, err, s.name)
		bound, err := sim.LowerBoundSpeeds(d.g, d.r, d.speeds)
		require.NoError(t, err)
		if s.load.stragglers.Share == 0 { // whose bound knows mean service times only
			assert.GreaterOrEqual(t, got.Makespan, bound-1e-9, s.name)
		}
	}
}

// TestEveryDispatchRowHasItsReadings takes a small step of every kind through the loop.
func TestEveryDispatchRowHasItsReadings(t *testing.T) {
	t.Parallel()
	all := slices.Concat(scenes(), killings())
	trial := &dispatchTrial{width: 4, scenes: all, scale: 400, size: stepSize{samples: 40, rollout: dispatchRollout, update: dispatchUpdate}}
	r, err := trial.Measure(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, trial.Close())
	for _, row := range dispatchRows(killWidth, all) {
		f, err := figure("dispatch8", row, []Readings{r}, nil)
		require.NoError(t, err)
		assert.False(t, math.IsInf(f.Value, 0), f.Row)
		if f.Unit == "" {
			assert.Positive(t, f.Value, f.Row)
			assert.Contains(t, f.Beside, "exposed_s", "what is the row's own is told without its name")
		}
	}
	assert.InDelta(t, 400, r["scale"], 0)
}

func TestAStepThatIsCutShortIsAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newDispatchTrial(8, scenes()[:1], Options{Quick: true}).Measure(ctx, 0)
	require.Error(t, err)
}

func TestTheScaleFollowsTheFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want float64
	}{{nil, 10}, {[]string{"-quick"}, 100}, {[]string{"-scale", "1"}, 1}, {[]string{"-quick", "-scale", "200"}, 200}} {
		s, err := parse(tt.args, io.Discard)
		require.NoError(t, err)
		assert.InDelta(t, tt.want, dispatchScale(s.Options), 0, "%v", tt.args)
	}
	for _, bad := range []string{"-1", "NaN", "1e9"} {
		_, err := parse([]string{"-scale", bad}, io.Discard)
		require.Error(t, err, bad)
	}
}

func TestAKilledWorkerMayCostADetectionAndAService(t *testing.T) {
	t.Parallel()
	row := killRow("kill-half", "uniform-random")
	r := Readings{"kill-half exposed_s": 14, "uniform-random exposed_s": 3, "kill-half lease_s": 15, "kill-half service_s": 3.25, "kill-half noticed_s": 12}
	f, err := figure("dispatch8", row, []Readings{r}, nil)
	require.NoError(t, err)
	assert.InDelta(t, 11, f.Value, 1e-9)
	assert.True(t, f.Held)
	assert.Equal(t, &report.Bound{Value: 18.25, Most: true, Note: "a lease of 15 s and the longest service of 3.25 s"}, f.Target)
	delete(r, "kill-half lease_s")
	f, err = figure("dispatch8", row, []Readings{r}, nil)
	require.NoError(t, err)
	assert.False(t, f.Held, "without a reading nothing is held")
}

func TestPromisedDispatchRowsHaveTheirLine(t *testing.T) {
	t.Parallel()
	promised := 0
	for _, e := range overDispatch().Experiments {
		for _, row := range e.Rows {
			assert.Equal(t, row.Target != nil, row.Issue != "", "%s/%s", e.Name, row.Name)
			if row.Target != nil {
				promised++
			}
		}
	}
	assert.Equal(t, 3+3+3+2+2, promised)
}

func TestTheDispatchPictureShowsEveryNumberOfWorkersAndPolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := report.Report{
		Suite: "dispatch", Repetitions: 5, Date: "2031-02-03T04:05:06Z", Commit: "abc", Machine: report.Machine{CPU: "Chip", Cores: 2, OS: "os/arch", Go: "go1"},
		Rows: []report.Figure{
			{Row: "dispatch8/uniform-random", Value: 1.0012, Target: &report.Bound{Value: 1.01, Most: true}, Held: true, Beside: Readings{"scale": 10}},
			{Row: "dispatch64/uniform-random_blind-simulated", Value: 1.367},
			{Row: "dispatch8/kill-half", Value: 3, Unit: "s"},
		},
	}
	require.NoError(t, plotDispatch(r, dir))
	f, err := os.Open(filepath.Join(dir, "dispatch.svg"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var text strings.Builder
	for d := xml.NewDecoder(f); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if s, ok := tok.(xml.CharData); ok {
			text.Write(append(s, '\n'))
		}
	}
	for _, want := range []string{"8 workers", "64 workers", "uniform", "random_blind (simulated)", "speed_weighted", "backup", "bursts", "\n0.12\n", "\n36.7\n", "Times 1:10.", "Chip, 2 cores", "2031-02-03", "commit abc", "promised"} {
		assert.Contains(t, text.String(), want)
	}
}

func TestASuiteIsDrawnWhereItIsWritten(t *testing.T) {
	t.Parallel()
	s := place(t, "")
	suites := fakeSuite(rates(100, 50))
	drawn := ""
	suites[0].Plots = func(r report.Report, folder string) error {
		assert.Len(t, r.Rows, 2)
		assert.FileExists(t, filepath.Join(folder, "fake.json"))
		drawn = folder
		return nil
	}
	_, err := measure(t.Context(), suites, s, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, s.out, drawn)
	suites[0].Plots = func(report.Report, string) error { return errors.New("no ink") }
	_, err = measure(t.Context(), suites, s, io.Discard)
	require.ErrorContains(t, err, "no ink")
	s.out = ""
	_, err = measure(t.Context(), suites, s, io.Discard)
	require.NoError(t, err, "what is not written is not drawn")
}
