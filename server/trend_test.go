package server_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/stats"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
)

// column is one of a step with a mean, or without a value.
func column(name string, mean ...float64) stats.ColumnStats {
	c := stats.ColumnStats{Column: name, Count: uint64(len(mean))}
	if len(mean) > 0 {
		std := 0.25
		c.Mean, c.Std, c.Min, c.Max, c.P10, c.P50, c.P90 = &mean[0], &std, &mean[0], &mean[0], &mean[0], &mean[0], &mean[0]
	}
	return c
}

func stepOf(split rewards.Split, n int64, inflight int, columns ...stats.ColumnStats) loop.StepState {
	return loop.StepState{Summary: step.Summary{Split: split, Step: n, InFlight: inflight}, Stats: columns}
}

// pageOf is the page of a server with these steps, the newest first.
func pageOf(t *testing.T, steps ...loop.StepState) string {
	t.Helper()
	p, workers := busyPicture()
	p.runs = []loop.RunState{{Run: "sd3", Outcomes: map[string]uint64{}, Steps: steps}}
	s := newSite(t, siteOptions{server: func(o *server.Options) { o.Loop, o.Presence = p, workers }})
	r := s.get("/?plain", "Accept", "text/html")
	require.Equal(t, http.StatusOK, r.StatusCode)
	return string(r.body)
}

// drawings are the SVGs of a page, each of which is a document of its own.
func drawings(t *testing.T, page string) []string {
	t.Helper()
	parts := strings.Split(page, "<svg ")[1:]
	for i, part := range parts {
		inner, _, found := strings.Cut(part, "</svg>")
		require.True(t, found)
		parts[i] = "<svg " + inner + "</svg>"
		for d := xml.NewDecoder(strings.NewReader(parts[i])); ; {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, parts[i])
		}
	}
	return parts
}

func TestThePageDrawsTheMeansOfTheSteps(t *testing.T) {
	t.Parallel()
	drift, flat := -1.5, 0.0
	latest := column("reward_score", 2)
	latest.Drift, latest.Groups, latest.ZeroStdGroups, latest.MeanGroupStd = &drift, 8, 8, &flat
	page := pageOf(t,
		stepOf("train", 5, 3, column("reward_score", 1000)), // it runs: its first samples say little
		stepOf("train", 4, 0, latest, column("reward/"+hostile, 7)),
		stepOf("val", 4, 2, column("reward_score", 9)),
		stepOf("train", 2, 0, column("reward_score", 4)),
		stepOf("train", 3, 0, column("reward_score")), // all failed
		stepOf("train", 1, 0, column("reward_score", 0)),
	)
	lines := drawings(t, page)
	require.Len(t, lines, 3, "reward of train and val, and a component")
	assert.Contains(t, lines[0], `points="3.0,25.0 60.0,3.0 117.0,14.0"`, "0, 4, 2 from route to route; step 3 has no mean")
	assert.Contains(t, lines[0], `cx="117.0" cy="14.0"`)
	assert.Contains(t, lines[0], "steps 1 to 4: from 0.0000 to 2.0000, between 0.0000 and 4.0000")
	assert.Contains(t, lines[1], "&lt;script&gt;")
	assert.NotContains(t, page, "<script")
	assert.Contains(t, lines[2], `points="117.0,14.0"`, "the one that runs, where there is no other")
	for _, want := range []string{`<td class="n warn">-1.50 σ</td>`, `<td class="n bad">8 / 8</td>`, "1000.0000 <span"} {
		assert.Contains(t, page, want)
	}
	assert.Equal(t, strings.Count(page, "<td"), strings.Count(page, "</td>"))
}

func TestThePageDrawsWhateverTheMeansAre(t *testing.T) {
	t.Parallel()
	page := pageOf(t,
		stepOf("train", 2, 0, column("reward_score", math.MaxFloat64), column("reward/flat", 3), column("reward/none")),
		stepOf("train", 1, 0, column("reward_score", -math.MaxFloat64), column("reward/flat", 3), column("reward/none")),
	)
	lines := drawings(t, page)
	require.Len(t, lines, 2, "none for what has no value")
	assert.Contains(t, lines[0], `points="3.0,25.0 117.0,3.0"`)
	assert.Contains(t, lines[0], "from -1.8e&#43;308 to 1.8e&#43;308", "in few digits")
	assert.Contains(t, lines[1], `points="3.0,14.0 117.0,14.0"`, "the same: in the middle")
	assert.NotContains(t, page, "NaN")
}
