package judge_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestTheBlameForAJudgesAnswerIsByTheTable(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	const rate = `{"template": "?"}`
	for _, tt := range []struct {
		event           string
		scorer, options string
		serve           http.HandlerFunc
		class           rewards.Class
		blame           rewards.Blame
		permanent       bool
	}{
		{"no score in an answer", "judge", rate, answer(200, says("fine")), rewards.InvalidScore, rewards.BlameReward, false},
		{"a score of NaN", "judge", rate, answer(200, says("<score>NaN</score>")), rewards.InvalidScore, rewards.BlameReward, false},
		{"an answer that is not the JSON it should be", "judge", `{"template": "?", "json": "score"}`, answer(200, says(`{"score": `)), rewards.InvalidScore, rewards.BlameReward, false},
		{"an answer without text", "judge", rate, answer(200, `{"choices": [{"message": {"content": null}}]}`), rewards.InvalidScore, rewards.BlameReward, false},
		{"no score of a classifier", "disrm", `{}`, answer(200, `{"data": [{"probs": [null]}]}`), rewards.InvalidScore, rewards.BlameReward, false},
		{"an answer that is no chat completion", "judge", rate, answer(200, "<html>"), rewards.Unavailable, rewards.BlameDependency, false},
		{"an answer that is no classification", "disrm", `{}`, answer(200, "<html>"), rewards.Unavailable, rewards.BlameDependency, false},
		{"a capability that the engine lacks: log probabilities", "vqascore", `{}`, answer(200, says("Yes")), rewards.Internal, rewards.BlameDependency, true},
		{"unknown model", "judge", rate, answer(404, `{"message": "the model m does not exist"}`), rewards.Internal, rewards.BlameDependency, true},
		{"401", "judge", rate, answer(401, ""), rewards.Internal, rewards.BlameDependency, true},
		{"400 of a service", "judge", rate, answer(400, "cannot identify image file"), rewards.BadInput, rewards.BlameSample, false},
		{"429", "judge", rate, answer(429, ""), rewards.Unavailable, rewards.BlameDependency, false},
		{"5xx", "judge", rate, answer(503, ""), rewards.Unavailable, rewards.BlameDependency, false},
		{"the engine hangs past the component's timeout", "judge", rate, hang, rewards.Timeout, rewards.BlameDependency, false},
		{"the classifier hangs past the component's timeout", "disrm", `{}`, hang, rewards.Timeout, rewards.BlameDependency, false},
		{"no target", "genrm_ocr", `{}`, hang, rewards.BadInput, rewards.BlameSample, false},
	} {
		t.Run(tt.event, func(t *testing.T) {
			t.Parallel()
			m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{
				Key: "k", Weight: 1, Timeout: 200 * time.Millisecond, Scorer: build(t, throughGroup(t, tt.serve, outbound.UpstreamConfig{}), tt.scorer, tt.options),
			}}})
			require.NoError(t, err)
			s := video(1)
			s.Response = "2"
			if tt.event == "no target" {
				s.GroundTruth = nil
			}
			r := m.Run(t.Context(), s)
			<-r.Done()
			require.Len(t, r.Result.Errors, 1)
			f := r.Result.Errors[0]
			assert.Equal(t, tt.class, f.Class, f.Message)
			assert.Equal(t, tt.blame, f.Blame, f.Message)
			assert.Equal(t, tt.permanent, f.Permanent, f.Message)
		})
	}
}
