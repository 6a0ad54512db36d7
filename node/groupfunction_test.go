package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/client"
	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// umpire is an engine that compares two responses by what they say of each other: "2|wl.t" is
// participant 2, who beats participant 0, loses to 1 and ties with 3.
func umpire(t *testing.T) string {
	t.Helper()
	pair := regexp.MustCompile(`A=(\d+)\|([wlt.]+) B=(\d+)\|`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(`{"data":[]}`)) // whether it is there
			return
		}
		body, err := io.ReadAll(r.Body)
		m := pair.FindStringSubmatch(string(body))
		if !assert.NoError(t, err) || !assert.NotNil(t, m, "%s", body) {
			return
		}
		var other int
		_, err = fmt.Sscan(m[3], &other)
		assert.NoError(t, err)
		say := map[byte]string{'w': "<result>A</result>", 'l': "<result>B</result>", 't': "<result>tie</result>"}[m[2][other]]
		w.Header().Set("Content-Type", "application/json")
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{
			"id": "1", "object": "chat.completion", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": say}}},
		}))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// standings draws who of n participants beats whom, and writes it into their responses.
func standings(draw *rand.Rand, n int) []string {
	table := make([][]byte, n)
	for i := range table {
		table[i] = []byte(strings.Repeat(".", n))
	}
	flip := map[byte]byte{'w': 'l', 'l': 'w', 't': 't'}
	for i := range n {
		for j := range i {
			table[i][j] = "wwlltt"[draw.IntN(5+draw.IntN(2))]
			table[j][i] = flip[table[i][j]]
		}
	}
	responses := make([]string, n)
	for i, row := range table {
		responses[i] = fmt.Sprintf("%d|%s", i, row)
	}
	return responses
}

// The group function of a trainer and the scorer that ships see the same groups in one gateway, and
// say the same of them: drawn tables with ties, members that fail on the way, training and validation.
func TestThePairwiseManagerOfRMGalleryInPythonGivesTheValuesOfPairwise(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	function(t, "") // skips without Python
	path, err := filepath.Abs("../rewards/python/testdata/rm_pairwise.py")
	require.NoError(t, err)
	methods := []string{"winrate", "copeland", "dgr", "elo", "tournament"}
	overrides := []string{
		"reward.num_workers=8", "pool.python.interpreter=python3", "+engines.one.base_urls=[" + umpire(t) + "/v1]", "+engines.one.model=m",
		"+reward.reward_functions.shaky.path=builtin://shaky", "+reward.reward_functions.shaky.required=true", "+reward.reward_functions.shaky.weight=0",
	}
	for _, m := range methods {
		overrides = append(
			overrides,
			"+reward.reward_functions.mine_"+m+".path="+path, "+reward.reward_functions.mine_"+m+".signature=rm_gallery", "+reward.reward_functions.mine_"+m+".method="+m,
			"+reward.reward_functions.mine_"+m+".reference=extra_info.y.0.content",
			"+reward.reward_functions.ours_"+m+".path=builtin://pairwise", "+reward.reward_functions.ours_"+m+".engine=one", "+reward.reward_functions.ours_"+m+".method="+m,
			"+reward.reward_functions.ours_"+m+".template=A={response_a} B={response_b} end", "+reward.reward_functions.ours_"+m+".reference=extra_info.y.0.content",
		)
	}
	shaky := rewards.Spec{Name: "shaky", Build: func(json.RawMessage) (rewards.Scorer, error) {
		return rewards.ScorerFunc(func(_ context.Context, s *rewards.Sample) (rewards.Score, error) {
			if strings.HasSuffix(s.ID, "bad") {
				return rewards.Score{}, fmt.Errorf("%w: as planned", rewards.BadInput)
			}
			return rewards.Score{Value: 1}, nil
		}), nil
	}}
	_, addr := startWith(t, []rewards.Spec{shaky}, overrides...)
	c, err := client.Dial(t.Context(), client.Config{URL: "ws://" + addr, Run: "tables"})
	require.NoError(t, err)
	defer c.Close()

	draw := rand.New(rand.NewPCG(24, 3)) //nolint:gosec // A test that is the same each time.
	var futures []*client.Future
	for g := range 40 {
		n, split := 2+draw.IntN(5), []rewards.Split{rewards.Train, rewards.Val}[g%2]
		size := n
		if split == rewards.Val {
			n++ // the last one is the reference
		}
		responses := standings(draw, n)
		bad := -1
		if size > 2 && g%3 == 0 {
			bad = draw.IntN(size)
		}
		for i := range size {
			id, uid := fmt.Sprint(g, "-", i), fmt.Sprint("group ", g)
			if i == bad {
				id += "-bad"
			}
			extra := map[string]any{"uid": uid, "id": id}
			if split == rewards.Val {
				extra["y"] = []any{map[string]any{"content": responses[size]}}
			}
			js, err := json.Marshal(extra)
			require.NoError(t, err)
			f, err := c.Submit(t.Context(), &rewards.Sample{ID: id, UID: uid, GroupSize: size, Split: split, Step: 1, Prompt: "which", Response: responses[i], ExtraInfo: js}, 0)
			require.NoError(t, err)
			futures = append(futures, f)
		}
	}
	scored, won := 0, 0
	for _, f := range futures {
		res, err := f.Wait(t.Context())
		require.NoError(t, err)
		if strings.HasSuffix(res.ID, "-bad") {
			assert.Equal(t, rewards.Failed, res.Outcome)
			continue
		}
		require.Equal(t, rewards.Scored, res.Outcome, "%s: %v", res.ID, res.Errors)
		scored++
		for _, m := range methods {
			mine, ours := "reward/mine_"+m, "reward/ours_"+m
			require.NotNil(t, res.ExtraInfo[ours], "%s of %s", m, res.ID)
			assert.InDelta(t, res.ExtraInfo[ours], res.ExtraInfo[mine], 1e-9, "%s of %s", m, res.ID)
			for _, column := range []string{"/win", "/win_and"} {
				assert.Equal(t, res.ExtraInfo[ours+column], res.ExtraInfo[mine+column], "%s of %s", m+column, res.ID)
				if res.ExtraInfo[mine+column] != nil {
					won++
				}
			}
		}
	}
	assert.Greater(t, scored, 100)
	assert.Greater(t, won, 500, "validation is compared with its reference")
}

// groupNode is a node whose only reward is a group function of this text.
func groupNode(t *testing.T, code string, overrides ...string) (book *logbook, c *client.Client) {
	t.Helper()
	cfg, err := config.Load("", append([]string{
		"++server.listen=127.0.0.1:0", "reward.num_workers=4", "pool.python.interpreter=python3",
		"+reward.reward_functions.mine.path=" + function(t, code), "+reward.reward_functions.mine.required=true",
	}, overrides...), nil)
	require.NoError(t, err)
	book = &logbook{}
	n, err := node.New(node.Options{Config: cfg, Log: slog.New(slog.NewTextHandler(book, nil))})
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	t.Cleanup(n.Stop)
	at, err := n.Listen(t.Context())
	require.NoError(t, err)
	c, err = client.Dial(t.Context(), client.Config{URL: "ws://" + at.String(), Run: "groups"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return book, c
}

// group sends a group's first members, of which size were named, and returns their futures.
func group(t *testing.T, c *client.Client, step int64, uid string, size int, deadline time.Duration, responses ...string) (futures []*client.Future) {
	t.Helper()
	for i, r := range responses {
		f, err := c.Submit(t.Context(), &rewards.Sample{ID: fmt.Sprint(uid, "-", i), UID: uid, GroupSize: size, Step: step, Prompt: "which", Response: r}, deadline)
		require.NoError(t, err)
		futures = append(futures, f)
	}
	return futures
}

func ends(t *testing.T, futures []*client.Future) (results []*wire.Result) {
	t.Helper()
	for _, f := range futures {
		results = append(results, waited(t, f))
	}
	return results
}

func TestTheSpreadOfTheStepBeforeReachesAGroupFunctionFromTheSecondStepOn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	_, c := groupNode(t, `
class Spread:
    def score_group(self, samples, last_mean_std):
        return [{"score": float(s.response), "last": last_mean_std} for s in samples]
`, "+reward.reward_functions.mine.name=Spread", "+reward.reward_functions.mine.extra_keys={last: number}")
	require.NoError(t, c.Step(rewards.Train, 1, 4))
	first := append(group(t, c, 1, "a", 2, 0, "0", "2"), group(t, c, 1, "b", 2, 0, "5", "8")...)
	for _, r := range ends(t, first) {
		require.Equal(t, rewards.Scored, r.Outcome, "%v", r.Errors)
		assert.Nil(t, r.ExtraInfo["reward/mine/last"], "%s: there is no step before", r.ID)
	}
	for _, r := range ends(t, group(t, c, 2, "c", 2, 0, "0", "1")) {
		require.Equal(t, rewards.Scored, r.Outcome, "%v", r.Errors)
		assert.InDelta(t, (1+1.5)/2, r.ExtraInfo["reward/mine/last"], 1e-12, "the mean of the standard deviations 1 and 1.5")
	}
}

func TestAGroupFunctionIsToldWhoIsMissingLateAndFailed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	own := function(t, `
import time
def compute_score(solution_str):
    if solution_str == "fail":
        raise ValueError("as planned")
    if solution_str == "late":
        time.sleep(60)
    return 1.0
def optional(solution_str):
    if solution_str == "half":
        raise ConnectionError("nobody there")
    return 2.0
`)
	_, c := groupNode(t, `
class Told:
    def score_group(self, samples, group):
        told = {"size": group.size, "missing": group.missing, "absent": group.absent}
        return [{"score": float(len(samples)), "told": {**told, "values": s.values, "failed": s.failed}} for s in samples]
`, "+reward.reward_functions.mine.name=Told",
		"+reward.reward_functions.alone.path="+own, "+reward.reward_functions.alone.required=true", "+reward.reward_functions.alone.weight=0",
		"+reward.reward_functions.half.path="+own, "+reward.reward_functions.half.name=optional", "+reward.reward_functions.half.weight=0", "+reward.reward_functions.half.on_failure=zero")
	results := ends(t, group(t, c, 1, "g", 5, 8*time.Second, "ok", "half", "fail", "late"))
	for i, r := range results[:2] {
		require.Equal(t, rewards.Scored, r.Outcome, "%v", r.Errors)
		assert.InDelta(t, 2, r.ExtraInfo["reward/mine"], 0)
		details, err := json.Marshal(r.Details["mine"])
		require.NoError(t, err)
		want := `{"told": {"size": 5, "missing": 3, "absent": {"g-2": "failed", "g-3": "late"}, "values": {"alone": 1, "half": 2}, "failed": {}}}`
		if i == 1 {
			want = strings.NewReplacer(`, "half": 2`, "", `"failed": {}`, `"failed": {"half": "unavailable"}`).Replace(want)
		}
		assert.JSONEq(t, want, string(details))
	}
	for _, r := range results[2:] {
		assert.NotEqual(t, rewards.Scored, r.Outcome)
	}
}

func TestAGroupFunctionThatFailsIsToldOnceAndNoOtherGroupSuffers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("SKIPPED: -short: it starts Python")
	}
	book, c := groupNode(t, `
import os, time
def score_group(samples):
    word = samples[0].response
    if word == "raise":
        raise ValueError("no such group")
    if word == "hang":
        time.sleep(3600)
    if word == "crash":
        os._exit(9)
    if word == "few":
        return [1.0]
    return [float("nan") if s.response == "nan" else float(len(s.response)) for s in samples]
`, "+reward.reward_functions.mine.name=score_group", "+reward.reward_functions.mine.timeout=8s", "pool.python.processes=2") // a wait for a process counts; failures more than 10 s apart are told twice
	words := map[string]rewards.Class{"raise": rewards.Internal, "hang": rewards.Timeout, "crash": rewards.Crashed, "few": rewards.InvalidScore}
	bad := map[string][]*client.Future{}
	for word := range words {
		bad[word] = group(t, c, 1, word, 8, time.Minute, word, "b", "c", "d", "e", "f", "g", "h")
	}
	for i := range 20 {
		for _, r := range ends(t, group(t, c, 1, fmt.Sprint("good ", i), 3, time.Minute, "a", "bb", "ccc")) {
			require.Equal(t, rewards.Scored, r.Outcome, "%v", r.Errors)
		}
	}
	for word, class := range words {
		for _, r := range ends(t, bad[word]) {
			assert.Equal(t, rewards.Failed, r.Outcome, word)
			assert.Equal(t, class, r.Errors[len(r.Errors)-1].Class, "%s: %v", word, r.Errors)
		}
	}
	results := ends(t, group(t, c, 1, "one", 3, time.Minute, "a", "nan", "ccc"))
	assert.Equal(t, []rewards.Outcome{rewards.Scored, rewards.Failed, rewards.Scored}, []rewards.Outcome{results[0].Outcome, results[1].Outcome, results[2].Outcome})
	for word := range words {
		assert.Equal(t, 1, strings.Count(book.String(), "sample_id="+word+"-"), "a line for the failure and not for each member:\n%s", book.String())
	}
}
