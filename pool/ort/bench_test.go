//go:build cgo

package ort_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func BenchmarkSlow(b *testing.B) {
	s := open(b, "slow")
	for b.Loop() {
		a, err := s.Run(b.Context(), slowBatch(1, 5000))
		require.NoError(b, err)
		a.Release()
	}
}
