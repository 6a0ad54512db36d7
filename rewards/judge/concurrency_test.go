package judge_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
)

// busy is an engine that is asked so many questions at a time.
type busy struct {
	chatterFunc
	n int
}

func (b busy) Concurrency() int        { return b.n }
func (busy) ConcurrencyReason() string { return "busy" }

func askedAtATime(n int, answer string) judge.Deps {
	b := busy{func(context.Context, *chat.Request) (*chat.Reply, error) { return &chat.Reply{Text: answer}, nil }, n}
	return judge.Deps{Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return b, nil })}
}

func TestAJudgeHasAsManySamplesAsItsEngineHasQuestions(t *testing.T) {
	t.Parallel()
	sc := build(t, askedAtATime(256, "<score>1</score>"), "judge", `{"template": "{response}"}`)
	for range 100 {
		_, err := sc.Score(t.Context(), said("2"))
		require.NoError(t, err)
	}
	assert.Equal(t, 256, rewards.ConcurrencyOf(sc))
	assert.Equal(t, "busy", rewards.ConcurrencyReason(sc))
}

func TestAJudgeThatAsksAboutEachFrameHasFewerSamples(t *testing.T) {
	t.Parallel()
	sc := build(t, askedAtATime(256, "5"), "genrm_ocr", `{}`)
	assert.Equal(t, 256, rewards.ConcurrencyOf(sc), "before any sample was seen")
	_, err := sc.Score(t.Context(), video(40)) // every fourth frame
	require.NoError(t, err)
	assert.Equal(t, 26, rewards.ConcurrencyOf(sc), "10 questions each")
	assert.Equal(t, "busy, and a call has about 10.0 in flight", rewards.ConcurrencyReason(sc))
}

func TestARubricIsAQuestionOfItsOwn(t *testing.T) {
	t.Parallel()
	sc := build(t, askedAtATime(256, "5"), "rubric", `{"rubrics": [{"name": "a", "text": "a"}, {"name": "b", "text": "b"}, {"name": "c", "text": "c"}]}`)
	assert.Equal(t, 86, rewards.ConcurrencyOf(sc), "three questions each, before any sample was seen")
}
