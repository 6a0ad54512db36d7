package loop_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/testkit/rig"
	"github.com/rewardloop/rewardloop/wire"
)

// processAndOutcome are an optional component of weight 0.5 with three steps, whose first is
// the number at the end of the id and which fails for that number without, and an optional
// one of weight 1 and value 2, which fails for that number failing.
func processAndOutcome(t *testing.T, without, failing byte) map[string]*rewards.Manager {
	t.Helper()
	optional := func(key string, weight float64, fails byte, score func(n float64) rewards.Score) rewards.Component {
		return rewards.Component{Key: key, Weight: weight, Scorer: rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			n := s.ID[len(s.ID)-1]
			if n == fails {
				return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
			}
			return score(float64(n - '0')), nil
		})}
	}
	process := optional("process", 0.5, without, func(n float64) rewards.Score {
		return rewards.Score{Value: n + 3.2, Steps: []float64{n, 0.2, 3}}
	})
	process.Steps = true
	return profiles(t, process, optional("outcome", 1, failing, func(float64) rewards.Score { return rewards.Score{Value: 2} }))
}

// Member 1 has its outcome from the group's end, member 2 its process reward, and no steps.
func TestTheStepsOfAChunkSumToItsRewardsAndValidationHasTheSame(t *testing.T) {
	t.Parallel()
	o := rig.Options{
		Workers: 2, Worker: rig.Settings{Places: 2}, Loop: loop.Config{SampleTimeout: time.Minute}, Profiles: processAndOutcome(t, '2', '1'),
	}
	onStage(t, o, func(t *testing.T, s *stage) {
		t.Helper()
		p := s.connect(t, wire.Hello{Run: "run"})
		defer p.drop()
		rows := map[rewards.Split]*wire.Rewards{}
		for _, split := range []rewards.Split{rewards.Train, rewards.Val} {
			s.Manager.Declare(p.session, wire.Step{Step: 1, Split: split, Expected: 4})
			for i := range 4 {
				sample := ofGroup(string(split), i, 4)
				sample.Split = split
				p.send(t, sample)
			}
			rows[split] = s.fetch(t, wire.Fetch{Req: 1, Step: 1, Split: split, WaitMS: 60_000})
		}
		train := rows[rewards.Train]
		require.Len(t, train.Scores, 4)
		for i, want := range [][]float64{{0, 0.1, 3.5}, {0.5, 0.1, 3.5}, {}, {1.5, 0.1, 3.5}} {
			steps := train.StepScores[i]
			require.True(t, train.Valid[i])
			require.InDeltaSlice(t, want, steps, 1e-12)
			if len(steps) > 0 {
				assert.InDelta(t, *train.Scores[i], steps[0]+steps[1]+steps[2], 1e-12)
			}
		}
		assert.InDelta(t, 0.5*(0+1+3+3*3.2)/3+2, *train.Scores[2], 1e-12, "the mean of the others stands in")
		assert.Equal(t, train.Scores, rows[rewards.Val].Scores)
		assert.Equal(t, train.StepScores, rows[rewards.Val].StepScores)
	})
}
