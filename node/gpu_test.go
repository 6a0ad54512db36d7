//go:build cgo && gpu

package node_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/pool/ort"
)

// The chain of TestGoldenONNXModelsScoreAGroupThroughTheWholeChain on the first card. Its
// sums are made in another order: that of TF32 switched off is within 1e-2 of logits
// around 100.
func TestGPUONNXModelsScoreAGroupThroughTheWholeChain(t *testing.T) {
	lib, err := ort.Find("")
	if os.Getenv("REQUIRE_ORT") != "1" && (err != nil || !lib.CUDA) {
		t.Skipf("SKIPPED: no ONNX Runtime with CUDA: %v", err)
	}
	require.NoError(t, err)
	scoreAGroup(t, "cuda:0", 1e-2)
}
