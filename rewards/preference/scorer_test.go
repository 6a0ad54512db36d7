package preference_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/preference"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

func TestAGroupOfOnePromptRunsTheTextTowerOnce(t *testing.T) {
	t.Parallel()
	c := count(onnx.CPU(t, ort.Process))
	dir := folder(t, "tiny-clip")
	specs := preference.Specs(preference.Deps{Nets: c})
	var scorers []rewards.Scorer
	for _, name := range []string{"pickscore", "clipscore", "hpsv2"} { // components of one model share it, too
		s, err := preference.Build(specs, name, object(dir, ""))
		require.NoError(t, err)
		scorers = append(scorers, s)
	}
	var all sync.WaitGroup
	for i := range 16 {
		for _, s := range scorers {
			all.Go(func() {
				_, err := s.Score(t.Context(), sample("a red cube on a table", plain(byte(10*i))))
				assert.NoError(t, err)
			})
		}
	}
	all.Wait()
	assert.Equal(t, 1, c.of("text_model.onnx"))
	assert.Equal(t, 48, c.of("vision_model.onnx"))
}

func TestAGroupOfEditsEncodesItsSourceOnce(t *testing.T) {
	t.Parallel()
	c := count(towers())
	s := scorer(t, c, "image_similarity", object(clipFolder(t), ""))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			_, err := s.Score(t.Context(), sample("", plain(byte(10*i)), plain(200)))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Equal(t, 17, c.of("vision_model.onnx"))
}

func TestOneBadSampleHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	s := scorer(t, onnx.CPU(t, ort.Process), "pickscore", object(folder(t, "tiny-clip"), ""))
	narrow := &rewards.Pixels{Width: 1, Height: 5000, Count: 1, RGB: make([]byte, 15000)}
	undecodable := sample("a")
	m := &rewards.Media{Kind: rewards.Image}
	m.SetDecoder(refuses{})
	undecodable.Media = append(undecodable.Media, m)
	bad := map[string]*rewards.Sample{
		"no picture":   sample("a"),
		"no prompt":    sample("", plain(1)),
		"a long story": sample(strings.Repeat("x", 300<<10), plain(1)),
		"narrow":       sample("a", narrow),
		"undecodable":  undecodable,
	}
	var all sync.WaitGroup
	for name, b := range bad {
		all.Go(func() {
			_, err := s.Score(t.Context(), b)
			assert.Equal(t, rewards.BadInput, rewards.ClassOf(err), "%s: %v", name, err)
			assert.ErrorContains(t, err, `"s1"`, name)
		})
		all.Go(func() {
			_, err := s.Score(t.Context(), sample("a", plain(7)))
			assert.NoError(t, err)
		})
	}
	all.Wait()
}

type refuses struct{}

func (refuses) Decode(context.Context, *rewards.Media) (*rewards.Pixels, error) {
	return nil, fmt.Errorf("%w: no picture", rewards.BadInput)
}

func TestFramesOfAVideoAreWithTheModelTogether(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t)
	synctest.Test(t, func(t *testing.T) {
		n, together := towers(), make(chan struct{})
		var there atomic.Int32
		vision := n["vision_model.onnx"]
		answer := vision.infer
		vision.infer = func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
			if strings.HasPrefix(req.Name, "s1") && there.Add(1) == 5 {
				close(together)
			}
			if strings.HasPrefix(req.Name, "s1") {
				<-together // never, if frames went one after the other
			}
			return answer(ctx, req)
		}
		n["vision_model.onnx"] = vision
		s := scorer(t, n, "hpsv2", object(dir, ""))
		shades := make([]byte, 18) // frames 0, 4, 8, 12, 16
		for i := range shades {
			shades[i] = byte(i * 10)
		}
		got, err := s.Score(t.Context(), sample("a", plain(shades...)))
		require.NoError(t, err)
		require.EqualValues(t, 5, there.Load())
		frames, _ := got.Details["frames"].([]float64)
		require.Len(t, frames, 5)
		want := 0.0
		for _, f := range frames {
			want += f / 5
		}
		assert.InDelta(t, want, got.Value, 1e-12)
		assert.NotEqual(t, frames[0], frames[4])
	})
}

func TestAVideoThatFailsInOneFrameFails(t *testing.T) {
	t.Parallel()
	n := towers()
	vision := n["vision_model.onnx"]
	answer := vision.infer
	vision.infer = func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
		if req.Name == "s1 frame 3" {
			panic("frame")
		}
		return answer(ctx, req)
	}
	n["vision_model.onnx"] = vision
	s := scorer(t, n, "hpsv2", object(clipFolder(t), `"frame_interval": 1`))
	_, err := s.Score(t.Context(), sample("a", plain(1, 2, 3, 4, 5)))
	require.ErrorIs(t, err, rewards.Panicked)
	require.ErrorContains(t, err, "frame 3")
	many := make([]byte, preference.MaxFrames+1)
	px := &rewards.Pixels{Width: 1, Height: 1, Count: len(many), RGB: make([]byte, 3*len(many))}
	_, err = s.Score(t.Context(), sample("a", px))
	require.ErrorIs(t, err, rewards.BadInput)
	require.ErrorContains(t, err, "choose fewer with frames or frame_interval")
}

func TestASampleThatIsCancelledDoesNotTakeTheGroupWithIt(t *testing.T) {
	t.Parallel()
	dir := clipFolder(t)
	synctest.Test(t, func(t *testing.T) {
		n, goOn := towers(), make(chan struct{})
		text := n["text_model.onnx"]
		answer, runs := text.infer, 0
		text.infer = func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
			if !strings.HasPrefix(req.Name, "probe") {
				runs++
				select {
				case <-goOn:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return answer(ctx, req)
		}
		n["text_model.onnx"] = text
		s := scorer(t, n, "pickscore", object(dir, ""))
		require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Score(first, sample("a", plain(1)))
			assert.Equal(t, rewards.Cancelled, rewards.ClassOf(err), "%v", err)
		})
		synctest.Wait()
		for range 3 {
			all.Go(func() {
				_, err := s.Score(t.Context(), sample("a", plain(1)))
				assert.NoError(t, err)
			})
		}
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		all.Go(func() {
			_, err := s.Score(late, sample("a", plain(1)))
			assert.Equal(t, rewards.Timeout, rewards.ClassOf(err))
		})
		synctest.Wait()
		leave()
		time.Sleep(2 * time.Second) // of the bubble's time
		close(goOn)
		all.Wait()
		assert.Equal(t, 1, runs)
	})
}

func TestFailuresOfTheRuntimeHaveTheirClass(t *testing.T) {
	t.Parallel()
	for cause, class := range map[error]rewards.Class{
		infer.ErrCrashed: rewards.Crashed, infer.ErrTimeout: rewards.Timeout, infer.ErrUnavailable: rewards.Unavailable,
		infer.ErrMemory: rewards.Unavailable, infer.ErrFault: rewards.Unavailable, infer.ErrModel: rewards.Internal,
		infer.ErrInput: rewards.Internal, context.DeadlineExceeded: rewards.Timeout,
	} {
		for _, file := range []string{"vision_model.onnx", "text_model.onnx"} {
			n := towers()
			g := n[file]
			answer := g.infer
			g.infer = func(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
				if strings.HasPrefix(req.Name, "probe") {
					return answer(ctx, req)
				}
				return nil, fmt.Errorf("replica 2: %w", cause)
			}
			n[file] = g
			_, err := scorer(t, n, "pickscore", object(clipFolder(t), "")).Score(t.Context(), sample("a", plain(1)))
			require.ErrorIs(t, err, cause)
			assert.Equal(t, class, rewards.ClassOf(err), "%s: %v", file, err)
			require.ErrorContains(t, err, file)
		}
	}
}

func TestAnEmbeddingWithoutLengthIsAFailureAndNotAZero(t *testing.T) {
	t.Parallel()
	n := towers()
	g := n["text_model.onnx"]
	g.infer = func(context.Context, infer.Request) ([]infer.Tensor, error) {
		return []infer.Tensor{infer.Floats("text_embeds", []float32{0, 0}, 2)}, nil
	}
	n["text_model.onnx"] = g
	_, err := scorer(t, n, "hpsv2", object(clipFolder(t), "")).Score(t.Context(), sample("a", plain(1)))
	require.ErrorIs(t, err, rewards.InvalidScore)
	require.ErrorContains(t, err, "length 0")
}

func TestCutTextsAreSaid(t *testing.T) {
	t.Parallel()
	s := scorer(t, towers(), "pickscore", object(clipFolder(t), ""))
	for text, want := range map[string]int64{"a cat": 0, strings.Repeat("a cat ", 200): 1} {
		got, err := s.Score(t.Context(), sample(text, plain(1)))
		require.NoError(t, err)
		assert.Equal(t, want, got.Extra["text_truncated"])
	}
}

func TestEveryDeclaredFieldIsReturned(t *testing.T) {
	t.Parallel()
	nets := onnx.CPU(t, ort.Inline)
	for name, model := range map[string]string{
		"pickscore": "tiny-clip", "clipscore": "tiny-clip-combined", "hpsv2": "tiny-hpsv2", "aesthetic": "tiny-aesthetic",
		"siglip": "tiny-siglip", "image_similarity": "tiny-clip", "text_rm": "tiny-textrm-bert", "onnx": "tiny-graph",
	} {
		s := scorer(t, nets, name, object(folder(t, model), ""))
		require.NoError(t, s.(rewards.Warmer).Warm(t.Context()))
		one := sample("a cat", plain(1), plain(2))
		one.Response = "meow"
		got, err := s.Score(t.Context(), one)
		require.NoError(t, err, name)
		fields := s.(rewards.ExtraFielder).ExtraFields()
		require.Len(t, got.Extra, len(fields), name)
		for _, f := range fields {
			assert.Contains(t, got.Extra, f.Name, name)
		}
		assert.Nil(t, got.Details, name)
	}
}

func TestAnEditNeedsItsReference(t *testing.T) {
	t.Parallel()
	s := scorer(t, towers(), "image_similarity", object(clipFolder(t), `"frame_interval": 1`))
	for _, bad := range []*rewards.Sample{sample(""), sample("", plain(1)), sample("", plain(1, 2, 3), plain(1, 2))} {
		_, err := s.Score(t.Context(), bad)
		require.ErrorIs(t, err, rewards.BadInput)
	}
	got, err := s.Score(t.Context(), sample("", plain(1, 2, 3), plain(1, 2, 3)))
	require.NoError(t, err)
	assert.InDelta(t, 1, got.Value, 1e-12)
	_, err = s.Score(t.Context(), sample("", plain(1, 2, 3), plain(2)))
	require.NoError(t, err)
}

func TestATextRewardModelNeedsItsTexts(t *testing.T) {
	t.Parallel()
	dir := folder(t, "tiny-textrm-bert")
	nets := onnx.CPU(t, ort.Inline)
	s := scorer(t, nets, "text_rm", object(dir, `"template": "{prompt} and {response}"`))
	for name, bad := range map[string]*rewards.Sample{
		"nothing":   {ID: "s1"},
		"no prompt": {ID: "s1", Response: "b"},
		"a picture": sample("a", plain(1)),
	} {
		_, err := s.Score(t.Context(), bad)
		require.ErrorIs(t, err, rewards.BadInput, name)
	}
	ended, err := s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: "a"})
	require.NoError(t, err, "a rollout that ended at once has an empty response")
	told, err := s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: "a", Response: "{prompt}"})
	require.NoError(t, err)
	assert.NotEqual(t, ended.Value, told.Value)
	alone := scorer(t, nets, "text_rm", object(dir, `"template": "{response}"`))
	_, err = alone.Score(t.Context(), &rewards.Sample{ID: "s1", Response: "b"})
	require.NoError(t, err)
}

// TestPairsAreCutTheLongerFirst looks at what BERT is given without a template.
func TestPairsAreCutTheLongerFirst(t *testing.T) {
	t.Parallel()
	from, dir := folder(t, "tiny-textrm-bert"), t.TempDir()
	for _, name := range []string{preference.SidecarFile, "tokenizer.json"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		if name == preference.SidecarFile {
			before, _, _ := strings.Cut(string(data), `"text": {`)
			data = []byte(before + `"text": {"length": 24, "pad_id": 0}}`)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	var mu sync.Mutex
	var seen []infer.Tensor
	n := nets{"model.onnx": net{
		declares([]infer.Port{whole("input_ids"), whole("attention_mask"), whole("token_type_ids")}, []infer.Port{floats("logits", -1, 3)}),
		func(_ context.Context, req infer.Request) ([]infer.Tensor, error) {
			mu.Lock()
			defer mu.Unlock()
			seen = req.Inputs
			return []infer.Tensor{infer.Floats("logits", []float32{1, 2, 3}, 3)}, nil
		},
	}}
	s := scorer(t, n, "text_rm", object(dir, ""))
	got, err := s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: "a b", Response: strings.Repeat("c ", 40)})
	require.NoError(t, err)
	assert.EqualValues(t, 1, got.Extra["text_truncated"])
	assert.EqualValues(t, 24, got.Extra["tokens"])
	ones := 0
	for _, v := range seen[2].I64 {
		ones += int(v)
	}
	assert.Equal(t, 20, ones, "24 less [CLS] a b [SEP]")
	got, err = s.Score(t.Context(), &rewards.Sample{ID: "s1", Prompt: "a b", Response: "c"})
	require.NoError(t, err)
	assert.EqualValues(t, 0, got.Extra["text_truncated"])
	assert.EqualValues(t, 6, got.Extra["tokens"])
	assert.Equal(t, []int64{1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, seen[1].I64)
}
