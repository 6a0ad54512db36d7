package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/internal/memory"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// Capacity is the number of samples of a reward that a process can score at the same time, with the
// reasons.
type Capacity struct {
	// Reward is the name of the profile.
	Reward string
	// Samples is the number. Written means that the configuration sets the number.
	Samples int
	Written bool
	// Components are the components, each with its concurrency.
	Components []rewards.ComponentConcurrency
}

// Least returns the component with the lowest concurrency, the first of several. Its concurrency is
// the number of samples that can begin at the same time.
func (c Capacity) Least() rewards.ComponentConcurrency {
	return slices.MinFunc(c.Components, func(a, b rewards.ComponentConcurrency) int { return cmp.Compare(a.Concurrency, b.Concurrency) })
}

// Reasons lists every component with its concurrency and the reason, such as "ocr 2 (2 sessions on
// cpu), judge 256 (256 requests at a time to qwen)".
func (c Capacity) Reasons() string {
	parts := make([]string, len(c.Components))
	for i, x := range c.Components {
		parts[i] = fmt.Sprintf("%s %d (%s)", x.Key, x.Concurrency, x.Reason)
	}
	return strings.Join(parts, ", ")
}

// Capacities returns the capacities of the rewards that the workers of this process serve, by name.
// Before the scorers are warmed some capacities are preliminary.
func (p *parts) Capacities() []Capacity {
	var out []Capacity
	for _, name := range sortedKeys(p.served()) {
		if name == "" || name == selfTestProfile { // the default one is there by its name as well
			continue
		}
		m := p.managers[name]
		out = append(out, Capacity{name, m.Capacity(), p.cfg.Profiles[name].Concurrency > 0, m.Concurrencies()})
	}
	return out
}

// logCapacities says them, one line each.
func (p *parts) logCapacities(ctx context.Context) {
	for _, why := range p.scorers.Readers.Replaced() {
		p.log.WarnContext(ctx, "PP-OCR is not available, so Tesseract reads the text of images and scores differ; install PP-OCR, or set reader: tesseract in the component to keep Tesseract",
			"reason", why)
	}
	p.logCards(ctx)
	for _, c := range p.Capacities() {
		p.log.InfoContext(ctx, "the capacity of a reward is known", "reward", c.Reward, "samples", c.Samples, "written", c.Written, "fewest", c.Least().Key, "components", c.Reasons())
	}
}

// queues are the names of the queues of tickets, by profile. Two processes share the queue of
// a profile if both would give its samples the same score: if they have the same name and the
// same configuration but for what machines differ in.
func (p *parts) queues(cfg *config.Config) map[string]string {
	out := make(map[string]string, len(p.managers))
	for _, name := range slices.Concat(sortedKeys(p.managers), sortedKeys(p.lacking)) {
		of := cmp.Or(name, config.DefaultProfile)
		out[name] = wire.QueueName(of, digest(cfg.Profiles[of]))
	}
	return out
}

// digest tells configurations of a profile apart; "" for none. Folders, time limits and
// capacity are not in it: machines have their own.
func digest(p *config.Profile) string {
	if p == nil {
		return ""
	}
	own := *p
	own.Concurrency, own.Place, own.Cards = 0, config.Place{}, config.ResourcePool{}
	own.Components, own.Verify = slices.Clone(p.Components), slices.Clone(p.Verify)
	for i := range own.Components {
		t := &own.Components[i]
		t.Concurrency, t.AgentConcurrency, t.MemoryBytes, t.Env, t.Timeout, t.Retries, t.Place = 0, 0, 0, nil, 0, 0, config.Place{}
		t.Probe, t.Fraction = nil, 0
		if t.Function != "" {
			t.Path = filepath.Base(t.Path)
		}
	}
	for i := range own.Verify {
		own.Verify[i].Timeout, own.Verify[i].Place = 0, config.Place{}
	}
	b, err := json.Marshal(own)
	if err != nil { // a number that JSON has not
		b = fmt.Appendf(nil, "%+v", own)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:4])
}

// workerBytes bounds the bytes of samples that one worker has: its part of a quarter of the
// memory that the process may have.
func (p *parts) workerBytes() int64 {
	if most := p.cfg.Workers.MaxBytes; most > 0 {
		return most
	}
	return max(memory.Limit()/4/int64(max(p.cfg.NumWorkers, 1)), p.cfg.Loop.MessageBytes)
}
