package python_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// formed are the options of a function of testdata/trainers.py in a trainer's form.
func formed(name, signature string, kwargs map[string]any) map[string]any {
	return map[string]any{"path": "testdata/trainers.py", "name": name, "signature": signature, "kwargs": kwargs}
}

// rows is a group whose members have these responses, with the ground truth b and an extra_info.
func rows(extra string, responses ...string) *rewards.Group {
	g := answers(responses...)
	for _, m := range g.Members {
		m.Sample.GroundTruth, m.Sample.ExtraInfo = json.RawMessage(`"b"`), json.RawMessage(extra)
	}
	return g
}

// said is what a function makes of a group.
func said(t *testing.T, f rewards.GroupScorer, g *rewards.Group) []rewards.MemberScore {
	t.Helper()
	got, err := scoreGroup(t, f, g, time.Minute)
	require.NoError(t, err)
	return got
}

func TestAFunctionOfTRLIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(formed("reward_exact", "trl", nil)))
		g := rows("", "a", "b", "b")
		g.Members[2].Sample.GroundTruth = nil
		got := said(t, f, g)
		assert.Equal(t, []float64{0, 1}, valuesOf(t, got[:2]))
		var skip *rewards.SkipError
		require.ErrorAs(t, got[2].Err, &skip, "None: the function is not for this sample")

		f = groupFunction(t, python.Config{}, place(formed("reward_chat", "trl", nil)))
		got = said(t, f, rows(`{"prompt": [{"role": "user", "content": "why?"}], "level": 2}`, "a", "bbb"))
		assert.Equal(t, []float64{2 + 7, 6 + 7}, valuesOf(t, got))
		assert.Equal(t, map[string]any{"asked": "why?"}, got[1].Score.Extra)
		assert.Equal(t, map[string]any{"length": json.Number("2.0")}, got[0].Score.Details["metrics"])
		_, err := scoreGroup(t, f, rows(`{"prompt": [{"role": "user", "content": "why?"}]}`, "a"), time.Minute)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, "the function needs level, which no sample's extra_info has")

		f = groupFunction(t, python.Config{}, place(formed("reward_later", "trl", nil)))
		assert.Equal(t, []float64{1, 3}, valuesOf(t, said(t, f, rows("", "a", "bbb"))))
	})
}

func TestAFunctionOfSlimeIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(formed("group_rm", "slime", map[string]any{"scale": 2})))
		assert.Equal(t, []float64{-2, 2}, valuesOf(t, said(t, f, rows("", "a", "bbb"))))
		f = groupFunction(t, python.Config{}, place(formed("group_rm", "slime", nil)))
		_, err := scoreGroup(t, f, rows("", "a", "bbb"), time.Minute)
		require.ErrorContains(t, err, "has no attribute 'scale'", "an argument of slime that its entry lacks has its name")

		f = groupFunction(t, python.Config{}, place(formed("single_rm", "slime", map[string]any{"reward_key": "acc"})))
		got := said(t, f, rows(`{"tag": "x"}`, "b", "raise", "cc"))
		assert.Equal(t, []float64{1}, valuesOf(t, got[:1]))
		assert.Equal(t, map[string]any{"acc": 1.0, "long": 1.0, "tag": "x"}, floats(got[0].Score.Extra))
		assert.Equal(t, rewards.Internal, rewards.ClassOf(got[1].Err), "a sample that raises fails alone")
		assert.InDelta(t, 0, got[2].Score.Value, 0)
	})
}

// floats are values with every number a float64.
func floats(in map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range in {
		if n, ok := v.(int64); ok {
			v = float64(n)
		}
		out[k] = v
	}
	return out
}

func TestAnORMOfMSSwiftIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(formed("Cosine", "ms_swift", map[string]any{"bonus": 0.5})))
		got := said(t, f, rows("", "b", "skip", "c"))
		assert.InDelta(t, 1+0.5+7+5, got[0].Score.Value, 1e-12)
		var skip *rewards.SkipError
		require.ErrorAs(t, got[1].Err, &skip)
		assert.InDelta(t, 0.5+7+5, got[2].Score.Value, 1e-12)
		f = groupFunction(t, python.Config{}, place(formed("Later", "ms_swift", nil)))
		assert.Equal(t, []float64{1, 3}, valuesOf(t, said(t, f, rows("", "a", "bbb"))))
	})
}

func TestAFunctionOfOpenRLHFIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(formed("reward_func", "openrlhf", nil)))
		got := said(t, f, rows("", "b", "ccc"))
		assert.Equal(t, []float64{0.5, -0.5}, valuesOf(t, got))
		assert.Equal(t, map[string]any{"scores": 0.0, "lengths": 8.0, "step": 3.0}, floats(got[1].Score.Extra))
	})
}

func TestARewardFunctionOfOpenJudgeIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		for name, weight := range map[string]float64{"Judge": 1, "compute_score_async": 2} {
			f := groupFunction(t, python.Config{}, place(formed(name, "openjudge", nil)))
			got := said(t, f, rows(`{"chat_date": "today"}`, "one", "one two"))
			assert.Equal(t, []float64{weight, 2 * weight}, valuesOf(t, got))
			assert.Equal(t, map[string]any{"words_score": 2.0}, floats(got[1].Score.Extra))
			assert.Equal(t, map[string]any{"date": "today"}, got[1].Score.Details["details"])
		}
		f := groupFunction(t, python.Config{}, place(formed("Lossy", "openjudge", nil)))
		_, err := scoreGroup(t, f, rows("", "a", "b"), time.Minute)
		assert.Equal(t, rewards.InvalidScore, rewards.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, "returned 1 results for 2 samples; want one for each original_index")
	})
}

func TestARewardOfDDPOIsCalledUnchanged(t *testing.T) {
	t.Parallel()
	needs(t, "numpy")
	brightnessOfDDPO(t, "numpy", "")
	f := groupFunction(t, python.Config{}, formed("wrong_factory", "ddpo", nil))
	require.ErrorContains(t, f.(rewards.Warmer).Warm(t.Context()), "wrong_factory() returned a int; want a function of (images, prompts, metadata)")
}

func TestPymodelsARewardOfDDPOGetsTensors(t *testing.T) {
	t.Parallel()
	brightnessOfDDPO(t, "torch", torchPython(t))
}

// brightnessOfDDPO holds that a reward of DDPO's form gets pixels of a module, everywhere, in that
// interpreter; "": the usual one.
func brightnessOfDDPO(t *testing.T, module, interpreter string) {
	t.Helper()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		t.Helper()
		opts := place(formed("brightness", "ddpo", nil))
		opts["pixels"] = module
		if interpreter != "" {
			opts["interpreter"] = interpreter
		}
		f := groupFunction(t, python.Config{}, opts)
		g := rows(`{"tag": "x"}`, "", "")
		for i, m := range g.Members {
			m.Sample.Media = []*rewards.Media{flat(byte(51 * (i + 1)))}
		}
		got := said(t, f, g)
		for i, score := range valuesOf(t, got) {
			assert.InDelta(t, 0.2*float64(i+1), score, 1e-6)
		}
		assert.Equal(t, map[string]any{"long": 5.0, "tags": "x"}, floats(got[1].Score.Extra))
		g.Members[1].Sample.Media = nil
		_, err := scoreGroup(t, f, g, time.Minute)
		assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), "%v", err)
		require.ErrorContains(t, err, "the function needs images, and sample 's1' has none")
	})
}

// flat is a picture of 4 × 6 pixels of one brightness.
func flat(brightness byte) *rewards.Media {
	data := make([]byte, 3*4*6)
	for i := range data {
		data[i] = brightness
	}
	return &rewards.Media{Kind: rewards.Image, Layout: rewards.CHW, Encoding: rewards.Raw, DType: "U8", Shape: []int{3, 4, 6}, Data: data}
}

func TestBothFormsOfRMGalleryAreCalledUnchanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, place func(map[string]any) map[string]any) {
		f := groupFunction(t, python.Config{}, place(formed("rm_gallery", "rm_gallery", nil)))
		g := rows(`{"x": 1}`, "a", "bbb")
		got := said(t, f, g)
		assert.Equal(t, []float64{1, 3}, valuesOf(t, got))
		assert.Equal(t, map[string]any{"reward_length": 3.0, "last": -1.0, "prompt": "which"}, floats(got[1].Score.Extra), "in the first step nobody has said last_mean_std")
		std := 0.125
		g.LastMeanStd = &std
		assert.InDelta(t, 0.125, said(t, f, g)[1].Score.Extra["last"], 0)

		f = groupFunction(t, python.Config{}, place(formed("dgr", "rm_gallery", nil)))
		g = rows("", "a", "bbb")
		for _, m := range g.Members {
			m.Sample.GroundTruth = json.RawMessage(`{"chosen": "bbb"}`)
		}
		got = said(t, f, g)
		assert.Equal(t, []float64{1, 4}, valuesOf(t, got))
		assert.Equal(t, map[string]any{"mode": "pairwise_dgr", "n_responses": 2.0}, floats(got[1].Score.Extra))
		assert.Len(t, got[0].Score.Details["comparisons"], 3, "what is no column is told of the first member")
		assert.Empty(t, got[1].Score.Details["comparisons"])
	})
}

// batched makes a function that gets batches, as no group is needed for it.
func batched(t *testing.T, opts map[string]any) rewards.Scorer {
	t.Helper()
	opts["placement"] = map[string]any{"batch": true, "devices": []string{"cpu"}}
	var reg rewards.Registry
	reg.Register(python.NewFunctions(python.Config{Interpreter: interpreter(t)}, newDevices(t, pool.Config{})).Spec())
	raw, err := json.Marshal(opts)
	require.NoError(t, err)
	s, err := reg.Build("python", raw)
	require.NoError(t, err)
	_, err = reg.BuildGroup("python", raw)
	require.ErrorContains(t, err, "scores single samples")
	return s
}

func TestATrainersFunctionTakesBatchesWhereItsEntrySaysSo(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts map[string]any
		want float64 // of the response "b" with the ground truth "b" and the prompt "which"
	}{
		"trl":       {formed("reward_exact", "trl", nil), 1},
		"async":     {formed("reward_later", "trl", nil), 1},
		"slime":     {formed("single_rm", "slime", map[string]any{"reward_key": "long"}), 1},
		"ms_swift":  {formed("Cosine", "ms_swift", map[string]any{"bonus": 0.5}), 1 + 0.5 + 5},
		"openrlhf":  {formed("reward_func", "openrlhf", nil), 0.5},
		"openjudge": {formed("Judge", "openjudge", nil), 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := batched(t, tt.opts)
			require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					truth := json.RawMessage(`"b"`)
					got, err := score(t, s, &rewards.Sample{ID: fmt.Sprint(i), Prompt: "which", Response: "b", GroundTruth: truth})
					if assert.NoError(t, err) {
						assert.InDelta(t, tt.want, got.Value, 1e-12)
					}
				})
			}
			all.Wait()
		})
	}
	t.Run("a sample that TRL's function is not for is skipped", func(t *testing.T) {
		t.Parallel()
		_, err := score(t, batched(t, formed("reward_exact", "trl", nil)), &rewards.Sample{ID: "x", Response: "b"})
		var skip *rewards.SkipError
		require.ErrorAs(t, err, &skip)
	})
}

func TestATrainersFunctionOfBatchesIsTriedWithATextAtTheStart(t *testing.T) {
	t.Parallel()
	s := batched(t, formed("reward_later", "trl", nil))
	require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
	tried := s.(rewards.Knower).TryKnown(t.Context(), time.Minute)
	require.Len(t, tried, 1)
	assert.Equal(t, "text", tried[0].Kind)
	require.NoError(t, tried[0].Err)
}
