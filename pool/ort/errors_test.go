package ort

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

func TestTheRuntimesTextsAreClassed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"bfc_arena.cc:359 Failed to allocate memory for requested buffer of size 70368744177664":       infer.ErrMemory,
		"Non-zero status code returned while running Conv node. CUDA failure 2: out of memory ; GPU=0": infer.ErrMemory,
		"CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0":                                         infer.ErrMemory,
		"std::bad_alloc": infer.ErrMemory,
		"CUDA failure 700: an illegal memory access was encountered ; GPU=0":                                            infer.ErrFault,
		"Non-zero status code returned while running Gemm node. CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED":      infer.ErrFault,
		"CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED":                                                             infer.ErrFault,
		"Got invalid dimensions for input: x for the following indices":                                                 infer.ErrInput,
		"Non-zero status code returned while running Concat node. Name:'' Status Message: Non concat axis do not match": infer.ErrInput,
		"something nobody has seen": infer.ErrFault,
	} {
		got := failedRun(errors.New(text))
		require.ErrorIs(t, got, want, text)
		require.ErrorContains(t, got, text)
	}
	for text, want := range map[string]error{
		"Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file":                       infer.ErrUnavailable,
		`Failed to parse provider option "device_id": CUDA failure 36: API call is not supported in the installed CUDA driver ; GPU=-1`:               infer.ErrUnavailable,
		`Failed to parse provider option "device_id": CUDA failure 100: no CUDA-capable device is detected ; GPU=-1`:                                  infer.ErrUnavailable,
		`Failed to parse provider option "device_id": CUDA failure 46: all CUDA-capable devices are busy or unavailable`:                              infer.ErrFault,
		`Failed to parse provider option "device_id": CUDA failure 802: system not yet initialized ; GPU=-1 ; expr=cudaGetDeviceCount(&num_devices);`: infer.ErrFault,
	} {
		require.ErrorIs(t, failedOptions("cuda:0", errors.New(text)), want, text)
	}
	m := infer.Model{Name: "m", Path: "p"}
	require.ErrorIs(t, failedLoad(m, errors.New("Protobuf parsing failed.")), infer.ErrModel)
	require.ErrorIs(t, failedLoad(m, errors.New("CUDA failure 719: unspecified launch failure")), infer.ErrFault)
	require.ErrorIs(t, failedLoad(m, errors.New("Failed to allocate memory")), infer.ErrMemory)
}

func TestASentinelCrossesFromAChildWithItsTextOnce(t *testing.T) {
	t.Parallel()
	for _, s := range sentinels() {
		left := outgoing(fmt.Errorf("%w: because", s.err))
		require.ErrorIs(t, left, s.err)
		arrived := fmt.Errorf("%w: %w", subprocess.ErrHandler, &subprocess.Error{Class: s.word, Message: left.Error()})
		got := incoming(t.Context(), 1, arrived)
		require.ErrorIs(t, got, s.err)
		require.Equal(t, arrived.Error(), got.Error())
	}
	require.ErrorIs(t, incoming(t.Context(), 1, fmt.Errorf("%w: %w", subprocess.ErrHandler, &subprocess.Error{Message: "no class"})), infer.ErrFault)
}

func TestWhatASlotAnswersIsMapped(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for _, tt := range []struct {
		ctx   context.Context //nolint:containedctx // a table
		items int
		err   error
		want  error
	}{
		{t.Context(), 1, subprocess.ErrCrashed, infer.ErrCrashed},
		{t.Context(), 1, fmt.Errorf("%w: %w", subprocess.ErrCrashed, &subprocess.Error{Class: "fault"}), infer.ErrFault},
		{t.Context(), 1, subprocess.ErrTimeout, infer.ErrTimeout},
		{late, 1, context.Canceled, infer.ErrTimeout},
		{left, 1, context.Canceled, context.Canceled},
		{t.Context(), 1, subprocess.ErrTooLarge, infer.ErrInput},
		{t.Context(), 2, subprocess.ErrTooLarge, infer.ErrMemory},
		{t.Context(), 1, subprocess.ErrUnavailable, infer.ErrUnavailable},
		{t.Context(), 1, errors.New("strange"), infer.ErrUnavailable},
	} {
		require.ErrorIs(t, incoming(tt.ctx, tt.items, tt.err), tt.want)
	}
}
