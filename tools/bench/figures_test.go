package main

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/report"
)

func TestScaledTargetsFollowASlowerCalibrationOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		target         Target
		now, reference float64
		want           report.Bound
	}{
		"a rate, as fast":  {rateScaled(1000, "c"), 80, 80, report.Bound{Value: 1000}},
		"a rate, faster":   {rateScaled(1000, "c"), 90, 80, report.Bound{Value: 1000}},
		"a rate, half":     {rateScaled(1000, "c"), 40, 80, report.Bound{Value: 500, Note: "scaled by c: 40 of 80"}},
		"a time, as fast":  {timeScaled(10, "c"), 80, 80, report.Bound{Value: 10, Most: true}},
		"a time, faster":   {timeScaled(10, "c"), 160, 80, report.Bound{Value: 10, Most: true}},
		"a time, half":     {timeScaled(10, "c"), 40, 80, report.Bound{Value: 20, Most: true, Note: "scaled by c: 40 of 80"}},
		"a ratio stays":    {atLeast(0.5), 1, 80, report.Bound{Value: 0.5}},
		"an amount stays":  {atMost(64), 1, 80, report.Bound{Value: 64, Most: true}},
		"without anything": {atMost(64), math.NaN(), 0, report.Bound{Value: 64, Most: true}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.target(Readings{"c": tt.now}, Readings{"c": tt.reference})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	for _, bad := range []float64{0, -1, math.NaN()} {
		_, err := rateScaled(1, "c")(Readings{"c": bad}, Readings{"c": 1})
		require.Error(t, err)
		_, err = timeScaled(1, "d")(Readings{"d": 1}, Readings{"d": bad})
		require.Error(t, err)
	}
}

func TestAReadingThatIsNotAlwaysThereHasNoMedian(t *testing.T) {
	t.Parallel()
	m := medians([]Readings{{"a": 1, "b": 5}, {"a": 3}, {"a": 2}})
	assert.InDelta(t, 2, m["a"], 0)
	assert.True(t, math.IsNaN(m["b"]), "a reading that is not always there has none")
}

func TestRowsAreChosenByTheirFullName(t *testing.T) {
	t.Parallel()
	all := suites()
	everything := regexp.MustCompile("")
	var usual []string
	for _, suite := range all {
		rows := names(chosen(all, suite.Name, everything))
		assert.NotEmpty(t, rows, suite.Name)
		if !suite.Apart {
			usual = append(usual, rows...)
		}
	}
	assert.Equal(t, usual, names(chosen(all, "", everything)))
	assert.Contains(t, names(chosen(all, "python", everything)), "pyfunction/calls")
	assert.Empty(t, chosen(all, "nothing", everything))
	assert.Equal(t, []string{"raw786k/cpu", "jpeg25k/cpu", "pyclient786k/cpu", "remote786k/cpu"}, names(chosen(all, "", regexp.MustCompile("k/cpu$"))))
	assert.Empty(t, chosen(all, "", regexp.MustCompile("nothing")))
	assert.Equal(t, names(suites()), names(all), "choosing leaves the suites alone")
}

func TestAShareOfTheCalibrationIsEnoughWhereTheRateIsNot(t *testing.T) {
	t.Parallel()
	for bare, want := range map[float64]report.Bound{
		1000: {Value: 400},
		500:  {Value: 300, Note: "0.6 of bare_per_s, which is less than 400/s"},
	} {
		got, err := orShare(400, 0.6, "bare_per_s")(Readings{"bare_per_s": bare}, nil)
		require.NoError(t, err)
		assert.InDelta(t, want.Value, got.Value, 1e-9)
		assert.Equal(t, want.Note, got.Note)
	}
	for _, bad := range []Readings{{}, {"bare_per_s": 0}} {
		_, err := orShare(400, 0.6, "bare_per_s")(bad, nil)
		require.Error(t, err)
	}
}

func TestAClosedLoopKeepsItsWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, err := closedLoop(t.Context(), func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}, 2, 3, time.Second)
		require.NoError(t, err)
		assert.InDelta(t, 6*100, o.samples, 6)
		assert.InDelta(t, 600, o.perSecond(), 6)
		assert.InDelta(t, 10, o.quantile(0.99), 0)
	})
}

func TestAnOpenLoopCountsFromTheIntendedMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1) // one at a time, 100/s: half of what comes
		o, err := openLoop(t.Context(), func(context.Context, int) error {
			turn <- struct{}{}
			time.Sleep(10 * time.Millisecond)
			<-turn
			return nil
		}, 1, 200, time.Second, 3)
		require.NoError(t, err)
		assert.InDelta(t, 200, o.samples, 40)
		assert.Greater(t, o.quantile(0.99), 500.0, "those that waited have waited")
	})
}

func TestArrivalsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	first, second := arrivals(200, time.Second, 3), arrivals(200, time.Second, 3)
	assert.Equal(t, first, second, "both sides get the same")
	assert.True(t, slices.IsSorted(first))
	assert.NotEqual(t, first, arrivals(200, time.Second, 4))
	assert.Equal(t, []time.Duration{time.Millisecond}, arrivals(0.001, time.Millisecond, 3), "one, however slow the machine")
}

func TestALoadEndsWithItsFirstError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func(context.Context, int) error { return broken }
	_, err := closedLoop(t.Context(), fails, 2, 2, time.Hour)
	require.ErrorIs(t, err, broken)
	_, err = openLoop(t.Context(), fails, 2, 1000, 10*time.Millisecond, 1)
	require.ErrorIs(t, err, broken)
}

func TestWhatOthersComputeIsSeen(t *testing.T) {
	t.Parallel()
	o := outcome{took: 2 * time.Second, used: usage{cpu: time.Second, machine: 2 * time.Second}}
	assert.InDelta(t, 0.5, o.others(), 0)
	o.used.machine = 0
	assert.Zero(t, o.others(), "where the system does not tell nobody is blamed")
}
