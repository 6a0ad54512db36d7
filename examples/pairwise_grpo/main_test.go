package main

import (
	"bytes"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a judge and a reward loop that asks it.
func serve(t *testing.T, overrides ...string) (url string, judge *stub) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	judge = new(stub)
	t.Cleanup(serveJudge(l, judge))
	cfg, err := config.Load("cfg.yaml", append([]string{
		"server.listen=127.0.0.1:0", "engines.judge.base_urls=[http://" + l.Addr().String() + "]",
	}, overrides...), nil)
	require.NoError(t, err)
	n, err := node.New(node.Options{Config: cfg})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	addr, err := n.Listen(t.Context())
	require.NoError(t, err)
	return "ws://" + addr.String(), judge
}

// shown are the blocks of the README that show what is printed, in its order.
func shown(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var all []string
	for i, part := range strings.Split(string(page), "```") {
		if i%2 == 1 && strings.HasPrefix(part, "text\nseasons-0 ") {
			all = append(all, strings.TrimPrefix(part, "text\n"))
		}
	}
	return all
}

func TestTheJudgePutsEachGroupInOrderAsTheReadmeShows(t *testing.T) {
	t.Parallel()
	url, judge := serve(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, url, "", "samples.jsonl"))
	assert.Equal(t, shown(t)[0], out.String())
	assert.EqualValues(t, 24, judge.asked.Load(), "two groups of six pairs, in both orders")
}

func TestWithoutAJudgeTheGroupIsRankedByAnotherComponent(t *testing.T) {
	t.Parallel()
	url, judge := serve(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, url, "no_judge", "samples.jsonl"))
	assert.Equal(t, shown(t)[1], out.String())
	assert.Zero(t, judge.asked.Load())
}

// The table of the README: the same answers of the judge under each method.
func TestEachMethodMakesOfTheSameAnswersWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("README.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| `+"`"+`(dgr|copeland|winrate|tournament)`+"`"+` \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		t.Run(row[1], func(t *testing.T) {
			t.Parallel()
			url, _ := serve(t, "reward.reward_functions.better.method="+row[1])
			var out bytes.Buffer
			require.NoError(t, run(t.Context(), &out, url, "", "samples.jsonl"))
			got := regexp.MustCompile(`(?m)^seasons-\d (\S+) `).FindAllStringSubmatch(out.String(), -1)
			require.Len(t, got, 4)
			for i, want := range row[2:] {
				w, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(want), "−", "-"), 64)
				require.NoError(t, err)
				g, err := strconv.ParseFloat(got[i][1], 64)
				require.NoError(t, err)
				assert.InDelta(t, w, g, 5e-4, "seasons-%d", i)
			}
		})
	}
}

// Without debias the judge's habit decides about answers that are equally good.
func TestWithoutDebiasTheOrderDecidesAboutEqualAnswers(t *testing.T) {
	t.Parallel()
	url, judge := serve(t, "reward.reward_functions.better.debias=false")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, url, "", "samples.jsonl"))
	assert.EqualValues(t, 12, judge.asked.Load())
	assert.NotContains(t, out.String(), "nothing to learn from")
	assert.NotContains(t, out.String(), " 1 tied")
}

func TestAJudgeThatIsAwayFailsTheGroupAndScoresNobody(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it takes seconds")
	}
	url, _ := serve(t, "engines.judge.base_urls=[http://127.0.0.1:1]", "+engines.judge.attempts=1", "+reward.reward_functions.better.retries=0", "loop.max_attempts=1", "loop.unavailable_after=2s")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, url, "", "samples.jsonl"))
	assert.Equal(t, 8, strings.Count(out.String(), " failed: "), out.String())
	assert.Equal(t, 2, strings.Count(out.String(), "  group without a score\n"), out.String())
}

func TestTheExampleSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, run(t.Context(), &bytes.Buffer{}, "ws://127.0.0.1:1", "", "nothing.jsonl"), os.ErrNotExist)
}
