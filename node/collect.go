package node

import (
	"runtime"
	"runtime/debug"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/memory"
)

// What CollectLater sets.
const (
	// collectPercent is GOGC. A sample of 25 KB took 0.156, 0.129 and 0.154 ms of computing with
	// 100, 200 and 400, one of 786 KB 0.70, 0.59 and 0.64 ms, with 345, 418 and 955 MiB resident in
	// the benchmark's process. 72,000 short texts in 64 steps took 170, 220 and 331 MiB.
	collectPercent = 200
	// collectRuns is how many runs are taken to have all the results that loop.results_bytes allows.
	collectRuns = 4
	// collectRoom is what a node has beside what its budgets state: connections, tables, stacks.
	collectRoom = 64 << 20
)

// CollectLater configures the garbage collector of a process that serves samples: a collection starts when the
// heap is three times the live data instead of twice, while the heap stays within the sum of the budgets of the
// configuration and within the memory of the container (cgroup), see collectLimit. Between two steps there is
// little live data, and a burst of samples at the end of a rollout would otherwise start several collections
// while the CPUs are needed. If GOGC or GOMEMLIMIT is set, CollectLater does nothing.
func CollectLater(cfg *config.Config, getenv func(string) (string, bool)) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if v, ok := getenv(name); ok && v != "" {
			return
		}
	}
	_, _, container := memory.Read()
	debug.SetGCPercent(collectPercent)
	debug.SetMemoryLimit(collectLimit(cfg, container))
}

// StatedBytes returns the sum of the budgets of a configuration: samples, whose buffers are up to a quarter
// larger, pixels, rows of steps, and the results of several runs.
func StatedBytes(cfg *config.Config) int64 {
	l := &cfg.Loop
	return l.MaxBytes + l.MaxBytes/4 + cfg.Pool.Decode.BudgetBytes + l.StepBytes + collectRuns*l.KeepBytes
}

// collectLimit is what the heap may take before garbage is collected as often as it takes. Of
// what a container may have, 0 for all that there is, a tenth is left free, and to children
// (Python, models) what their entries say with memory, 15 % at least; to the heap one half.
func collectLimit(cfg *config.Config, container int64) int64 {
	limit := StatedBytes(cfg) + collectRoom
	if container <= 0 {
		return limit
	}
	children := max(pythonBytes(cfg), container/100*15)
	return min(limit, max(container/10*9-children, container/2))
}

// pythonBytes is what Python processes may have by the entries that say so, with a process for
// each CPU where pool.python.processes does not say.
func pythonBytes(cfg *config.Config) (total int64) {
	processes := int64(cfg.Pool.Python.Processes)
	if processes == 0 {
		processes = int64(runtime.NumCPU())
	}
	for _, p := range cfg.Profiles {
		for i := range p.Components {
			total += p.Components[i].MemoryBytes * processes
		}
	}
	return total
}
