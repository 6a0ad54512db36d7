package node_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"

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
	assert.EqualValues(t, 9<<28, debug.SetMemoryLimit(-1))
}
