package python_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// unstarted makes a scorer of a function as the registry does, and starts nothing.
func unstarted(t *testing.T, cfg python.Config, opts python.Options) rewards.Scorer {
	t.Helper()
	cfg.Interpreter = interpreter(t)
	s, err := python.New(cfg, opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.(rewards.Closer).Close()) })
	return s
}

func TestAFunctionHasAsManyPlacesAsItsProcessesRunCalls(t *testing.T) {
	t.Parallel()
	cpus := runtime.NumCPU()
	for name, tt := range map[string]struct {
		cfg           python.Config
		opts          python.Options
		before, after int
		why           string
	}{
		"synchronous":                     {python.Config{}, python.Options{Name: "bare"}, cpus, cpus, rewards.Count(cpus, "Python process")},
		"synchronous, three processes":    {python.Config{Processes: 3}, python.Options{Name: "bare"}, 3, 3, "3 Python processes: its own, and 2 that all functions share, started when calls wait"},
		"with a concurrency":              {python.Config{}, python.Options{Name: "bare", Concurrency: 256}, 256, 256, "1 Python process with 256 threads"},
		"with a concurrency, in three":    {python.Config{Processes: 3}, python.Options{Name: "bare", Concurrency: 4}, 12, 12, "3 Python processes with 4 threads"},
		"async":                           {python.Config{}, python.Options{Name: "waiting"}, 256, 256, "1 Python process with 256 calls of an async def function"},
		"async, two processes":            {python.Config{Processes: 2}, python.Options{Name: "waiting"}, 512, 512, "2 Python processes with 256 calls of an async def function"},
		"async, with a concurrency":       {python.Config{}, python.Options{Name: "waiting", Concurrency: 8}, 8, 8, "1 Python process with 8 calls of an async def function"},
		"async, with one for all":         {python.Config{Concurrency: 32}, python.Options{Name: "waiting"}, 32, 32, "with 32 calls"},
		"a class of async_reward_agent":   {python.Config{}, python.Options{Name: "Judge", AgentConcurrency: 64}, cpus, 64, "1 Python process with 64 threads"},
		"such a class with a concurrency": {python.Config{}, python.Options{Name: "Judge", AgentConcurrency: 64, Concurrency: 5}, 5, 5, "with 5 threads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.opts.Path = "testdata/concurrency.py"
			s := unstarted(t, tt.cfg, tt.opts)
			assert.Equal(t, tt.before, rewards.ConcurrencyOf(s), "before it has started: %s", rewards.ConcurrencyReason(s))
			warm(t, s)
			assert.Equal(t, tt.after, rewards.ConcurrencyOf(s))
			assert.Contains(t, rewards.ConcurrencyReason(s), tt.why)
		})
	}
}

func TestBeforeAFunctionHasStartedItsFileSaysWhetherItIsAsync(t *testing.T) {
	t.Parallel()
	s := unstarted(t, python.Config{}, python.Options{Path: "testdata/concurrency.py", Name: "waiting"})
	assert.Equal(t, "1 Python process with 256 calls of an async def function; its start shows whether it is async", rewards.ConcurrencyReason(s))
	for _, name := range []string{"hidden", "waitin", "Judge"} {
		s = unstarted(t, python.Config{Processes: 2}, python.Options{Path: "testdata/concurrency.py", Name: name})
		assert.Equal(t, 2, rewards.ConcurrencyOf(s), "%s: only its start shows that", name)
	}
	s = unstarted(t, python.Config{Processes: 2}, python.Options{Path: "pkg://nowhere.to.be.found"})
	assert.Equal(t, 2, rewards.ConcurrencyOf(s))
}

func TestWhatSeesFinishedGroupsHasThePlacesOfItsClass(t *testing.T) {
	t.Parallel()
	s := unstarted(t, python.Config{Processes: 3}, python.Options{Path: "testdata/concurrency.py", Name: "Judge"})
	group, err := s.(interface {
		PostProcess(of string) (rewards.GroupScorer, error)
	}).PostProcess("judge")
	require.NoError(t, err)
	assert.Equal(t, 3, rewards.ConcurrencyOf(group))
	assert.Equal(t, rewards.ConcurrencyReason(s), rewards.ConcurrencyReason(group))
}
