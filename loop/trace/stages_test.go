package trace_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// recorded is oneStep() as a gateway records it: sample c was tried twice, d had a
// backup request that was first, and one of the five that were declared is missing.
func recorded() trace.Trace {
	rec := oneStep()
	rec.Run, rec.Split, rec.Step, rec.Expected = "r", "train", 7, 5
	rec.Spans[0].Stages = map[string]float64{"claim": 0.1, "decode": 0.5}
	rec.Spans[1].Stages = map[string]float64{"claim": 0.3}
	rec.Spans[2].Attempts = []sim.Attempt{
		{Worker: "w2", Started: 6.25, Ended: 6.375, Outcome: "failed"},
		{Worker: "w1", Started: 6.5, Ended: 8.5, Outcome: sim.AttemptWon},
	}
	rec.Spans[3].UID = "g"
	rec.Spans[3].Attempts = []sim.Attempt{
		{Worker: "w1", Started: 8.5, Ended: 13, Outcome: "late"},
		{Worker: "w2", Started: 9, Ended: 13, Backup: true, Outcome: sim.AttemptWon},
	}
	return rec
}

func TestAttemptsStagesAndTheTailAreReadFromTheTraceAlone(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	require.NoError(t, recorded().Write(&file))
	rec, err := trace.ReadTrace(&file)
	require.NoError(t, err)
	require.Equal(t, recorded(), rec)
	got, err := trace.Measure(rec)
	require.NoError(t, err)
	assert.Equal(t, 1, got.Missing)
	assert.Equal(t, 1, got.Retries)
	assert.Equal(t, 1, got.Backups)
	assert.Equal(t, 1, got.BackupsWon)
	assert.InDelta(t, 4.5, got.BackupWasted, 1e-12)
	assert.Equal(t, map[string]trace.Quantiles{
		"claim":  {Count: 2, Mean: 0.2, P50: 0.1, P99: 0.3, Max: 0.3},
		"decode": {Count: 1, Mean: 0.5, P50: 0.5, P99: 0.5, Max: 0.5},
	}, got.Stages)
	assert.Equal(t, "g", got.Tail[0].UID)
	assert.Equal(t, 2, got.Tail[0].Attempts)
	for _, part := range []string{
		"1 samples were declared and never arrived", "retries 1; backup requests 1, 1 won, 4.500 s wasted",
		"  claim               2     0.2000", "13.500 s  d on w2 in 2 attempts: accept 0.250, return 0.500, score 4.000, wait 0.750",
	} {
		assert.Contains(t, got.Details(), part)
	}
	assert.NotContains(t, got.Details(), "batch_wait", "nobody recorded it")
}

func TestOfManySamplesTheTailNamesTheLastFive(t *testing.T) {
	t.Parallel()
	s, err := sim.IdealQueue(make([]float64, 20), []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 19}, 20)
	require.NoError(t, err)
	got, err := trace.Measure(trace.FromSchedule(s))
	require.NoError(t, err)
	ids := make([]string, 0, 5)
	for _, l := range got.Tail {
		ids = append(ids, l.ID)
	}
	assert.Equal(t, []string{"18", "19", "17", "16", "15"}, ids)
}

func TestASummaryGivesTheBadEndOfEveryFigure(t *testing.T) {
	t.Parallel()
	var reports []trace.Report
	for i := range 100 {
		v := float64(i + 1)
		reports = append(reports, trace.Report{Exposed: v, OverBound: new(1 + v), Efficiency: new(1 - v/100), Unscored: 1})
	}
	reports = append(reports, trace.Report{Exposed: 0, Missing: 2}) // a step without ratios
	got := trace.Summarize(reports)
	assert.Equal(t, 101, got.Steps)
	assert.Equal(t, 100, got.Unscored)
	assert.Equal(t, 2, got.Missing)
	assert.Equal(t, &trace.Spread{Count: 101, P50: 50, P99: 99, Worst: 100}, got.Exposed)
	assert.Equal(t, &trace.Spread{Count: 100, P50: 51, P99: 100, Worst: 101}, got.OverBound)
	assert.InDelta(t, 0.5, got.Efficiency.P50, 1e-12)
	assert.InDelta(t, 0.01, got.Efficiency.P99, 1e-12)
	assert.InDelta(t, 0, got.Efficiency.Worst, 1e-12)
	assert.Contains(t, got.String(), "exposed reward time, s: p50 50.000, p99 99.000, worst 100.000")
	empty := trace.Summarize(nil)
	assert.Nil(t, empty.Exposed)
	assert.Contains(t, empty.String(), "exposed reward time, s: undefined")
}
