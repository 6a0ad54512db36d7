//go:build cgo

package ort_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
	"github.com/rewardloop/rewardloop/pool/ort"
	"github.com/rewardloop/rewardloop/testkit/onnx"
)

// openLanguage opens a decoder of testdata/language in this process.
func openLanguage(tb testing.TB, decoder string) *ort.Language {
	tb.Helper()
	l, err := ort.OpenLanguage(ort.SessionConfig{Library: onnx.Library(tb), Model: language(decoder)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, l.Close()) })
	return l
}

func TestADeadlineEndsALanguageModelInTheMiddle(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	eitherWay(t, func(t *testing.T, d *device) {
		t.Helper()
		m := language("slow")
		_, err := d.Load(t.Context(), m)
		require.NoError(t, err)
		c := flat[0]
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			began := time.Now()
			_, err = d.Run(ctx, m, batchOf(t, c.request(infer.Generate{MaxNew: 8000}))) // for minutes
			cancel()
			require.ErrorIs(t, err, infer.ErrTimeout)
			require.Less(t, time.Since(began), 20*time.Second)
			requireSaid(t, c, 2, 2, 0, say(t, d, m, c.request(infer.Generate{MaxNew: 2, Top: 3}))[0])
		}
		require.Zero(t, d.opener.Stats()["cpu"].Timeouts, "the process ended the run by itself")
	})
	l := openLanguage(t, "slow")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err := l.Run(ctx, batchOf(t, flat[0].request(infer.Generate{MaxNew: 8000})))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, infer.ErrTimeout)
	_, err = l.Run(ctx, batchOf(t, flat[0].request(infer.Generate{MaxNew: 1})))
	require.ErrorIs(t, err, context.Canceled)
}

func TestAProcessThatDiesInTheMiddleOfAnAnswerIsReplacedAndTheAnswerGivenByAnother(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		d := openCPU(t, ort.Config{})
		m := language("slow")
		_, err := d.Load(t.Context(), m)
		require.NoError(t, err)
		wait := signalling(t, d, sig, 1)
		requireSaid(t, flat[0], 12, 12, 0, say(t, d, m, flat[0].request(infer.Generate{MaxNew: 12, Top: 3}))[0])
		wait()
		require.Equal(t, uint64(1), d.opener.Stats()["cpu"].Crashes)
	}
}

func TestLogitsThatAreNoNumbersAreAFault(t *testing.T) {
	t.Parallel()
	l := openLanguage(t, "flat")
	bad := spoken{IDs: []int64{1, poison, 3}}
	for _, g := range []infer.Generate{{Keep: 1}, {Keep: 3, Pick: []int64{0}}, {MaxNew: 3}} {
		_, err := l.Run(t.Context(), batchOf(t, bad.request(g)))
		require.ErrorIs(t, err, infer.ErrFault)
		require.ErrorContains(t, err, "the logit of token 0 is NaN after 3 tokens")
	}
	// Positions that nobody asked about may be anything.
	_, err := l.Run(t.Context(), batchOf(t, spoken{IDs: []int64{1, 2, 3}}.request(infer.Generate{Keep: 1})))
	require.NoError(t, err)
}

func TestMemoryBeyondTheBoundSplitsABatchAndRefusesAnItem(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations() {
		d := openCPU(t, ort.Config{Isolation: isolation, Language: ort.LanguageLimits{Memory: 1 << 20}})
		long := func(tokens int) infer.Request {
			ids := make([]int64, tokens)
			pos := make([]int64, tokens)
			return infer.Request{Inputs: []infer.Tensor{int64s("input_ids", ids, tokens), int64s("position_ids", pos, tokens)}, Generate: &infer.Generate{Keep: 1}}
		}
		// 4·(2·2·2·4 of the cache + 8 + 16) bytes a token.
		for range 3 { // no reason to load the model again
			_, err := d.Run(t.Context(), language("flat"), batchOf(t, long(3000), long(3000)))
			require.ErrorIs(t, err, infer.ErrMemory)
			require.ErrorContains(t, err, "2 prompts of 3000 tokens and 0 new ones need")
		}
		_, err := d.Run(t.Context(), language("flat"), batchOf(t, long(1000), long(1000)))
		require.NoError(t, err)
		_, err = d.Run(t.Context(), language("flat"), batchOf(t, long(6000)))
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, "the bound is 1048576")
		require.Zero(t, d.opener.Stats()["cpu"].Crashes)
	}
}

func TestAClosedLanguageModelRefusesRuns(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	l, err := ort.OpenLanguage(ort.SessionConfig{Library: onnx.Library(t), Model: language("flat")})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Run(t.Context(), batchOf(t, flat[0].request(infer.Generate{Keep: 1})))
	require.ErrorIs(t, err, infer.ErrUnavailable)
}

func TestManyCallersOfALanguageModelGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	l := openLanguage(t, "flat")
	var callers sync.WaitGroup
	for i := range 8 {
		c := flat[i%len(flat)]
		callers.Go(func() {
			for range 10 {
				a, err := l.Run(t.Context(), batchOf(t, c.request(infer.Generate{ImageToken: imageToken, MaxNew: 12})))
				if err != nil {
					t.Error(err)
					return
				}
				for k, id := range a.Outputs[0].I64 {
					if id != c.Tokens[k] {
						t.Errorf("%v, want %v", a.Outputs[0].I64, c.Tokens)
						return
					}
				}
				a.Release()
			}
		})
	}
	callers.Wait()
}

// Thousands of values are made and destroyed, and two caches grow.
func TestAnswersDoNotMakeMemoryGrow(t *testing.T) { //nolint:paralleltest // it measures the process
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	flat, three := golden(t)
	models := map[string][]spoken{"flat": flat, "three": three, "branch": flat, "last": flat, "flat_fp16": flat}
	open := make(map[string]*ort.Language)
	for name := range models {
		open[name] = openLanguage(t, name)
	}
	measure := func(rounds int) int {
		for r := range rounds {
			for name, cases := range models {
				for _, c := range cases {
					g := infer.Generate{ImageToken: imageToken, MaxNew: r%12 + 1, Top: 3}
					if r%3 == 0 {
						g = infer.Generate{ImageToken: imageToken, Keep: 1}
					}
					a, err := open[name].Run(t.Context(), batchOf(t, c.request(g), c.request(g)))
					require.NoError(t, err)
					a.Release()
				}
			}
			_, err := open["flat"].Run(t.Context(), batchOf(t, spoken{IDs: []int64{1, poison}}.request(infer.Generate{MaxNew: 4})))
			require.ErrorIs(t, err, infer.ErrFault)
		}
		runtime.GC()
		return status(t, "VmRSS") >> 10
	}
	rounds := 60 // of 23 runs and some 90 steps
	after := [...]int{measure(rounds), measure(rounds), measure(rounds)}
	t.Logf("MB after %d, %d and %d runs: %v", 23*rounds, 46*rounds, 69*rounds, after)
	require.Less(t, after[2], after[0]+16)
}

// inPool makes a pool over children.
func inPool(t *testing.T, cfg pool.Config, m infer.Model) *pool.Model {
	t.Helper()
	o, err := ort.NewOpener(ort.Config{Library: onnx.Library(t).Path, Slots: 1})
	require.NoError(t, err)
	p, err := pool.New(cfg, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.Close(ctx))
	})
	net, err := p.Model(m, pool.ModelOptions{})
	require.NoError(t, err)
	return net
}

func TestItemsOfALanguageModelShareBatchesAndOneBadItemHurtsOnlyItself(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	net := inPool(t, pool.Config{MaxBatch: 8}, language("flat"))
	_, err := net.Info(t.Context())
	require.NoError(t, err)
	var callers sync.WaitGroup
	for round := range 6 {
		for i, c := range append(flat, spoken{IDs: []int64{1, poison, 2, 3, 4, 5}}) {
			callers.Go(func() {
				g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}
				out, err := net.Infer(t.Context(), c.request(g))
				if c.Tokens == nil {
					if !errors.Is(err, infer.ErrFault) {
						t.Errorf("%d.%d: %v", round, i, err)
					}
					return
				}
				if err != nil {
					t.Errorf("%d.%d: %v", round, i, err)
					return
				}
				for k, id := range out[0].I64 {
					if id != c.Tokens[k] || math.Abs(float64(out[1].F32[k]-c.Logprobs[k])) > near {
						t.Errorf("%d.%d: %v, want %v", round, i, out[0].I64, c.Tokens)
						return
					}
				}
			})
		}
	}
	callers.Wait()
}

func TestAnExportForOneItemHasBatchesOfOne(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	d := openCPU(t, ort.Config{})
	g := infer.Generate{ImageToken: imageToken, MaxNew: 12, Top: 3}
	requireSaid(t, flat[2], 12, 12, 0, say(t, d, language("one"), flat[2].request(g))[0])
	_, err := d.Run(t.Context(), language("one"), batchOf(t, flat[2].request(g), flat[3].request(g)))
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, "batch of 2, want batches of 1")
	net := inPool(t, pool.Config{MaxBatch: 8}, language("one"))
	info, err := net.Info(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, -1, width}, info.Inputs[0].Shape, "which is how the pool knows")
	var callers sync.WaitGroup
	for i := range 8 {
		c := flat[2+i%3]
		callers.Go(func() {
			if out, err := net.Infer(t.Context(), c.request(g)); err != nil || !slices.Equal(out[0].I64, c.Tokens) {
				t.Errorf("%v %v, want %v", out, err, c.Tokens)
			}
		})
	}
	callers.Wait()
}

func TestACacheThatForgetsIsTheModelsFault(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	d := openCPU(t, ort.Config{})
	_, err := d.Run(t.Context(), language("forgets"), batchOf(t, flat[0].request(infer.Generate{MaxNew: 12})))
	require.ErrorIs(t, err, infer.ErrModel)
	require.ErrorContains(t, err, "the shape of the logits or of the cache differs")
	require.Zero(t, d.opener.Stats()["cpu"].Crashes)
}

func TestThePoolRefusesWhatIsWrongBeforeItIsQueued(t *testing.T) {
	t.Parallel()
	flat, _ := golden(t)
	net := inPool(t, pool.Config{}, infer.Model{Name: "never loaded", Path: "none", Embed: "none", Device: "cpu"})
	bad := flat[2].request(infer.Generate{ImageToken: imageToken, Keep: 1})
	bad.Name = "sample 7"
	bad.Inputs[1] = infer.Floats("image_features", make([]float32, 16), 2, 8)
	_, err := net.Infer(t.Context(), bad)
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, `item "sample 7": model input refused: the prompt has 3 image tokens 13 and "image_features" has 2 rows`)
	bad.Generate = nil
	_, err = net.Infer(t.Context(), bad)
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, "needs generation settings")
	_, err = net.Infer(t.Context(), flat[0].request(infer.Generate{}))
	require.ErrorIs(t, err, infer.ErrInput)
}
