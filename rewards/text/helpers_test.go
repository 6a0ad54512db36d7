package text_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// required are the options without which a scorer is not made.
func required(name string) string {
	switch name {
	case "regex":
		return `{"pattern": "x"}`
	case "overlong":
		return `{"max_resp_len": 100, "overlong_buffer_len": 20}`
	}
	return "{}"
}

// newScorer makes a scorer by name.
func newScorer(tb testing.TB, name, options string) rewards.Scorer {
	tb.Helper()
	s, err := build(name, options)
	require.NoError(tb, err, "%s %s", name, options)
	return s
}

func build(name, options string) (rewards.Scorer, error) {
	var reg rewards.Registry
	for _, s := range text.Specs() {
		reg.Register(s)
	}
	return reg.Build(name, json.RawMessage(options))
}

// sample is a text rollout. The truth and the extra information are JSON.
func sample(response, truth, extra string) *rewards.Sample {
	s := &rewards.Sample{ID: "s", Prompt: "p", Response: response}
	if truth != "" {
		s.GroundTruth = json.RawMessage(truth)
	}
	if extra != "" {
		s.ExtraInfo = json.RawMessage(extra)
	}
	return s
}

// quoted is a text as JSON.
func quoted(tb testing.TB, s string) string {
	tb.Helper()
	b, err := json.Marshal(s)
	require.NoError(tb, err)
	return string(b)
}
