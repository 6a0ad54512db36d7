package ort

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// everyKind is a batch with all types, odd sizes, a scalar and nothing.
func everyKind() infer.Batch {
	return infer.Batch{Names: []string{"a"}, Reduce: infer.ArgMax, Inputs: []infer.Tensor{
		{Name: "u", DType: infer.U8, Shape: []int{1, 3}, U8: []byte{1, 2, 3}},
		{Name: "f", DType: infer.F32, Shape: []int{1, 3}, F32: []float32{1.5, -2, 3}},
		{Name: "none", DType: infer.F32, Shape: []int{1, 0}, F32: []float32{}},
		{Name: "l", DType: infer.I64, Shape: []int{}, I64: []int64{-1 << 60}},
		{Name: "i", DType: infer.I32, Shape: []int{1}, I32: []int32{7}},
		{Name: "b", DType: infer.Bool, Shape: []int{1, 3}, U8: []byte{1, 0, 1}},
		{Name: "unseen", DType: infer.Bool, Shape: []int{1, 0, 7}, U8: []byte{}},
	}}
}

// joined is how a child sees the pixels of a request.
func joined(req subprocess.Request) []byte {
	data := make([]byte, 0, 1<<10) // begins at a multiple of 8
	for _, p := range req.Pixels {
		data = append(data, p...)
	}
	return data
}

func TestABatchArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	b := everyKind()
	b.Outputs, b.Whole, b.Generate = []string{"y", "z"}, true, &infer.Generate{ImageToken: 3, Keep: 2, Pick: []int64{1, 2}}
	b.Inputs[0].Norm = &infer.Normalize{Rescale: 1.0 / 255, Mean: []float32{0.5, 0.25, 0.1}, Std: []float32{1, 2, 3}, Inner: 1}
	m := infer.Model{Name: "m", Path: "p", SHA256: "s", Device: "cpu"}
	req, err := encodeRun(m, b)
	require.NoError(t, err)
	require.Equal(t, "m of a", req.Name)
	r, inputs, err := decode(req.Meta, joined(req))
	require.NoError(t, err)
	require.Equal(t, request{Op: opRun, Model: m, Inputs: r.Inputs, Outputs: b.Outputs, Reduce: infer.ArgMax, Whole: true, Generate: b.Generate}, r)
	require.Equal(t, b.Inputs, inputs)
	b.Names = nil
	require.Equal(t, b, r.batch(inputs))
}

func TestAnAnswerArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	want := everyKind().Inputs
	body, err := encodeAnswer(make([]byte, 0, 2), answer{PID: 4, Info: &infer.Info{Provider: "p", Metadata: map[string]string{"character": "é\n"}}}, want)
	require.NoError(t, err)
	a, got, err := decodeAnswer(body)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, 4, a.PID)
	require.Equal(t, "é\n", a.Info.Metadata["character"])

	for n := range body {
		_, _, err := decodeAnswer(body[:n])
		require.ErrorIs(t, err, infer.ErrFault, "%d of %d bytes", n, len(body))
	}
	again, err := encodeAnswer(body, answer{PID: 4}, nil)
	require.NoError(t, err)
	require.Equal(t, &body[0], &again[0], "memory that suffices is used again")
}

func TestAnAnswerBeyondTheLimitIsToldBeforeItIsMade(t *testing.T) {
	t.Parallel()
	huge := infer.Tensor{Name: "y", DType: infer.U8, Shape: []int{subprocess.MaxAnswer}, U8: make([]byte, subprocess.MaxAnswer)}
	_, err := encodeAnswer(nil, answer{}, []infer.Tensor{huge})
	require.ErrorContains(t, err, "an answer at most")
	said := &subprocess.Error{Class: subprocess.TooLong, Message: err.Error()}
	arrived := infer.Marked(subprocess.ErrHandler, said)
	require.ErrorIs(t, incoming(t.Context(), 4, arrived), infer.ErrMemory, "a smaller batch may fit")
	require.ErrorIs(t, incoming(t.Context(), 1, arrived), infer.ErrInput)
}

func TestTensorsThatDoNotFillTheirShapesAreNotSent(t *testing.T) {
	t.Parallel()
	for _, bad := range []infer.Tensor{
		infer.Floats("x", make([]float32, 5), 2, 3),
		infer.Floats("x", nil, -1),
		{Name: "x", DType: "F16", Shape: []int{1}},
		{Name: "x", DType: infer.Bool, Shape: []int{2}, U8: []byte{1, 2}},
		{Name: "x", DType: infer.F32, Shape: []int{1}, F32: []float32{1}, Norm: &infer.Normalize{}},
		{Name: "x", DType: infer.U8, Shape: []int{1}, U8: []byte{1}, Norm: &infer.Normalize{}},
	} {
		_, err := encodeRun(infer.Model{}, infer.Batch{Inputs: []infer.Tensor{bad}})
		require.ErrorIs(t, err, infer.ErrInput)
	}
	_, err := encodeRun(infer.Model{}, infer.Batch{Inputs: make([]infer.Tensor, maxPorts+1)})
	require.ErrorIs(t, err, infer.ErrInput)
}

func TestTheLargestOfALastAxisIsTheFirstOfEquals(t *testing.T) {
	t.Parallel()
	index, value, err := reduceArgMax(infer.Floats("y", []float32{0, 2, 2, -1, -3, -2}, 1, 2, 3))
	require.NoError(t, err)
	require.Equal(t, infer.Tensor{Name: "y", DType: infer.I32, Shape: []int{1, 2}, I32: []int32{1, 0}}, index)
	require.Equal(t, infer.Floats("y.max", []float32{2, -1}, 1, 2), value)
	for _, bad := range []infer.Tensor{infer.Floats("y", []float32{1}), infer.Floats("y", nil, 3, 0)} {
		_, _, err := reduceArgMax(bad)
		require.ErrorIs(t, err, infer.ErrInput)
	}
	index, _, err = reduceArgMax(infer.Floats("y", nil, 0, 3))
	require.NoError(t, err)
	require.Empty(t, index.I32)
}

// FuzzRequests: whatever a request says, the tensors lie within its data.
func FuzzRequests(f *testing.F) {
	req, err := encodeRun(infer.Model{Name: "m"}, everyKind())
	require.NoError(f, err)
	f.Add(req.Meta, joined(req))
	f.Add([]byte(`{"op":"run","inputs":[{"name":"x","dtype":"F32","shape":[2147483648,2]}]}`), make([]byte, 16))
	f.Add([]byte(`{"op":"run","inputs":[{"dtype":"I64","shape":[-1]},{"dtype":"U8","shape":[1073741824]}]}`), []byte("x"))
	f.Add([]byte(`{"op":"run","inputs":[{"dtype":"BOOL","shape":[8]}]}`), []byte{0, 1, 1, 0, 1, 2, 0, 0})
	f.Add([]byte(`{"op":"run","inputs":[{"dtype":"U8","shape":[8],"norm":{"mean":[1],"std":[1],"inner":3}}]}`), make([]byte, 8))
	f.Add([]byte(`{`), []byte{})
	f.Fuzz(func(t *testing.T, meta, data []byte) {
		data = append(make([]byte, 0, len(data)/8*8+8), data...) // begins at a multiple of 8
		r, inputs, err := decode(meta, data)
		if err != nil {
			require.ErrorIs(t, err, errRequest)
			return
		}
		total := 0
		for i, in := range inputs {
			require.NoError(t, in.Check())
			require.Equal(t, r.Inputs[i].Shape, in.Shape)
			total += len(raw(in)) + padding(len(raw(in)))
			require.LessOrEqual(t, len(bytes.Clone(raw(in))), len(data)) // every byte can be read
		}
		require.Equal(t, len(data), total)
		_, err = json.Marshal(r)
		require.NoError(t, err)
	})
}
