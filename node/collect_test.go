package node_test

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/node"
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
	assert.Equal(t, 200, debug.SetGCPercent(100))
	assert.LessOrEqual(t, debug.SetMemoryLimit(-1), node.StatedBytes(&cfg)+64<<20)
}

func TestTheHeapMayTakeWhatTheBudgetsStateAndTheContainerLeaves(t *testing.T) {
	t.Parallel()
	const mib = int64(1) << 20
	var cfg config.Config
	cfg.Loop.MaxBytes, cfg.Loop.StepBytes, cfg.Loop.KeepBytes, cfg.Pool.Decode.BudgetBytes = 400*mib, 100*mib, 25*mib, 300*mib
	assert.Equal(t, 1000*mib, node.StatedBytes(&cfg))
	cfg.Pool.Python.Processes = 3
	cfg.Profiles = map[string]*config.Profile{"a": {Components: []config.ComponentConfig{{MemoryBytes: 100 * mib}, {}}}}
	for container, want := range map[int64]int64{
		0:          1064 * mib, // none
		8000 * mib: 1064 * mib,
		1000 * mib: 600 * mib, // a tenth free, three processes of 100 MiB
		4000 * mib: 1064 * mib,
		400 * mib:  200 * mib,
	} {
		assert.InDelta(t, want, node.CollectLimit(&cfg, container), 1000, "%d MiB", container>>20)
	}
	cfg.Profiles = nil
	assert.InDelta(t, 750*mib, node.CollectLimit(&cfg, 1000*mib), 1000, "children whose memory nobody has written")
}
