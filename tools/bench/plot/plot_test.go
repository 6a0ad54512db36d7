package plot_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/tools/bench/plot"
)

const foot = "Median of 5. Chip <2.5 GHz> & more, 2 cores; commit abc."

func someBars() plot.BarsData {
	nan := math.NaN()
	return plot.BarsData{
		Title: `Bars & "bounds" <1 %`, YLabel: "above the bound (%)", Groups: []string{"even\nrandom", "log-normal, σ = 1"},
		Series: []plot.Series{{Name: "8 workers", Values: []float64{0.25, 36.7}, Marks: []float64{1, nan}}, {Name: "64 workers", Values: []float64{nan, 126.04}}},
		Top:    20, Ordered: true, MarkName: "promised", Foot: foot,
	}
}

func TestBarsHoldEveryLabelAndValue(t *testing.T) {
	t.Parallel()
	got := drawn(t, func(file string) error { return plot.Bars(file, someBars()) })
	for _, want := range []string{
		`Bars & "bounds" <1 %`, "above the bound (%)", "even", "random", "log-normal, σ = 1", "8 workers", "64 workers", "promised", foot,
		"0.25", "36.7", "126", // the ones that are cut, too
	} {
		assert.Contains(t, got, want)
	}
	assert.NotContains(t, strings.Join(got, " "), "NaN", "what is not there is not drawn")
}

func TestLinesHoldEveryLabelAndValue(t *testing.T) {
	t.Parallel()
	d := plot.LinesData{
		Title: "Seconds per step", XLabel: "calls at a time", YLabel: "s", X: []float64{256, 1024, 5120}, LogX: true, FromZero: true, Foot: foot,
		Series: []plot.Series{
			{Name: "batch", Values: []float64{613.1, math.NaN(), 219}},
			{Name: "both", Values: []float64{412, 193, 192.6}},
			{Name: "published", Values: []float64{424, 424, 424}, Dashed: true},
		},
	}
	got := drawn(t, func(file string) error { return plot.Lines(file, d) })
	for _, want := range []string{"Seconds per step", "calls at a time", "s", "256", "1024", "5120", "batch", "both", "published", "613", "219", "412", "193", foot} {
		assert.Contains(t, got, want)
	}
	assert.NotContains(t, got, "424", "a reference is in the legend, not written at every point")
	d.LogX, d.FromZero = false, false
	drawn(t, func(file string) error { return plot.Lines(file, d) })
	d.X, d.Series = []float64{7}, []plot.Series{{Name: "one", Values: []float64{3}}}
	assert.Contains(t, drawn(t, func(file string) error { return plot.Lines(file, d) }), "one", "a single point has axes, too")
}

func someBands() plot.BandsData {
	return plot.BandsData{
		Title: "A step", XLabel: "seconds", Kinds: []string{"rollout", "update"}, Foot: foot,
		Rows: []plot.Row{
			{Name: "batch", Bands: []plot.Band{{To: 50, Kind: "rollout", Label: "50"}, {From: 50, To: 51, Kind: "update", Label: "much too long"}}},
			{Name: "streaming", Bands: []plot.Band{{From: 50, To: 150, Kind: "update", Label: "100"}}},
		},
	}
}

func TestBandsHoldEveryLabelThatFits(t *testing.T) {
	t.Parallel()
	got := drawn(t, func(file string) error { return plot.Bands(file, someBands()) })
	for _, want := range []string{"A step", "seconds", "rollout", "update", "batch", "streaming", "50", "100", foot} {
		assert.Contains(t, got, want)
	}
	assert.NotContains(t, got, "much too long")
}

func TestALongFootIsBroken(t *testing.T) {
	t.Parallel()
	d := someBars()
	d.Foot = strings.Repeat("word ", 100) + "end"
	got := drawn(t, func(file string) error { return plot.Bars(file, d) })
	last := got[len(got)-1]
	assert.NotContains(t, got, d.Foot)
	assert.Contains(t, strings.Join(got, " "), d.Foot)
	assert.Less(t, len(last), 200)
}

func TestWhatCannotBeDrawnIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.svg")
	short := someBars()
	short.Series[1].Values = []float64{1}
	endless := someBars()
	endless.Series[0].Values = []float64{1, math.Inf(1)}
	backward, unknown := someBands(), someBands()
	backward.Rows[0].Bands[0].From = 60
	unknown.Rows[0].Bands[0].Kind = "sleep"
	one := []plot.Series{{Name: "a", Values: []float64{1, 2}}}
	for name, err := range map[string]error{
		"too few values":      plot.Bars(file, short),
		"an endless bar":      plot.Bars(file, endless),
		"no bars":             plot.Bars(file, plot.BarsData{}),
		"another file format": plot.Bars(filepath.Join(t.TempDir(), "p.txt"), someBars()),
		"no order":            plot.Lines(file, plot.LinesData{X: []float64{2, 1}, Series: one}),
		"the logarithm of 0":  plot.Lines(file, plot.LinesData{X: []float64{0, 1}, LogX: true, Series: one}),
		"no lines":            plot.Lines(file, plot.LinesData{}),
		"a band backwards":    plot.Bands(file, backward),
		"an unknown kind":     plot.Bands(file, unknown),
		"no bands":            plot.Bands(file, plot.BandsData{}),
	} {
		require.ErrorIs(t, err, plot.ErrData, name)
	}
	require.NoFileExists(t, file)
	require.Error(t, plot.Bars(filepath.Join(t.TempDir(), "nowhere", "p.svg"), someBars()))
}
