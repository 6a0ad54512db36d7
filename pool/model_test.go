package pool_test

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/pool"
)

// prompt is a request for a language model: for the next token of a prompt of one.
func prompt() infer.Request {
	ids := infer.Tensor{Name: infer.InputIDs, DType: infer.I64, Shape: []int{1}, I64: []int64{7}}
	return infer.Request{Name: "p", Inputs: []infer.Tensor{ids}, Generate: &infer.Generate{Keep: 1}}
}

func TestALanguageModelIsToldWhatToGenerateAndNoOtherModelIs(t *testing.T) {
	t.Parallel()
	onStage(t, &fake{}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		vlm := s.model(t, infer.Model{Name: "vlm", Path: "decoder.onnx", Embed: "embed.onnx", Device: "cpu"})
		_, err := vlm.Infer(t.Context(), number(1))
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, "needs generation settings")
		_, err = s.model(t, ocr).Infer(t.Context(), prompt())
		require.ErrorIs(t, err, infer.ErrInput)
		require.ErrorContains(t, err, "cannot generate")
		assert.Zero(t, s.fake.opens)
	})
}

func TestOfALanguageModelOnlyItsEmbeddingsSayHowManyItemsABatchMayHave(t *testing.T) {
	t.Parallel()
	for first, most := range map[int]int{-1: 32, 1: 1} {
		info := infer.Info{Inputs: []infer.Port{
			{Name: "past.0.key", DType: "F32", Shape: []int{8, 4, -1, 64}},
			{Name: "length", DType: "I64"},
			{Name: "inputs_embeds", DType: "F32", Shape: []int{first, -1, 64}},
		}}
		onStage(t, &fake{info: info}, pool.Config{}, func(t *testing.T, s *stage) {
			t.Helper()
			vlm := s.model(t, infer.Model{Name: "vlm", Path: "decoder.onnx", Embed: "embed.onnx", Device: "cpu"})
			_, err := vlm.Infer(t.Context(), prompt())
			require.NoError(t, err)
			assert.Equal(t, most, s.Stats().Devices[0].Models[0].BatchQueues[0].Limit)
		})
	}
}

func TestAWholeItemRunsAloneAndKeepsTheShapesOfItsOutputs(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	spoil := func(_ infer.Model, _ infer.Batch, out []infer.Tensor) ([]infer.Tensor, error) {
		out[0].Shape = nil
		if broken.Load() {
			out[0].F32[0] = float32(math.NaN())
		}
		return out, nil
	}
	onStage(t, &fake{cost: linear(100*ms, 0), spoil: spoil}, pool.Config{}, func(t *testing.T, s *stage) {
		t.Helper()
		m := s.model(t, ocr)
		var calls []*call
		for x := range 20 {
			req := number(float32(x))
			req.Whole = true
			calls = append(calls, begin(t.Context(), m, req))
		}
		for x, c := range calls {
			<-c.done
			require.NoError(t, c.err)
			assert.Equal(t, []infer.Tensor{infer.Floats("y", []float32{2*float32(x) + 1})}, c.out, "without a batch axis")
		}
		assert.Equal(t, 1, slices.Max(s.fake.sizes()))
		broken.Store(true)
		req := number(1)
		req.Whole = true
		begin(t.Context(), m, req).fails(t, infer.ErrFault)
		assert.EqualValues(t, 1, s.total().Retries, "it is run once more")
	})
}
