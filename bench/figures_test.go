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
)

func TestScaledTargetsFollowASlowerCalibrationOnly(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		target         Target
		now, reference float64
		want           Bound
	}{
		"a rate, as fast":  {rateScaled(1000, "c"), 80, 80, Bound{Value: 1000}},
		"a rate, faster":   {rateScaled(1000, "c"), 90, 80, Bound{Value: 1000}},
		"a rate, half":     {rateScaled(1000, "c"), 40, 80, Bound{Value: 500, Note: "scaled by c: 40 of 80"}},
		"a time, as fast":  {timeScaled(10, "c"), 80, 80, Bound{Value: 10, Most: true}},
		"a time, faster":   {timeScaled(10, "c"), 160, 80, Bound{Value: 10, Most: true}},
		"a time, half":     {timeScaled(10, "c"), 40, 80, Bound{Value: 20, Most: true, Note: "scaled by c: 40 of 80"}},
		"a ratio stays":    {atLeast(0.5), 1, 80, Bound{Value: 0.5}},
		"an amount stays":  {atMost(64), 1, 80, Bound{Value: 64, Most: true}},
		"without anything": {atMost(64), math.NaN(), 0, Bound{Value: 64, Most: true}},
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

func TestNoBoundKeepsWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	for _, most := range []bool{false, true} {
		b := Bound{Value: 1, Most: most}
		assert.True(t, b.keeps(1))
		assert.False(t, b.keeps(math.NaN()))
		assert.Equal(t, most, b.keeps(0))
		assert.Equal(t, !most, b.keeps(2))
	}
}

func TestTheMedianIsTheMiddle(t *testing.T) {
	t.Parallel()
	assert.InDelta(t, 2, median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	assert.True(t, math.IsNaN(median(nil)))
	assert.True(t, math.IsNaN(median([]float64{1, math.NaN(), 2})))
	m := medians([]Readings{{"a": 1, "b": 5}, {"a": 3}, {"a": 2}})
	assert.InDelta(t, 2, m["a"], 0)
	assert.True(t, math.IsNaN(m["b"]), "a reading that is not always there has none")
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.5: "0.5", 0.12345: "0.123", 0.0123: "0.012", 1.23456: "1.235", 12.3456: "12.35", 123.456: "123.5", 999.96: "1,000",
		1000: "1,000", 12345.6: "12,346", 1234567: "1,234,567", -9.659: "-9.659", -1234: "-1,234", math.Inf(1): "+Inf",
	} {
		assert.Equal(t, want, number(v))
	}
	assert.Equal(t, "12/s", with(12, "/s"))
	assert.Equal(t, "12 ms", with(12, "ms"))
	assert.Equal(t, "12", with(12, ""))
}

func TestTheTableShowsTargetMachineLoadAndCommit(t *testing.T) {
	t.Parallel()
	page := table([]Report{{
		Suite: "one", About: "What it is.", Date: "2031-02-03T04:05:06Z", Commit: "abc", Dirty: true, LoadBefore: "1 2 3", LoadAfter: "4 5 6", Repetitions: 5, Disturbed: 2,
		Machine: Machine{CPU: "Chip", Cores: 2, Go: "go1", OS: "os/arch"},
		Rows: []Figure{
			{Row: "x/rate", Issue: "≥ 100/s", Unit: "/s", Value: 1234, Target: &Bound{Value: 1000, Note: "scaled"}, Held: true, Beside: Readings{"b": 2, "a": 1}},
			{Row: "x/size", Unit: "KiB", Value: 70, Target: &Bound{Value: 64, Most: true}, Miss: &Miss{Reason: "a | b"}},
			{Row: "x/new", Value: 3, Target: &Bound{Value: 4}},
			{Row: "x/told", Unit: "ms", Value: 3, Held: true},
		},
	}}, []string{"/folder/one-more.svg", "/folder/two.svg"})
	assert.Contains(t, page, "![one-more](one-more.svg)")
	assert.NotContains(t, page, "two.svg", "it is of another suite")
	for _, want := range []string{
		"## one\n\nWhat it is.\n\nChip, 2 cores, os/arch, go1. Load 1 2 3 before, 4 5 6 after. Commit abc with changes, 2031-02-03T04:05:06Z, median of 5. Other processes disturbed 2 of the repetitions: latencies and absolute rates are partly theirs.\n",
		"| x/rate | 1,234/s | ≥ 1,000/s (scaled) | yes | a 1, b 2 |\n",
		"| x/size | 70 KiB | ≤ 64 KiB | **no**: a \\| b |  |\n",
		"| x/new | 3 | ≥ 4 | **no** |  |\n",
		"| x/told | 3 ms | – | – |  |\n",
		"- `x/rate`: “≥ 100/s”\n",
	} {
		assert.Contains(t, page, want)
	}
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
	for bare, want := range map[float64]Bound{
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
	d, err := parseStat("cpu  100 20 3 999 9 9 9 9 0 0\ncpu0 1 1 1 1\n")
	require.NoError(t, err)
	assert.Equal(t, 1230*time.Millisecond, d)
	for _, bad := range []string{"", "cpu0 1 1 1", "cpu 1 2", "cpu 1 x 3 4"} {
		_, err := parseStat(bad)
		require.Error(t, err, bad)
	}
	o := outcome{took: 2 * time.Second, used: usage{cpu: time.Second, machine: 2 * time.Second}}
	assert.InDelta(t, 0.5, o.others(), 0)
	o.used.machine = 0
	assert.Zero(t, o.others(), "where the system does not tell nobody is blamed")
}

func TestTheProcessorIsNamed(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, cpuModel("/proc/cpuinfo"))
	assert.NotEmpty(t, cpuModel("/nowhere"))
	assert.NotEmpty(t, loadAverage())
}
