package infer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
)

func TestStackedItemsComeApartAgain(t *testing.T) {
	t.Parallel()
	a := infer.Request{Name: "a", Inputs: []infer.Tensor{infer.Floats("x", []float32{1, 2, 3}, 3), {Name: "n", DType: infer.I64, Shape: []int{}, I64: []int64{7}}}}
	b := infer.Request{Name: "b", Inputs: []infer.Tensor{infer.Floats("x", []float32{4, 5, 6}, 3), {Name: "n", DType: infer.I64, Shape: []int{}, I64: []int64{8}}}}
	batch, err := infer.Stack([]infer.Request{a, b})
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, batch.Names)
	require.Equal(t, []int{2, 3}, batch.Inputs[0].Shape)
	require.Equal(t, []int{2}, batch.Inputs[1].Shape)
	row, err := batch.Inputs[0].Row(1)
	require.NoError(t, err)
	require.Equal(t, b.Inputs[0], row)
	row, err = batch.Inputs[1].Row(0)
	require.NoError(t, err)
	require.Equal(t, a.Inputs[1], row)
	_, err = batch.Inputs[0].Row(2)
	require.ErrorIs(t, err, infer.ErrFault)
}

func TestItemsOfDifferentShapesAreNotStacked(t *testing.T) {
	t.Parallel()
	a := infer.Request{Name: "a", Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 6), 2, 3)}}
	b := infer.Request{Name: "b", Inputs: []infer.Tensor{infer.Floats("x", make([]float32, 6), 3, 2)}}
	_, err := infer.Stack([]infer.Request{a, b})
	require.ErrorIs(t, err, infer.ErrInput)
	require.ErrorContains(t, err, `"b"`)
	_, err = infer.Stack(nil)
	require.ErrorIs(t, err, infer.ErrInput)
}

func TestATensorWhoseDataDoesNotFillItsShapeIsRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []infer.Tensor{
		infer.Floats("x", make([]float32, 5), 2, 3),
		infer.Floats("x", nil, -1),
		infer.Floats("x", nil, 1<<20, 1<<20),
		{Name: "x", DType: "F16", Shape: []int{1}},
	} {
		require.ErrorIs(t, bad.Check(), infer.ErrInput)
	}
	require.NoError(t, infer.Floats("x", nil, 0, 3).Check())
}
