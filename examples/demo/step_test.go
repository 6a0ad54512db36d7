package demo_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/examples/demo"
	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

func scored(id, worker string, seq uint64, queue, score float64) *wire.Result {
	return &wire.Result{
		ID: id, Seq: seq, Outcome: rewards.Scored, RewardScore: new(1.0), Worker: worker,
		TimingMS: map[string]float64{"queue": queue, "score": score},
	}
}

func TestAPlaceIsNeverTakenTwiceHoweverLateItsResultsArrive(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	// Both on one place: b ran right after a, but a's result took 5 ms to arrive.
	rec, err := demo.TraceOf(1,
		demo.Seen(0, 105*ms, scored("a", "w0", 1, 0, 100)),
		demo.Seen(10*ms, 201*ms, scored("b", "w0", 2, 90, 100)))
	require.NoError(t, err)
	a, b := rec.Spans[0], rec.Spans[1]
	assert.InDelta(t, 0.201, *b.Scored, 1e-9)
	assert.InDelta(t, 0.101, *b.Started, 1e-9)
	assert.InDelta(t, 0.101, *a.Scored, 1e-9, "a had left the place when b took it")
	assert.InDelta(t, 0.001, *a.Started, 1e-9)
	assert.InDelta(t, 0.011, *b.Queued, 1e-9)
	rep, err := trace.Measure(rec)
	require.NoError(t, err)
	assert.Equal(t, 1, rep.Peak)
}

func TestAnImpossibleTimingIsAnErrorAndNotAFigure(t *testing.T) {
	t.Parallel()
	_, err := demo.TraceOf(1, demo.Seen(50*time.Millisecond, 100*time.Millisecond, scored("a", "w0", 1, 0, 80)))
	require.ErrorIs(t, err, trace.ErrTrace, "80 ms of scoring do not fit between 50 and 100 ms")
}

func TestASampleWithoutAScoreHasNoTimes(t *testing.T) {
	t.Parallel()
	rec, err := demo.TraceOf(1,
		demo.Seen(0, time.Second, &wire.Result{ID: "a", Seq: 1, Outcome: rewards.Failed, Worker: "w0"}),
		demo.Seen(0, time.Second, scored("b", "w0", 2, 0, 10)))
	require.NoError(t, err)
	assert.Nil(t, rec.Spans[0].Scored)
	assert.Nil(t, rec.Spans[0].Returned)
	assert.NotNil(t, rec.Spans[1].Scored)
}

// The placement is later than the truth by no more than the slowest return, never
// earlier, and keeps every duration: tried on schedules of which the truth is known.
func TestSpansLieBetweenTheTruthAndTheirReturn(t *testing.T) {
	t.Parallel()
	draw := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		const n, servers = 40, 3
		g, r := make([]float64, n), make([]float64, n)
		for i := range g {
			g[i], r[i] = 2*draw.Float64(), 0.2*draw.Float64()
		}
		truth, err := sim.IdealQueue(g, r, servers)
		require.NoError(t, err)
		order := map[int]uint64{}
		for i := range n {
			for j := range n {
				if truth.Finished[j] <= truth.Finished[i] {
					order[i]++
				}
			}
		}
		seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
		seen := demo.Observations(n)
		for i := range n {
			res := scored(strconv.Itoa(i), strconv.Itoa(truth.Server[i]), order[i], 1e3*(truth.Started[i]-g[i]), 1e3*r[i])
			seen[i] = demo.Seen(seconds(g[i]), seconds(truth.Finished[i]+0.01*draw.Float64())+time.Microsecond, res)
		}
		rec, err := demo.TraceOf(servers, seen...)
		require.NoError(t, err)
		rep, err := trace.Measure(rec)
		require.NoError(t, err)
		require.LessOrEqual(t, rep.Peak, servers)
		for i, s := range rec.Spans {
			require.GreaterOrEqual(t, *s.Started, truth.Started[i]-1e-6)
			require.LessOrEqual(t, *s.Started, truth.Started[i]+0.0101)
			require.InDelta(t, r[i], *s.Scored-*s.Started, 1e-6)
		}
	}
}

func TestCalibrationLeavesOutColdReadersAndSamplesWithoutAScore(t *testing.T) {
	t.Parallel()
	seen := demo.Observations(6)
	for i, ms := range []float64{900, 10, 20, 800, 30, 40} {
		seq := map[int]uint64{0: 1, 3: 2}[i] // the cold ones came first
		if seq == 0 {
			seq = uint64(10 + i)
		}
		seen[i] = demo.Seen(0, time.Second, scored(strconv.Itoa(i), "w0", seq, 0, ms))
	}
	mean, err := demo.MeanScore(seen, 2)
	require.NoError(t, err)
	assert.Equal(t, 25*time.Millisecond, mean)
	mean, err = demo.MeanScore(seen[:2], 100)
	require.NoError(t, err)
	assert.Equal(t, 10*time.Millisecond, mean, "half of them stay")
	failed := demo.Seen(0, time.Second, &wire.Result{ID: "a", Outcome: rewards.Failed})
	_, err = demo.MeanScore(append(demo.Observations(0), failed), 2)
	require.ErrorIs(t, err, demo.ErrNothingScored)
}

func TestSamplesOfARowMayOverlapByTheMakingOfTheirAnswers(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	rec, err := demo.TraceOf(1,
		demo.Seen(3*ms, 110*ms, scored("a", "w0", 1, 0, 100)),
		demo.Seen(10*ms, 201*ms, scored("b", "w0", 2, 90, 100)))
	require.NoError(t, err)
	assert.InDelta(t, 0.003, *rec.Spans[0].Started, 1e-9, "not 0.001: it was not there yet")
}

func TestALongRowOfSamplesMayOverlapByAllOfTheirAnswers(t *testing.T) {
	t.Parallel()
	const n, ms = 60, time.Millisecond
	// Every answer overlaps the next sample by 0.5 ms, and the first one came at 0.
	row := func(first time.Duration) error {
		seen := demo.Observations(n)
		for i := range n {
			end := time.Duration(i+1) * 30 * ms
			seen[i] = demo.Seen(0, end+ms, scored(strconv.Itoa(i), "w0", uint64(i+1), 0, 30.5))
		}
		seen[0] = demo.Seen(first, 31*ms, scored("0", "w0", 1, 0, 30.5))
		_, err := demo.TraceOf(1, seen...)
		return err
	}
	require.NoError(t, row(0), "29 ms in all")
	require.ErrorIs(t, row(400*ms), trace.ErrTrace, "an answer before the sample is still an error")
}
