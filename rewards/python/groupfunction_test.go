package python_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// built makes a function by the registry, as the configuration does: its Functions, and what spec
// says of it.
func built(tb testing.TB, cfg python.Config, opts map[string]any) (rewards.GroupScorer, error) {
	tb.Helper()
	cfg.Interpreter = interpreter(tb)
	if cfg.Processes == 0 {
		cfg.Processes = 1
	}
	var reg rewards.Registry
	reg.Register(python.NewFunctions(cfg, newDevices(tb, pool.Config{})).Spec())
	raw, err := json.Marshal(opts)
	require.NoError(tb, err)
	g, err := reg.BuildGroup("python", raw)
	if c, ok := g.(rewards.Closer); ok && err == nil {
		tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	}
	return g, err
}

// groupFunction is built with a function that is right.
func groupFunction(tb testing.TB, cfg python.Config, opts map[string]any) rewards.GroupScorer {
	tb.Helper()
	g, err := built(tb, cfg, opts)
	require.NoError(tb, err)
	return g
}

// own are the options of a class or function of testdata/groups.py in this project's form.
func own(name string) map[string]any {
	return map[string]any{"path": "testdata/groups.py", "name": name, "signature": "score_group"}
}

// on says that it runs on a device.
func on(opts map[string]any) map[string]any {
	opts["placement"] = map[string]any{"devices": []string{"cpu"}}
	return opts
}

// everywhere runs a test of a function in processes of its own, and of the same on a device.
func everywhere(t *testing.T, test func(t *testing.T, place func(map[string]any) map[string]any)) {
	t.Helper()
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		test(t, func(opts map[string]any) map[string]any { return opts })
	})
	t.Run("device", func(t *testing.T) {
		t.Parallel()
		test(t, on)
	})
}

// answers is a group whose members gave these responses.
func answers(responses ...string) *rewards.Group {
	g := &rewards.Group{UID: "g", Run: "r", Step: 7, Split: rewards.Train, Size: len(responses)}
	for i, r := range responses {
		index := int64(i)
		g.Members = append(g.Members, rewards.Member{Sample: &rewards.Sample{
			ID: "s" + strconv.Itoa(i), Run: "r", UID: "g", Index: &index, GroupSize: len(responses), Step: 7, Prompt: "which", Response: r,
		}})
	}
	return g
}

func TestAGroupFunctionIsToldOfItsMembersAndItsGroup(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		for _, name := range []string{"Told", "Waits"} {
			opts := place(own(name))
			opts["kwargs"] = map[string]any{"base": 0.5, "step": 1}
			f := groupFunction(t, python.Config{}, opts)
			require.NoError(t, f.(rewards.Warmer).Warm(t.Context()))
			g := answers("1", "2")
			g.Size, g.Missing, g.Absent = 5, 3, map[string]string{"late one": rewards.AbsentLate, "bad one": rewards.AbsentFailed}
			std := 0.25
			g.LastMeanStd = &std
			g.Members[0].Values = map[string]float64{"other": 3.5}
			g.Members[1].Failed = map[string]rewards.Class{"other": rewards.Timeout}
			got, err := scoreGroup(t, f, g, time.Minute)
			require.NoError(t, err)
			assert.Equal(t, []float64{2.5, 3.5}, valuesOf(t, got))
			first, second := got[0].Score, got[1].Score
			assert.Equal(t, map[string]any{"uid": "g", "index": int64(0), "other": 3.5}, first.Extra)
			assert.Nil(t, second.Extra["other"])
			assert.Equal(t, "group g 2\n", first.Details["printed"])
			told, err := json.Marshal(second.Details["told"])
			require.NoError(t, err)
			assert.JSONEq(t, `{"failed": {"other": "timeout"}, "size": 5, "missing": 3, "absent": {"late one": "late", "bad one": "failed"},
				"run": "r", "split": "train", "step": 7, "last_mean_std": 0.25, "same": 0.25, "samples": ["s0", "s1"], "references": []}`, string(told))
			got, err = scoreGroup(t, f, answers("1", "2"), time.Minute)
			require.NoError(t, err)
			assert.Nil(t, got[0].Score.Details["told"].(map[string]any)["last_mean_std"], "there was no step before")
		}
	})
}

func TestAGroupThatRaisesHangsOrDiesFailsAsOneAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		opts := place(own("Does"))
		if opts["placement"] != nil {
			opts["timeout"] = int64(500 * time.Millisecond)
		}
		f := groupFunction(t, python.Config{}, opts)
		require.NoError(t, f.(rewards.Warmer).Warm(t.Context()))
		tests := []struct {
			first string
			class rewards.Class
			says  string
		}{
			{"raise", rewards.Internal, "groups.py:Does: ValueError: no such group"},
			{"unprintable", rewards.Internal, "Unprintable: (its text raised ZeroDivisionError)"},
			{"hang", rewards.Timeout, ""},
			{"crash", rewards.Crashed, ""},
			{"exit", rewards.Panicked, "sys.exit(3)"},
			{"few", rewards.InvalidScore, "score_group returned 1 scores for 2 samples; want one for each"},
			{"float", rewards.InvalidScore, "score_group returned a float for 2 samples"},
		}
		for _, tt := range tests {
			limit := time.Minute
			if tt.first == "hang" {
				limit = 500 * time.Millisecond
			}
			_, err := scoreGroup(t, f, answers(tt.first, "0"), limit)
			require.Error(t, err, tt.first)
			assert.Equal(t, tt.class, rewards.ClassOf(err), "%s: %v", tt.first, err)
			blame, _ := rewards.BlameOf(err)
			assert.Equal(t, rewards.BlameReward, blame, "%s: %v", tt.first, err)
			require.ErrorContains(t, err, tt.says)
			got, err := scoreGroup(t, f, answers("1", "2"), time.Minute)
			require.NoError(t, err, "after %s", tt.first)
			assert.Equal(t, []float64{1, 2}, valuesOf(t, got))
		}
	})
}

func TestAMemberWithoutAScoreFailsAlone(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(own("Does")))
		got, err := scoreGroup(t, f, answers("1", "nan", "none", "inf", "text", "exception", "bad", "2"), time.Minute)
		require.NoError(t, err)
		for i, says := range []string{"", "the score is nan", "returned None", "the score is inf", "the score is a str", "KeyError: 'mine'", "the score is a str", ""} {
			if says == "" {
				require.NoError(t, got[i].Err, "member %d", i)
				continue
			}
			want := rewards.InvalidScore
			if i == 5 {
				want = rewards.Internal
			}
			assert.Equal(t, want, rewards.ClassOf(got[i].Err), "member %d: %v", i, got[i].Err)
			require.ErrorContains(t, got[i].Err, says, "member %d", i)
		}
	})
}

func TestAnAnswerThatIsTooLongIsNoScore(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(own("Does")))
		got, err := scoreGroup(t, f, answers("huge", "0"), time.Minute)
		require.NoError(t, err)
		for _, one := range got {
			assert.Equal(t, rewards.InvalidScore, rewards.ClassOf(one.Err), "%v", one.Err)
		}
		got, err = scoreGroup(t, f, answers("1", "2"), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []float64{1, 2}, valuesOf(t, got))
	})
}

func TestTheReferenceOfValidationIsComparedAndItsScoreDropped(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		opts := place(own("Rubrics"))
		opts["reference"] = "extra_info.y.0.content"
		f := groupFunction(t, python.Config{}, opts)
		g := answers("3 3", "4 1", "2 2", "1 1", "nonsense")
		got, err := scoreGroup(t, f, answers("3 3"), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"win": nil, "win_and": nil}, got[0].Score.Extra, "in training nobody is compared")

		g.Split = rewards.Val
		_, err = scoreGroup(t, f, g, time.Minute)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, `has no text at extra_info.y.0.content`)

		g = answers("3 3", "4 1", "2 2", "1 1", "1 2 3")
		g.Split, g.Members[1].Sample.ExtraInfo = rewards.Val, json.RawMessage(`{"y": [{"content": "2 2"}]}`)
		got, err = scoreGroup(t, f, g, time.Minute)
		require.NoError(t, err)
		require.Len(t, got, 5)
		for i, want := range [][2]any{{1.0, 1.0}, {1.0, 0.0}, {0.0, 1.0}, {0.0, 0.0}, {nil, nil}} {
			require.NoError(t, got[i].Err)
			assert.Equal(t, map[string]any{"win": want[0], "win_and": want[1]}, got[i].Score.Extra, "member %d", i)
		}
		fields := groupFunction(t, python.Config{}, map[string]any{
			"path": "testdata/groups.py", "name": "Rubrics", "signature": "score_group", "reference": "ground_truth", "extra_keys": map[string]string{"x": "number"},
		}).(rewards.ExtraFielder).ExtraFields()
		assert.Len(t, fields, 3)
	})
}

func TestPicturesReachAGroupAndABrokenOneFailsItsMemberAlone(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(own("Shows")))
		g := answers("", "", "")
		for i, m := range g.Members {
			data := make([]byte, 3*4*6)
			for at := range data {
				data[at] = byte(10 * (i + 1))
			}
			m.Sample.Media = []*rewards.Media{{Kind: rewards.Image, Layout: rewards.CHW, Encoding: rewards.Raw, DType: "U8", Shape: []int{3, 4, 6}, Data: data}}
		}
		g.Members[1].Sample.Media[0] = &rewards.Media{Kind: rewards.Image, Encoding: "png", Data: []byte("no picture")}
		got, err := scoreGroup(t, f, g, time.Minute)
		require.NoError(t, err)
		require.Error(t, got[1].Err)
		assert.InDelta(t, 10, got[0].Score.Value, 1e-9)
		assert.InDelta(t, 30, got[2].Score.Value, 1e-9, "%v", got[2].Err)
	})
}

func TestACancelledGroupFreesItsPlace(t *testing.T) {
	t.Parallel()
	f := groupFunction(t, python.Config{CancelGrace: 2 * time.Second}, own("AwaitsAndDoes"))
	require.NoError(t, f.(rewards.Warmer).Warm(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := f.ScoreGroup(ctx, answers("wait", "0"))
		ended <- err
	}()
	running := func() int { return f.(*python.GroupFunction).Stats().Running }
	require.Eventually(t, func() bool { return running() == 1 }, 10*time.Second, time.Millisecond)
	cancel()
	assert.Equal(t, rewards.Cancelled, rewards.ClassOf(<-ended))
	require.Eventually(t, func() bool { return running() == 0 }, 10*time.Second, time.Millisecond)
	got, err := scoreGroup(t, f, answers("1", "2"), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []float64{1, 2}, valuesOf(t, got))
	assert.Zero(t, f.(*python.GroupFunction).Stats().Restarts)
}

func TestWhatCannotBeCalledWithGroupsIsRefusedByName(t *testing.T) {
	t.Parallel()
	spec := python.NewFunctions(python.Config{Interpreter: interpreter(t)}, nil).Spec()
	const trainers = "testdata/trainers.py"
	for i, tt := range []struct {
		path, name, signature, says string
	}{
		{"testdata/groups.py", "Without", "score_group", "a class without score_group; signature: score_group calls a function, or the score_group of a class"},
		{"testdata/groups.py", "math", "score_group", "a module"},
		{"testdata/groups.py", "Needy", "score_group", "the constructor of Needy needs checkpoint"},
		{"testdata/groups.py", "Needy", "score_group", "it needs temperature, which nobody gives; signature: score_group gives samples, group, last_mean_std"},
		{trainers, "reward_by_ids", "trl", "it needs completion_ids: the server has text and no token ids"},
		{trainers, "Tokens", "ms_swift", "it needs response_token_ids"},
		{trainers, "reward_func", "trl", "it needs"},
		{trainers, "reward_exact", "rm_gallery", "it needs completions"},
		{trainers, "brightness", "slime", "it takes (); signature: slime calls it with (args, samples)"},
		{trainers, "reward_func", "rm_gallery", "it needs labels, prompts, queries"},
		{trainers, "Judge", "slime", "a class without __call__"},
		{trainers, "wrong_factory", "openrlhf", "it takes ()"},
	} {
		raw, err := json.Marshal(map[string]any{"path": tt.path, "name": tt.name, "signature": tt.signature})
		require.NoError(t, err)
		sig, err := spec.Inspect(t.Context(), raw, false)
		found := fmt.Sprint(err, sig.Faults)
		if tt.signature == "trl" && tt.name == "reward_func" { // its parameters might be columns
			assert.Empty(t, sig.Faults)
			continue
		}
		assert.Contains(t, found, tt.says, "case %d", i)
	}
	raw, err := json.Marshal(map[string]any{"path": "testdata/groups.py", "name": "Does"})
	require.NoError(t, err)
	_, err = spec.Inspect(t.Context(), raw, false)
	require.ErrorContains(t, err, "Does.score_group scores whole prompt groups: write signature: score_group", "in a module its name does not show")
	s := scorer(t, python.Config{}, python.Options{Path: "testdata/groups.py", Name: "Does"})
	require.ErrorContains(t, s.(rewards.Warmer).Warm(t.Context()), "write signature: score_group")
	f := groupFunction(t, python.Config{}, map[string]any{"path": trainers, "name": "Tokens", "signature": "ms_swift"})
	err = f.(rewards.Warmer).Warm(t.Context())
	require.ErrorContains(t, err, "it needs response_token_ids", "also where nobody has inspected it")
	for options, says := range map[string]string{
		`{"signature": "verl"}`: `signature "verl", want one of score_group, rm_gallery, openjudge, trl, slime, ms_swift, openrlhf, ddpo`,
		`{"signature": "score_group", "placement": {"batch": true}}`:                      "signature: score_group needs whole prompt groups",
		`{"signature": "trl", "reference": "prompt"}`:                                     `reference: "prompt" is not a path`,
		`{"reference": "ground_truth"}`:                                                   "reference is for functions of whole prompt groups",
		`{"signature": "trl", "reference": "ground_truth", "placement": {"batch": true}}`: "reference is for functions of whole prompt groups",
	} {
		var opts python.Options
		require.NoError(t, json.Unmarshal([]byte(options), &opts))
		opts.Path = trainers
		require.ErrorContains(t, opts.WithDefaults().Validate(), says)
	}
}

// Groups of an async function share a process. One ends it, one blocks its event loop, and the others have
// their scores all the same.
func TestGroupsThatShareAProcessWithOneThatEndsItAreScored(t *testing.T) {
	t.Parallel()
	f := groupFunction(t, python.Config{StallTimeout: time.Second}, own("AwaitsAndDoes"))
	require.NoError(t, f.(rewards.Warmer).Warm(t.Context()))
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			first := map[int]string{5: "crash", 15: "hang"}[i]
			got, err := scoreGroup(t, f, answers(cmp.Or(first, strconv.Itoa(i)), "2"), time.Minute)
			if first != "" {
				assert.Equal(t, map[string]rewards.Class{"crash": rewards.Crashed, "hang": rewards.Timeout}[first], rewards.ClassOf(err), "%v", err)
				return
			}
			if assert.NoError(t, err) {
				assert.InDelta(t, float64(i), got[0].Score.Value, 0)
			}
		})
	}
	all.Wait()
}

func TestAGroupThatIsTooLargeFailsAndNoOtherDoes(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(own("score_group")))
		_, err := scoreGroup(t, f, answers(strings.Repeat("x", 17<<20), "b"), time.Minute)
		assert.Equal(t, rewards.TooLarge, rewards.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, "limits are")
		got, err := scoreGroup(t, f, answers("a", "bb"), time.Minute)
		require.NoError(t, err)
		assert.Equal(t, []float64{1, 2}, valuesOf(t, got))
	})
}

// Validation often has one response to each prompt: it is held against the reference alone.
func TestASampleWithoutAGroupIsHeldAgainstItsReference(t *testing.T) {
	t.Parallel()
	opts := own("Rubrics")
	opts["reference"] = "ground_truth"
	m, err := rewards.NewManager(rewards.ManagerConfig{Components: []rewards.Component{
		{Key: "mine", Weight: 1, Required: true, Group: groupFunction(t, python.Config{}, opts), MinMembers: 1, Timeout: time.Minute},
	}})
	require.NoError(t, err)
	require.NoError(t, m.Warm(t.Context()))
	for response, win := range map[string]float64{"3 3": 1, "1 1": 0} {
		run := m.Run(t.Context(), &rewards.Sample{ID: "one", Split: rewards.Val, Response: response, GroundTruth: json.RawMessage(`"2 2"`)})
		require.Equal(t, rewards.Scored, run.Result.Outcome, "%+v", run.Result.Errors)
		assert.InDelta(t, win, run.Result.Extra["reward/mine/win"], 0)
		<-run.Done()
	}
}

// A function that takes ** or args gets the keys of its entry, and the key of the reward router only by its name.
func TestTheKeyOfTheRouterIsHandedOnByItsNameAlone(t *testing.T) {
	t.Parallel()
	kwargs := map[string]any{"scale": 2, "reward_router_api_key": "sesame", "reward_router_address": "here:1"}
	for name, want := range map[string][]float64{"everything": {0, 2}, "named": {1, 0}, "args": {0, 2}} {
		signature := "score_group"
		if name == "args" {
			signature = "slime"
		}
		f := groupFunction(t, python.Config{}, map[string]any{"path": "testdata/groups.py", "name": "router_" + name, "signature": signature, "kwargs": kwargs})
		assert.Equal(t, want, valuesOf(t, said(t, f, answers("a", "b"))), name)
	}
}

func BenchmarkAGroupOfSixteen(b *testing.B) {
	for place, at := range map[string]func(map[string]any) map[string]any{"processes": func(o map[string]any) map[string]any { return o }, "device": on} {
		b.Run(place, func(b *testing.B) {
			f := groupFunction(b, python.Config{}, at(own("score_group")))
			require.NoError(b, f.(rewards.Warmer).Warm(b.Context()))
			g := answers("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p")
			for b.Loop() {
				if _, err := f.ScoreGroup(b.Context(), g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
