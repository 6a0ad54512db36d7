package vlm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/hftok"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/judge"
	"github.com/rewardloop/rewardloop/rewards/ocr"
	"github.com/rewardloop/rewardloop/rewards/vlm"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

var _ chat.Chatter = (*vlm.Judge)(nil)

// saying is tiny-idefics3 with networks that say a text to every prompt.
func saying(tb testing.TB, text string) (*vlm.Judge, *scripted) {
	tb.Helper()
	folder := tiny(tb, "tiny-idefics3")
	tok, err := hftok.Load(folder + "/tokenizer.json")
	require.NoError(tb, err)
	ids, err := tok.Encode(text, false)
	require.NoError(tb, err)
	nets := &scripted{vocabulary: tok.Size(), tokens: 16, says: func([]int64) []int64 { return ids }}
	return judgeOf(tb, nets, folder), nets
}

// request is a question about pictures.
func request(text string, pngs ...[]byte) *chat.Request {
	var parts []chat.Part
	for _, p := range pngs {
		parts = append(parts, chat.Part{Image: p, MIME: "image/png"})
	}
	return &chat.Request{Messages: []chat.Message{{Role: chat.User, Parts: append(parts, chat.Text(text))}}, Temperature: new(float64)}
}

// TestGoldenAChatIsAnsweredAsTransformersGenerates holds text, tokens and probabilities.
func TestGoldenAChatIsAnsweredAsTransformersGenerates(t *testing.T) {
	t.Parallel()
	for _, name := range tinies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder, folders := tiny(t, name), settings{}
			registry := judges(t, onnx.CPU(t, ort.Inline))
			for _, c := range readGolden(t, folder).Cases {
				j, err := registry.Judge(folders.asked(t, c, folder))
				require.NoError(t, err)
				r := &chat.Request{MaxTokens: 16, Logprobs: true, TopLogprobs: 20}
				next := 0
				for _, m := range c.Messages {
					msg := chat.Message{Role: m.Role}
					for _, p := range m.Content {
						if p.Type != "image" {
							msg.Parts = append(msg.Parts, chat.Text(p.Text))
							continue
						}
						msg.Parts = append(msg.Parts, chat.Part{Image: encoded(t, c.Images[next]), MIME: "image/png"})
						next++
					}
					r.Messages = append(r.Messages, msg)
				}
				accepted := 0
				r.Accept = func(reply chat.Reply) error {
					accepted++
					require.Equal(t, c.GreedyText, reply.Text)
					return nil
				}
				reply, err := j.Chat(t.Context(), r)
				require.NoError(t, err, c.Name)
				assert.Equal(t, 1, accepted)
				assert.Equal(t, c.GreedyText, reply.Text, c.Name)
				assert.Equal(t, map[bool]string{true: "stop", false: "length"}[c.GreedyStopped], reply.FinishReason, c.Name)
				assert.Equal(t, chat.Usage{PromptTokens: int64(len(c.InputIDs)), CompletionTokens: int64(len(c.Greedy))}, reply.Usage, c.Name)
				require.Len(t, reply.Logprobs, len(c.Greedy))
				checkTop(t, floats(t, folder+"/"+c.LastLogits.File), reply.Logprobs[0])
				for i, tok := range reply.Logprobs {
					assert.InDelta(t, c.GreedyLogprobs[i], tok.Logprob, 1e-3, c.Name)
					assert.Len(t, tok.Top, 20)
					assert.InDelta(t, tok.Logprob, tok.Top[0].Logprob, 1e-6, "greedy takes the likeliest")
				}
			}
		})
	}
}

// checkTop compares the likeliest first tokens with logits.
func checkTop(t *testing.T, logits []float32, got chat.Token) {
	t.Helper()
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	for k, alternative := range got.Top {
		largest := 0
		for i, v := range logits {
			if v > logits[largest] {
				largest = i
			}
		}
		assert.InDelta(t, float64(logits[largest])-math.Log(sum), alternative.Logprob, 1e-3, "place %d", k)
		logits[largest] = float32(math.Inf(-1))
	}
}

func TestWhatALocalJudgeDoesNotDoIsRefusedByName(t *testing.T) {
	t.Parallel()
	j, nets := saying(t, "Yes")
	half := 0.5
	r := &chat.Request{
		Temperature: &half, ResponseFormat: &chat.Schema{}, Extra: map[string]any{"best_of": 3, "top_k": 1}, Model: "gpt",
		MaxTokens: -1, TopLogprobs: 3, Messages: []chat.Message{{Role: "tool"}},
	}
	_, err := j.Chat(t.Context(), r)
	require.Equal(t, rewards.Internal, rewards.ClassOf(err))
	for _, want := range []string{"temperature: 0.5", "response_format", "extra_body: unknown parameters best_of, top_k", `model: "gpt"`, "max_tokens: -1", "top_logprobs", `role "tool"`, "no parts"} {
		require.ErrorContains(t, err, want)
	}
	_, err = j.Chat(t.Context(), &chat.Request{})
	require.ErrorContains(t, err, "the request has no messages")
	_, err = j.Chat(t.Context(), request("x", make([][]byte, 385)...))
	require.NoError(t, err, "nil pictures are texts")
	many := make([][]byte, 385)
	for i := range many {
		many[i] = []byte{1}
	}
	_, err = j.Chat(t.Context(), request("x", many...))
	require.ErrorContains(t, err, "385 pictures, want at most 384")
	require.Zero(t, nets.looked())

	blind, err := vlm.NewJudges(vlm.Deps{Nets: nets}).Judge(vlm.Options{Model: tiny(t, "tiny-idefics3")})
	require.NoError(t, err)
	_, err = blind.Chat(t.Context(), request("x", dot(t, 1)))
	require.ErrorContains(t, err, "the process has no decoder")
}

func TestOnlyTheSampleIsAtFaultForAPictureThatNobodyCanDecode(t *testing.T) {
	t.Parallel()
	j, _ := saying(t, "Yes")
	for what, parts := range map[string]chat.Part{
		"garbage":      {Image: []byte("no picture"), MIME: "image/png"},
		"empty":        {Image: []byte{}, MIME: "image/png"},
		"another type": {Image: dot(t, 1), MIME: "image/gif"},
		"another name": {Image: dot(t, 1), MIME: "image/jpeg"},
	} {
		_, err := j.Chat(t.Context(), &chat.Request{Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{parts}}}})
		require.Equal(t, rewards.BadInput, rewards.ClassOf(err), what)
		require.ErrorContains(t, err, "message 0, part 0", what)
	}
	_, err := j.Chat(t.Context(), request("bad \xff bytes"))
	require.Equal(t, rewards.BadInput, rewards.ClassOf(err))
}

func TestAQuestionBeyondTheContextIsRefusedBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	nets := &scripted{vocabulary: 746, tokens: 16, says: func([]int64) []int64 { return nil }}
	j := judgeOf(t, nets, variant(t, folder, map[string][]byte{
		"config.json": edited(t, folder, map[string]any{"text_config.max_position_embeddings": 100}),
	}))
	_, err := j.Chat(t.Context(), request("What?", dot(t, 1)))
	require.NoError(t, err, "the answer is as long as there is room for")
	require.Equal(t, 1, nets.looked())
	for _, r := range []*chat.Request{request(strings.Repeat("word ", 100), dot(t, 1)), request(strings.Repeat("x", 2<<20))} {
		_, err = j.Chat(t.Context(), r)
		require.Equal(t, rewards.BadInput, rewards.ClassOf(err))
	}
	_, err = j.Chat(t.Context(), request("x", slices.Repeat([][]byte{dot(t, 1)}, 7)...))
	require.ErrorContains(t, err, "7 pictures need 112 tokens, but the model has a context of 100")
	require.Equal(t, 1, nets.looked(), "no picture was encoded for it")
	r := request("What?")
	r.MaxTokens = 90
	_, err = j.Chat(t.Context(), r)
	require.ErrorContains(t, err, "its answer up to 90")
}

// TestAReplyThatWasRefusedIsNotComputedAgain, for the model would say nothing else.
func TestAReplyThatWasRefusedIsNotComputedAgain(t *testing.T) {
	t.Parallel()
	j, nets := saying(t, "Perhaps.")
	accepts := 0
	r := request("Yes or no?", dot(t, 7))
	r.Accept = func(reply chat.Reply) error {
		accepts++
		require.Equal(t, "Perhaps.", reply.Text)
		require.Equal(t, accepts > 1, reply.Cached)
		return errors.New("neither yes nor no")
	}
	for r.Attempt = range 3 {
		_, err := j.Chat(t.Context(), r)
		require.ErrorContains(t, err, "neither yes nor no")
	}
	require.Equal(t, 3, accepts)
	require.Equal(t, 1, nets.looked())
	other := request("Yes or no?", dot(t, 8)) // another picture is another question
	other.Attempt = 1
	reply, err := j.Chat(t.Context(), other)
	require.NoError(t, err)
	require.False(t, reply.Cached)
	require.Equal(t, 2, nets.looked())
}

// deps wires the scorers of rewards/judge to a judge.
func deps(j *vlm.Judge) judge.Deps {
	return judge.Deps{Clients: chat.ClientsFunc(func(chat.Endpoint) (chat.Chatter, error) { return j, nil })}
}

func judged(tb testing.TB, j *vlm.Judge, name, options string, s *rewards.Sample) (rewards.Score, error) {
	tb.Helper()
	var reg rewards.Registry
	for _, spec := range judge.Specs(deps(j)) {
		reg.Register(spec)
	}
	sc, err := reg.Build(name, json.RawMessage(options))
	require.NoError(tb, err)
	return sc.Score(tb.Context(), s)
}

func sample(px *rewards.Pixels) *rewards.Sample {
	return &rewards.Sample{ID: "s1", Prompt: "a red car", GroundTruth: json.RawMessage(`"open"`), Media: []*rewards.Media{shown(px)}}
}

func TestTheScorersThatAskEnginesWorkThroughALocalJudge(t *testing.T) {
	t.Parallel()
	j, _ := saying(t, "Alignment Score (1-5): 4\nCoherence Score (1-5): 5\nStyle Score (1-5): 3")
	got, err := judged(t, j, "unified_reward", `{}`, sample(grey(32, 16, 1)))
	require.NoError(t, err)
	assert.InDelta(t, 0.75, got.Value, 1e-12)
	assert.InDelta(t, 5, got.Extra["coherence"], 1e-12)

	j, _ = saying(t, "Final Score: 4")
	got, err = judged(t, j, "unified_reward", `{"version": "1.5"}`, sample(grey(32, 16, 1)))
	require.NoError(t, err)
	assert.InDelta(t, 0.8, got.Value, 1e-12)

	j, nets := saying(t, " Yes")
	got, err = judged(t, j, "vlm_yes_no", `{"canonicalize": true}`, sample(grey(32, 16, 1)))
	require.NoError(t, err)
	assert.InDelta(t, 1/(1+math.Exp(-1.5)/0.5), got.Value, 1e-6, "the token before Yes is No")
	assert.InDelta(t, 0.5+math.Exp(-1.5), got.Extra["mass"], 1e-6)
	assert.Equal(t, 20, nets.asked()[len(nets.asked())-1].Generate.Top)

	j, _ = saying(t, " open")
	got, err = judged(t, j, "genrm_ocr", `{"temperature": 0}`, sample(grey(32, 16, 1)))
	require.NoError(t, err)
	assert.InDelta(t, 1, got.Value, 1e-12)
	_, err = judged(t, j, "genrm_ocr", `{}`, sample(grey(32, 16, 1)))
	require.ErrorContains(t, err, "set temperature: 0", "verl-omni's default is drawn at random")

	_, err = judged(t, j, "unified_reward", `{}`, sample(grey(32, 16, 1)))
	require.Equal(t, rewards.InvalidScore, rewards.ClassOf(err), "what cannot be read is no score of 0")
}

// TestGoldenTheScorersThatAskEnginesWorkWithARealModel, of whose random answers little
// can be read: either way it is said which.
func TestGoldenTheScorersThatAskEnginesWorkWithARealModel(t *testing.T) {
	t.Parallel()
	folder := tiny(t, "tiny-idefics3")
	j := judgeOf(t, onnx.CPU(t, ort.Inline), folder)
	s := sample(decoded(t, "img_05_301x200.png"))
	_, err := judged(t, j, "unified_reward", `{"max_tokens": 8, "answer_retries": 2}`, s)
	require.Equal(t, rewards.InvalidScore, rewards.ClassOf(err))
	require.ErrorContains(t, err, "after asking 3 times")
	_, err = judged(t, j, "vlm_yes_no", `{}`, s)
	require.Equal(t, rewards.InvalidScore, rewards.ClassOf(err))
	got, err := judged(t, j, "genrm_ocr", `{"temperature": 0, "max_tokens": 8}`, s)
	require.NoError(t, err)
	assert.True(t, got.Value >= 0 && got.Value <= 1)

	options, err := ocr.Preset(ocr.FlowGRPO)
	require.NoError(t, err)
	reader, err := ocr.New(j, options)
	require.NoError(t, err)
	s.GroundTruth = json.RawMessage(`"a sign \"open\""`)
	got, err = reader.Score(t.Context(), s)
	require.NoError(t, err)
	assert.True(t, got.Value >= 0 && got.Value <= 1)
}

func TestALineThatIsReadHasTheConfidenceOfTheAnswer(t *testing.T) {
	t.Parallel()
	j, nets := saying(t, "open all day\n\n  the sign ")
	lines, err := j.ReadText(t.Context(), grey(32, 16, 1, 2), 1)
	require.NoError(t, err)
	require.Len(t, lines, 2)
	for i, text := range []string{"open all day", "the sign"} {
		assert.Equal(t, text, lines[i].Text)
		assert.InDelta(t, 0.5, lines[i].Confidence, 1e-6)
		assert.Equal(t, [4]int{0, 0, 32, 16}, lines[i].Box)
	}
	features, ok := nets.asked()[len(nets.asked())-1].Input(infer.ImageFeatures)
	require.True(t, ok)
	assert.InDelta(t, 2, features.F32[0], 0, "the second frame is read")

	j, _ = saying(t, "")
	lines, err = j.ReadText(t.Context(), grey(32, 16, 1), 0)
	require.NoError(t, err)
	require.Empty(t, lines, "a picture without text is no fault")

	for _, frame := range []int{-1, 1} {
		_, err = j.ReadText(t.Context(), grey(32, 16, 1), frame)
		require.Equal(t, rewards.Internal, rewards.ClassOf(err))
	}
	_, err = j.ReadText(t.Context(), &rewards.Pixels{Width: 9, Height: 9, Count: 1}, 0)
	require.Equal(t, rewards.Internal, rewards.ClassOf(err))
}

// A device gone wrong answers with NaN. What it says is not read as a picture without
// text, and not as an answer.
func TestAnAnswerWithoutProbabilitiesIsNoAnswer(t *testing.T) {
	t.Parallel()
	j, nets := saying(t, "open")
	nets.sick = true
	_, err := j.ReadText(t.Context(), grey(32, 16, 1), 0)
	require.Equal(t, rewards.InvalidScore, rewards.ClassOf(err))
	require.ErrorContains(t, err, "log probability of token 0 of the answer is NaN")
}

func TestNobodyWaitsForAJudgeLongerThanItsCallerDoes(t *testing.T) {
	t.Parallel()
	j, nets := saying(t, "Yes")
	require.NoError(t, j.Warm(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	nets.before = func(ctx context.Context, _ infer.Model, _ infer.Request) error {
		cancel()
		<-ctx.Done()
		return fmt.Errorf("waiting: %w", ctx.Err())
	}
	_, err := j.Chat(ctx, request("x", dot(t, 1)))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, rewards.Cancelled, rewards.ClassOf(err))
	_, err = j.Chat(ctx, request("x"))
	require.ErrorContains(t, err, "before asking")
	nets.before = func(context.Context, infer.Model, infer.Request) error { panic("a bug") }
	_, err = j.Chat(t.Context(), request("x", dot(t, 1), dot(t, 2)))
	require.Equal(t, rewards.Panicked, rewards.ClassOf(err))
}
