package node

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
)

// Capacity is how many samples of a reward a process uses at a time, and why.
type Capacity struct {
	// Reward is the profile's name.
	Reward string
	// Samples are how many. Written says that the file has the number.
	Samples int
	Written bool
	// Components are what each sample takes a place of.
	Components []rewards.Component
}

// Least is the component with the fewest places, of several such the first: as many samples
// begin at a time.
func (c Capacity) Least() rewards.Component {
	return slices.MinFunc(c.Components, func(a, b rewards.Component) int { return cmp.Compare(a.Concurrency, b.Concurrency) })
}

// Reasons names every component with its concurrency and the reason, "ocr 2 (2 sessions on
// cpu), judge 256 (256 requests at a time to qwen)".
func (c Capacity) Reasons() string {
	parts := make([]string, len(c.Components))
	for i, x := range c.Components {
		parts[i] = fmt.Sprintf("%s %d (%s)", x.Key, x.Concurrency, x.Reason)
	}
	return strings.Join(parts, ", ")
}

// Capacities are those of the rewards that the workers of this process serve, by name, as
// far as it is known now: some scorers find out when they are warmed.
func (p *parts) Capacities() []Capacity {
	var out []Capacity
	for _, name := range sortedKeys(p.served()) {
		if name == "" || name == selfTestProfile { // the default one is there by its name as well
			continue
		}
		m := p.managers[name]
		out = append(out, Capacity{name, m.Capacity(), p.cfg.Profiles[name].Concurrency > 0, m.Components()})
	}
	return out
}

// logCapacities says them, one line each.
func (p *parts) logCapacities(ctx context.Context) {
	for _, c := range p.Capacities() {
		p.log.InfoContext(ctx, "capacity", "reward", c.Reward, "samples", c.Samples, "written", c.Written, "fewest", c.Least().Key, "components", c.Reasons())
	}
}

// slots is how many samples one worker scores at a time, of all rewards together: its part
// of the largest capacity that is written, or of four for each CPU.
func slots(cfg *config.Config) int {
	all := 0
	for _, p := range cfg.Profiles {
		all = max(all, p.Concurrency)
	}
	if all == 0 {
		all = 4 * runtime.NumCPU()
	}
	workers := max(cfg.NumWorkers, 1)
	return (all + workers - 1) / workers
}
