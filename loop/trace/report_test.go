package trace_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/sim"
	"github.com/rewardloop/rewardloop/loop/trace"
)

// oneStep is a small trace whose figures can be computed in the head: two servers,
// releases at 2, 4, 6, 8 s, services 2, 2, 2, 4 s; the queue adds 1 s to the
// last sample and the way back another 0.5 s.
func oneStep() trace.Trace {
	return trace.Trace{Servers: 2, Update: 10, Spans: []trace.Span{
		{ID: "a", Generated: 2, Queued: new(2.25), Started: new(2.5), Scored: new(4.5), Returned: new(4.75), Worker: "w1"},
		{ID: "b", Generated: 4, Queued: new(4.25), Started: new(4.5), Scored: new(6.5), Returned: new(6.75), Worker: "w1"},
		{ID: "c", Generated: 6, Queued: new(6.25), Started: new(6.5), Scored: new(8.5), Returned: new(8.75), Worker: "w1"},
		{ID: "d", Generated: 8, Queued: new(8.25), Started: new(9.0), Scored: new(13.0), Returned: new(13.5), Worker: "w2"},
	}}
}

func TestTheReportOfAStepThatCanBeComputedByHand(t *testing.T) {
	t.Parallel()
	got, err := trace.Measure(oneStep())
	require.NoError(t, err)
	batch := 6.0 // a variable, so that η rounds as it does at run time
	want := trace.Report{
		Samples: 4, Servers: 2, Rollout: 8, Makespan: 13.5, Update: 10,
		Exposed:          5.5,
		BoundExposed:     4, // F* = 8 + 4
		IdealExposed:     4, // d starts at 8 on the free server
		BatchExposed:     6, // after 8 s: a and b, then c beside d, which ends at 8 + 2 + 4
		OverBound:        new(23.5 / 22),
		OverIdeal:        new(23.5 / 22),
		ExposedOverBound: new(5.5 / 4),
		Efficiency:       new(1 - 5.5/batch),
		Load:             new(10.0 / 16),
		Utilisation:      new(10.0 / 27),
		Imbalance:        new(3.0 / 2),
		Peak:             1,
		Accept:           &trace.Quantiles{Count: 4, Mean: 0.25, P50: 0.25, P99: 0.25, Max: 0.25},
		Wait:             &trace.Quantiles{Count: 4, Mean: 0.375, P50: 0.25, P99: 0.75, Max: 0.75},
		Score:            &trace.Quantiles{Count: 4, Mean: 2.5, P50: 2, P99: 4, Max: 4},
		Return:           &trace.Quantiles{Count: 4, Mean: 0.3125, P50: 0.25, P99: 0.5, Max: 0.5},
		Overhead:         &trace.Quantiles{Count: 4, Mean: 0.9375, P50: 0.75, P99: 1.5, Max: 1.5},
		Tail: []trace.Late{
			{ID: "d", Worker: "w2", Finished: 13.5, Stages: map[string]float64{"accept": 0.25, "wait": 0.75, "score": 4, "return": 0.5}},
			{ID: "c", Worker: "w1", Finished: 8.75, Stages: map[string]float64{"accept": 0.25, "wait": 0.25, "score": 2, "return": 0.25}},
			{ID: "b", Worker: "w1", Finished: 6.75, Stages: map[string]float64{"accept": 0.25, "wait": 0.25, "score": 2, "return": 0.25}},
			{ID: "a", Worker: "w1", Finished: 4.75, Stages: map[string]float64{"accept": 0.25, "wait": 0.25, "score": 2, "return": 0.25}},
		},
	}
	assert.Equal(t, want, got)
	assert.InDelta(t, 1-5.5/11, *got.EfficiencyAgainst(11), 1e-15)
	assert.Nil(t, got.EfficiencyAgainst(0))
	for _, part := range []string{"4 samples (0 unscored)", "exposed reward time 5.500 s", "bound 4.000", "overlap efficiency 0.083"} {
		assert.Contains(t, got.String(), part)
	}
}

// What the report says of a simulated schedule is what the schedule says of
// itself, so a measured run and a simulation are read with the same ruler.
func TestASimulatedScheduleIsMeasuredLikeARun(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(21, 22))
	for range 100 {
		g, r, servers := load(rng)
		for name, policy := range policies() {
			s, err := policy(g, r, servers)
			require.NoError(t, err)
			rep, err := trace.Measure(trace.FromSchedule(s))
			require.NoError(t, err, name)
			bound, err := sim.LowerBound(g, r, servers)
			require.NoError(t, err)
			require.InDelta(t, s.Makespan, rep.Makespan, 0, name)
			require.InDelta(t, s.Exposed(), rep.Exposed, 0, name)
			require.InDelta(t, bound, rep.BoundExposed+rep.Rollout, 0, name)
			require.LessOrEqual(t, rep.Peak, servers, name)
			require.GreaterOrEqual(t, rep.Exposed, rep.BoundExposed, name)
			require.GreaterOrEqual(t, rep.IdealExposed, rep.BoundExposed, name)
			switch {
			case rep.Efficiency == nil:
				require.Zero(t, rep.BatchExposed)
			case name == "batch after rollout":
				require.InDelta(t, 0, *rep.Efficiency, 0)
			}
		}
	}
}

func TestAServiceTimeKnownBeforehandKeepsASlowMachineOutOfTheBound(t *testing.T) {
	t.Parallel()
	rec := oneStep()
	for i := range rec.Spans {
		rec.Spans[i].Service = new(1.0)
	}
	got, err := trace.Measure(rec)
	require.NoError(t, err)
	assert.InDelta(t, 1, got.BoundExposed, 0)
	assert.InDelta(t, 5.5, *got.ExposedOverBound, 0)
	assert.InDelta(t, 4.5, got.Overhead.Max, 0)
}

func TestAnUnscoredSampleIsCountedAndNeverReadAsTimeZero(t *testing.T) {
	t.Parallel()
	rec := oneStep()
	rec.Spans = append(rec.Spans, trace.Span{ID: "e", Generated: 20})
	got, err := trace.Measure(rec)
	require.NoError(t, err)
	assert.Equal(t, 5, got.Samples)
	assert.Equal(t, 1, got.Unscored)
	assert.InDelta(t, 5.5, got.Exposed, 0, "it has no answer yet")

	rec.Spans = append(rec.Spans, trace.Span{
		ID: "f", Generated: 2, Outcome: "failed", Returned: new(30.0),
		Attempts: []sim.Attempt{{Started: 3, Ended: 5, Outcome: "failed"}, {Started: 8, Ended: 12, Outcome: "failed"}},
	})
	all, err := trace.Measure(rec)
	require.NoError(t, err)
	assert.Equal(t, 2, all.Unscored)
	assert.InDelta(t, 30-all.Rollout, all.Exposed, 0, "the trainer waited for the failure as for a score")
	assert.Greater(t, all.BatchExposed, got.BatchExposed, "its attempts took six seconds of a server")
	assert.Equal(t, "f", all.Tail[0].ID)
	assert.Equal(t, "failed", all.Tail[0].Outcome)
	assert.InDelta(t, 28, all.Tail[0].Stages["unscored"], 0)
	assert.Equal(t, got.Score.Count, all.Score.Count)

	none, err := trace.Measure(trace.Trace{Servers: 1, Spans: []trace.Span{{ID: "x", Generated: 1, Outcome: "expired", Returned: new(9.0)}}})
	require.NoError(t, err, "a step whose samples all failed has a report")
	assert.InDelta(t, 8, none.Exposed, 0)
	assert.Nil(t, none.Score)

	_, err = trace.Measure(trace.Trace{Servers: 1, Spans: []trace.Span{{ID: "e", Generated: 20}}})
	require.ErrorIs(t, err, trace.ErrTrace)
	assert.ErrorContains(t, err, "none of its 1 samples was answered")
}

func TestAQuotientThatDoesNotExistIsNullNotZero(t *testing.T) {
	t.Parallel()
	got, err := trace.Measure(trace.Trace{Servers: 1, Spans: []trace.Span{{ID: "a", Started: new(0.0), Scored: new(0.0)}}})
	require.NoError(t, err)
	assert.Nil(t, got.OverBound)
	assert.Nil(t, got.Efficiency)
	assert.Nil(t, got.Load)
	assert.Nil(t, got.Imbalance)
	assert.Nil(t, got.Accept)
	assert.Contains(t, got.String(), "overlap efficiency undefined")
	b, err := json.Marshal(got)
	require.NoError(t, err)
	assert.Contains(t, string(b), `"overlap_efficiency":null`)
}

func TestATraceWithMoreInServiceThanServersShowsIt(t *testing.T) {
	t.Parallel()
	got, err := trace.Measure(trace.Trace{Servers: 1, Spans: []trace.Span{
		{ID: "a", Started: new(0.0), Scored: new(2.0)},
		{ID: "b", Started: new(1.0), Scored: new(3.0)},
		{ID: "c", Started: new(2.0), Scored: new(4.0)},
	}})
	require.NoError(t, err)
	assert.Equal(t, 2, got.Peak)
}

func TestATraceReadsBackToTheSameReport(t *testing.T) {
	t.Parallel()
	g, r := make([]float64, 300), make([]float64, 300)
	rng := rand.New(rand.NewPCG(31, 32))
	for i := range g {
		g[i], r[i] = 100*rng.Float64(), rng.ExpFloat64()
	}
	s, err := blind(g, r, 7, 1)
	require.NoError(t, err)
	rec := trace.FromSchedule(s)
	rec.Update = math.Pi
	before, err := trace.Measure(rec)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, rec.Write(&file))
	read, err := trace.ReadTrace(&file)
	require.NoError(t, err)
	assert.Equal(t, rec, read)
	after, err := trace.Measure(read)
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

func TestATraceThatMakesNoSenseIsRefusedWithEveryFaultNamed(t *testing.T) {
	t.Parallel()
	rec := trace.Trace{Servers: 0, Update: -1, Spans: []trace.Span{
		{ID: "a", Generated: 5, Started: new(4.0), Scored: new(6.0)},
		{ID: "a", Started: new(4.0)},
		{ID: "", Generated: 1},
		{ID: "n", Generated: math.NaN()},
		{ID: "r", Returned: new(1.0)},
		{ID: "s", Service: new(-1.0)},
	}}
	_, err := trace.Measure(rec)
	require.ErrorIs(t, err, trace.ErrTrace)
	for _, part := range []string{
		"servers is 0", "update_s is -1", `"a"): started_s is 4, earlier than generated_s at 5`, "occurs twice",
		"both be present", "id is empty", "generated_s is NaN", "returned_s without scored_s", "service_s is -1",
	} {
		require.ErrorContains(t, err, part)
	}
	require.ErrorIs(t, rec.Write(&bytes.Buffer{}), trace.ErrTrace)

	_, err = trace.Measure(trace.Trace{Servers: 1, Expected: -3, Spans: []trace.Span{
		{ID: "a", Attempts: []sim.Attempt{{Started: 3, Ended: 2}}},
		{ID: "b", Attempts: []sim.Attempt{{Started: 3, Ended: math.Inf(1)}}},
		{ID: "c", Attempts: make([]sim.Attempt, 65)},
		{ID: "d", Stages: map[string]float64{"decode": -1}},
		{ID: "e", Stages: map[string]float64{"claim": math.NaN()}},
	}})
	for _, part := range []string{
		"expected is -3", `"a"): attempt 0: ended_s is 2, earlier than started_s at 3`, `"b"): attempt 0 is from 3 to +Inf`,
		"65 attempts, must be at most 64", `stage "decode" is -1`, `stage "claim" is NaN`,
	} {
		require.ErrorContains(t, err, part)
	}

	_, err = trace.Measure(trace.Trace{Servers: 1, Spans: make([]trace.Span, 5000)})
	require.ErrorContains(t, err, "further spans not checked")
	assert.Less(t, len(err.Error()), 2000)
}

func TestAFileThatIsNotATraceIsRefused(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		``, `[]`, `{"servers":1,"spans":[]}`, `{"servers":1,"spans":[{"id":"a","generated":1}]}`,
		`{"servers":1,"spans":[{"id":"a","generated_s":1}]} {}`, `{"servers":1,"spans":[{"id":"a","generated_s":1e400}]}`,
	} {
		_, err := trace.ReadTrace(strings.NewReader(file))
		require.ErrorIs(t, err, trace.ErrTrace, file)
	}
}
