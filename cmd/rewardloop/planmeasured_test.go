package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measuredSteps reads what make bench-step measured with the real loop: seconds per step
// by "c256/batch" and the like, those of modes that are a step ahead from the middle of
// the run.
func measuredSteps(t *testing.T) map[string]float64 {
	t.Helper()
	text, err := os.ReadFile("../../docs/results/step.json")
	require.NoError(t, err)
	var report struct {
		Rows []struct {
			Row    string
			Value  float64
			Beside map[string]float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &report))
	out := map[string]float64{}
	for _, r := range report.Rows {
		at, row, _ := strings.Cut(r.Row, "/")
		switch row {
		case "batch", "pipeline", "streaming", "streaming_pipeline":
			out[r.Row] = r.Value
		case "published-one_step_off":
			out[at+"/one_step_off"] = r.Value
		case "saved-of-published-baseline":
			out[at+"/both"] = r.Beside["both_steady"]
		}
	}
	return out
}

// The plan knows the distributions, and not what was drawn from them.
func TestThePlanOfTheExperimentIsWithinThreePercentOfWhatTheRealLoopTook(t *testing.T) {
	t.Parallel()
	plan := plannedByTheProgram(t, "--samples", "5120", "--group", "5", "--generation", "53s", "--reward", "uniform:1s,40s",
		"--logprob", "13s", "--update", "100s", "--other", "26s", "--mini-batches", "4", "--concurrency", "256,1024,5120", "--seeds", "3")
	measured := measuredSteps(t)
	compared := 0
	for _, row := range plan.Rows {
		name := fmt.Sprintf("c%d/%s", row.Servers, row.Mode)
		if took, ok := measured[name]; ok {
			assert.InEpsilon(t, took, row.Step, 0.03, name)
			compared++
		}
	}
	assert.Equal(t, 3*5+1, compared, "four modes and both at three concurrencies, and one step off at one")
}
