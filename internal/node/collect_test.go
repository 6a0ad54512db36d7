package node_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/node"
)

// Not parallel: these are settings of the process.
func TestGarbageIsCollectedLaterUnlessTheEnvironmentSaysWhen(t *testing.T) { //nolint:paralleltest // see above
	percent := debug.SetGCPercent(100)
	limit := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	var cfg config.Config
	cfg.Loop.MaxBytes = 1 << 30
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		node.CollectLater(&cfg, func(asked string) (string, bool) { return "50", asked == name })
		assert.Equal(t, 100, debug.SetGCPercent(100), name)
		assert.EqualValues(t, math.MaxInt64, debug.SetMemoryLimit(-1), name)
	}
	node.CollectLater(&cfg, func(string) (string, bool) { return "", false })
	assert.Equal(t, 400, debug.SetGCPercent(100))
	assert.LessOrEqual(t, debug.SetMemoryLimit(-1), int64(9<<28))
}

func TestAContainersMemoryIsReadFromItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "memory.max")
	assert.Zero(t, node.ContainerBytes(file), "there is none")
	for text, want := range map[string]int64{"max\n": 0, "2147483648\n": 2 << 30, "": 0} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		assert.Equal(t, want, node.ContainerBytes(file), text)
	}
}
