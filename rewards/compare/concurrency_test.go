package compare_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
)

// busy is a judge that is asked so many questions at a time.
type busy struct {
	*judge
	n int
}

func (b busy) Concurrency() int        { return b.n }
func (busy) ConcurrencyReason() string { return "busy" }

func TestAComparisonHasAsManyGroupsAsTheirQuestionsLeaveRoomFor(t *testing.T) {
	t.Parallel()
	s := build(t, busy{&judge{verdict: fair}, 256}, "pairwise", `{}`)
	assert.Equal(t, 16, rewards.ConcurrencyOf(s), "16 questions of each, until groups have shown how many")
	for range 200 { // two members: both orders of one pair
		_, err := s.ScoreGroup(t.Context(), group(1, 2))
		require.NoError(t, err)
	}
	assert.Equal(t, 128, rewards.ConcurrencyOf(s))
	assert.Equal(t, "busy, and a call has about 2.0 in flight", rewards.ConcurrencyReason(s))
	s = build(t, busy{&judge{verdict: fair}, 256}, "pairwise", `{"concurrency": 64}`)
	assert.Equal(t, 4, rewards.ConcurrencyOf(s))
}

func TestAListIsOneQuestionInEachOrder(t *testing.T) {
	t.Parallel()
	s := build(t, busy{&judge{verdict: orders}, 256}, "listwise", `{}`)
	_, err := s.ScoreGroup(t.Context(), group(1, 2, 3))
	require.NoError(t, err)
	assert.Equal(t, 128, rewards.ConcurrencyOf(s))
}

func TestAStandingComputesOnTheCPUs(t *testing.T) {
	t.Parallel()
	s := build(t, nil, "rank", `{"of": "ocr"}`)
	_, concurrent := s.(rewards.Concurrent)
	assert.False(t, concurrent)
}
