package text_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// Whatever is written and whatever is right, every scorer answers with a finite
// number or with bad input, and twice the same.
func FuzzScorers(f *testing.F) {
	f.Add("#### 7", `"7"`, `{"response_length": 99}`)
	f.Add("<think>x</think><answer>\\boxed{A}</answer>", `{"target": ["A"]}`, `{"options": "{}"}`)
	f.Add("<think></think><tool_call>{\"name\": 1, \"arguments\": []}</tool_call>", `"a"`, "")
	f.Add("Answer: $\\frac12$", `"\\frac{1}{2}"`, "{")
	f.Add("\\boxed \xff", `""`, `null`)
	var scorers []rewards.Scorer
	for _, spec := range text.Specs() {
		scorers = append(scorers, newScorer(f, spec.Name, required(spec.Name)))
	}
	scorers = append(scorers, newScorer(f, "format", `{"form": "tool_call"}`), newScorer(f, "mmk12", `{"values": "equal_text"}`),
		newScorer(f, "math_dapo", `{"strict_box_verify": true}`), newScorer(f, "f1", `{"mode": "squad", "tokenizer_type": "chars"}`))
	f.Fuzz(func(t *testing.T, response, truth, extra string) {
		for _, scorer := range scorers {
			s := sample(response, truth, extra)
			got, err := scorer.Score(t.Context(), s)
			again, _ := scorer.Score(t.Context(), s)
			require.Equal(t, got, again)
			if err != nil {
				require.ErrorIs(t, err, rewards.BadInput)
				continue
			}
			require.False(t, math.IsNaN(got.Value) || math.IsInf(got.Value, 0))
			_, err = json.Marshal(got)
			assert.NoError(t, err)
		}
	})
}
