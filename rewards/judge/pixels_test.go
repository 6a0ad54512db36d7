package judge_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/media"
	"github.com/rewardloop/rewardloop/rewards"
)

func TestAQuestionThatWaitsForItsEngineKeepsNobodyFromDecoding(t *testing.T) {
	t.Parallel()
	const side, frames = 64, 8
	decoder, err := media.New(media.Config{BudgetBytes: frames * side * side * 3})
	require.NoError(t, err)
	planes := func() *rewards.Media {
		m := &rewards.Media{
			Kind: rewards.Video, Encoding: rewards.Raw, DType: "U8", Layout: rewards.TCHW, Shape: []int{frames, 3, side, side},
			Data: make([]byte, frames*side*side*3),
		}
		m.SetDecoder(decoder)
		return m
	}
	asked := 0
	sc := build(t, by(func(ctx context.Context, r *chat.Request) (*chat.Reply, error) {
		asked++
		other := planes() // another sample's, meanwhile
		px, giveBack, err := other.Borrow(ctx)
		if err != nil {
			return nil, err
		}
		assert.Equal(t, frames, px.Count)
		giveBack()
		other.Forget()
		reply := chat.Reply{Text: `{"score": 4}`}
		return &reply, r.Accept(reply)
	}), "judge", `{"template": "?", "json": "score"}`)
	s := video(1)
	s.Media = []*rewards.Media{planes()}
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{{Key: "k", Weight: 1, Required: true, Scorer: sc}}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	run := m.Run(ctx, s)
	<-run.Done()
	assert.Equal(t, rewards.Scored, run.Result.Outcome, "%v", run.Result.Errors)
	assert.Positive(t, asked)
	assert.Zero(t, decoder.Booked())
}
