package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/outbound"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/remote"
	"github.com/rewardloop/rewardloop/rewards/standard"
	"github.com/rewardloop/rewardloop/rewards/text"
)

// composePage is docs/compose.md.
func composePage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "compose.md"))
	require.NoError(t, err)
	return string(page)
}

// yamlBlocks are the configurations of a page, by the heading that each stands below.
func yamlBlocks(t *testing.T, page string) map[string]string {
	t.Helper()
	blocks, heading, open := map[string]string{}, "", false
	for line := range strings.Lines(page) {
		switch {
		case open && strings.HasPrefix(line, "```"):
			open = false
		case open:
			blocks[heading] += line
		case strings.HasPrefix(line, "```yaml"):
			open = true
			require.NotContains(t, blocks, heading, "one configuration below each heading")
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	require.False(t, open)
	return blocks
}

// rater answers every question of a judge with what it says.
type rater func(question string) (string, error)

func (r rater) Chat(_ context.Context, q *chat.Request) (*chat.Reply, error) {
	text, err := r(fmt.Sprint(q.Messages[len(q.Messages)-1]))
	if err != nil {
		return nil, err
	}
	reply := &chat.Reply{Text: text, FinishReason: "stop"}
	if q.Accept != nil {
		if err := q.Accept(*reply); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// noGroup stands for services that nobody asks.
type noGroup struct{}

func (noGroup) Upstream([]string, remote.UpstreamOptions) (outbound.Doer, error) { return nil, nil } //nolint:nilnil // nobody asks it

// shipped is the registry of what ships; r is the judge of every engine.
func shipped(r rater) *rewards.Registry {
	var reg rewards.Registry
	standard.Register(&reg, standard.Deps{
		Judges:    judge.Deps{Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return r, nil })},
		Upstreams: noGroup{},
	})
	return &reg
}

// Every configuration of the page is one that the server would start with.
func TestEveryConfigurationOfTheComposePageIsValid(t *testing.T) {
	t.Parallel()
	blocks := yamlBlocks(t, composePage(t))
	require.GreaterOrEqual(t, len(blocks), 6)
	for heading, text := range blocks {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "my_reward.py"), []byte("def compute_score(extra_info):\n    return 1.0\n"), 0o600))
			cfg, err := config.Parse(filepath.Join(dir, "compose.yaml"), []byte(text), nil, nil)
			require.NoError(t, err)
			if strings.Contains(text, "python3") || strings.Contains(text, ".py") {
				if _, err := exec.LookPath("python3"); err != nil || runtime.GOOS != "linux" {
					t.Skipf("SKIPPED: no verify tools or functions in Python without Linux and python3 on PATH: %v", err)
				}
			}
			managers, err := config.BuildManagers(cfg, shipped(nil))
			require.NoError(t, err)
			for _, m := range managers {
				require.NoError(t, m.Close())
			}
		})
	}
}

// galleryManager builds the worked example of the page.
func galleryManager(t *testing.T, reg *rewards.Registry) *rewards.Manager {
	t.Helper()
	block := yamlBlocks(t, composePage(t))["A worked sum"]
	require.NotEmpty(t, block)
	managers, err := config.BuildManagers(parse(t, block), reg)
	require.NoError(t, err)
	m := managers[config.DefaultProfile]
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	return m
}

const gallery = "reward/"

// gallerySamples are those of the page: one that is as it should be, one that rambles.
func gallerySamples() (good, rambling *rewards.Sample) {
	good = &rewards.Sample{ID: "good", Prompt: "What is 2 + 2?", Response: "<think>2 and 2 are 4.</think><answer>4</answer>"}
	return good, &rewards.Sample{ID: "rambling", Prompt: "What is 2 + 2?", Response: strings.Repeat("go ", 350)}
}

func TestTheWorkedSumOfTheComposePageIsWhatThePageSays(t *testing.T) {
	t.Parallel()
	m := galleryManager(t, shipped(func(question string) (string, error) {
		if strings.Contains(question, strings.Repeat("go ", 9)) {
			return "It never answers. <score>4</score>", nil
		}
		return "Right and short. <score>10</score>", nil
	}))
	good, rambling := gallerySamples()

	res := m.Run(t.Context(), good).Result
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	assert.InDelta(t, 0.95*1+0.05*1+0+0, res.Score, 1e-12)

	res = m.Run(t.Context(), rambling).Result
	require.Equal(t, rewards.Scored, res.Outcome, res.Errors)
	const (
		rubric = (4.0 - 1) / (10 - 1)            // on the scale of 1 to 10
		length = -0.01 * 50                      // 1,050 characters, 1,000 are free
		rate   = 1 - 1.0/346                     // 350 words have 346 fives, all the same
		ngram  = -1 * (rate - 0.1) / (1.0 - 0.1) // from min_scaling to max_penalty
		sum    = 0.95*rubric + 0.05*0 + length + ngram
	)
	assert.InDelta(t, rubric, res.Extra[gallery+"rubric"], 1e-12)
	assert.InDelta(t, 0, res.Extra[gallery+"format"], 0)
	assert.InDelta(t, length, res.Extra[gallery+"length"], 1e-12)
	assert.InDelta(t, ngram, res.Extra[gallery+"ngram"], 1e-12)
	assert.InDelta(t, sum, res.Score, 1e-12)
	row := fmt.Sprintf("| rambling | %.4f | 0 | %.4f | %.4f | %.4f |", rubric, length, ngram, sum)
	assert.Contains(t, composePage(t), strings.ReplaceAll(row, "-", "−"))
}

// A judge that is away is a failure; so is the number that RM-Gallery has in its place.
// Neither is added to the format.
func TestAnHTTPFailureOfTheWorkedSumFailsTheSampleAndIsNotItsScore(t *testing.T) {
	t.Parallel()
	good, _ := gallerySamples()
	synctest.Test(t, func(t *testing.T) {
		m := galleryManager(t, shipped(func(string) (string, error) {
			time.Sleep(time.Second) // the others have answered by then
			return "", fmt.Errorf("%w: %w", rewards.Unavailable, errors.New("status 500"))
		}))
		res := m.Run(t.Context(), good).Result
		require.Equal(t, rewards.Failed, res.Outcome)
		assert.Zero(t, res.Score)
		assert.Nil(t, res.Extra[gallery+"combined"])
		assert.InDelta(t, 1, res.Extra[gallery+"format"], 0, "what did succeed is still reported")
		require.NotEmpty(t, res.Errors)
		assert.Equal(t, "rubric", res.Errors[0].Component)
		assert.Equal(t, rewards.Unavailable, res.Errors[0].Class)
	})

	var reg rewards.Registry
	for _, s := range text.Specs() {
		reg.Register(s)
	}
	reg.Register(rewards.Spec{Name: "rubric", Build: func(json.RawMessage) (rewards.Scorer, error) {
		return rewards.ScorerFunc(func(context.Context, *rewards.Sample) (rewards.Score, error) { return rewards.Score{Value: -999}, nil }), nil
	}})
	res := galleryManager(t, &reg).Run(t.Context(), good).Result
	require.Equal(t, rewards.Failed, res.Outcome)
	assert.Nil(t, res.Extra[gallery+"combined"])
	assert.Equal(t, rewards.InvalidScore, res.Errors[0].Class)
	assert.Contains(t, res.Errors[0].Message, "-999")
}
