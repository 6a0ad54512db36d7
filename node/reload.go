package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server"
	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// ErrNoReload is the error of Reload for a process without Options.Load.
var ErrNoReload = errors.New("this process was started without a configuration that can be read again")

// Reload reads the configuration again and applies the settings that can change in a running
// process: weights, timeouts, retries and the concurrency of rewards, and the settings of engines.
// Samples that a worker already has are scored with the old settings. The result lists the applied
// settings, and those that need a restart, which are not changed. After an error nothing has
// changed.
func (n *Node) Reload(ctx context.Context) (server.Reloaded, error) {
	done, err := n.reload(ctx, n.Loop.Requeue)
	if err == nil && n.server != nil {
		n.reloading.Lock()
		defer n.reloading.Unlock()
		n.server.Describe(n.profiles())
	}
	return done, err
}

// Reload does the same as Node.Reload.
func (w *Worker) Reload(ctx context.Context) (server.Reloaded, error) {
	return w.reload(ctx, func(_ map[string]string, move func() error) error { return move() })
}

// reload applies another configuration; requeue tells a gateway of the queues that profiles have
// then.
func (p *parts) reload(ctx context.Context, requeue func(queues map[string]string, move func() error) error) (done server.Reloaded, err error) {
	if p.load == nil {
		return done, ErrNoReload
	}
	p.reloading.Lock()
	defer p.reloading.Unlock()
	next, err := p.load()
	if err != nil {
		return done, err
	}
	was := p.running
	ch := was.Compare(next)
	is := *was
	is.Profiles, is.Engines = maps.Clone(was.Profiles), maps.Clone(was.Engines)
	for _, name := range ch.Rewards {
		is.Profiles[name] = next.Profiles[name]
	}
	for _, name := range ch.Engines {
		is.Engines[name] = next.Engines[name]
	}
	served, err := p.serve(&is, ch.Rewards)
	if err != nil {
		return done, err
	}
	if err := p.replaceEngines(was, &is, ch.Engines); err != nil {
		return done, err
	}
	queues := make(map[string]string, len(served))
	for name, s := range served {
		queues[name] = s.Queue
	}
	if len(served) > 0 {
		err = requeue(queues, func() error { return p.replace(ctx, served) })
	}
	if err != nil {
		return done, errors.Join(err, p.replaceEngines(&is, was, ch.Engines))
	}
	p.running = &is
	p.log.InfoContext(ctx, "the configuration was reloaded", "applied", ch.Applied, "needs_a_restart", ch.Restart)
	return server.Reloaded{Applied: ch.Applied, Restart: ch.Restart}, nil
}

// serve makes what workers serve of rewards whose settings are others in cfg, by profile, "" among
// them.
func (p *parts) serve(cfg *config.Config, names []string) (map[string]workers.Profile, error) {
	out := map[string]workers.Profile{}
	queues := p.queues(cfg)
	for _, name := range names {
		of := cfg.Profiles[name]
		if p.managers[name] == nil { // this machine lacks what the reward needs
			continue
		}
		m, err := p.managers[name].With(func(c *rewards.ManagerConfig) {
			c.Concurrency = of.Concurrency
			for i, t := range of.Components {
				c.Components[i].Weight, c.Components[i].Timeout, c.Components[i].Retries = t.Weight, cmp.Or(t.Timeout, c.Timeout), t.Retries
			}
		})
		if err != nil {
			return nil, fmt.Errorf("reward %q: %w", name, err)
		}
		out[name] = workers.Profile{Manager: m, Queue: queues[name], Config: digest(of)}
		if name == config.DefaultProfile {
			out[""] = out[name]
		}
	}
	return out, nil
}

// replaceEngines has engines be asked as another configuration says; all of them, or none.
func (p *parts) replaceEngines(was, is *config.Config, names []string) error {
	for i, name := range names {
		err := p.scorers.Engines.replace(is.Engines[name])
		if err == nil {
			continue
		}
		for _, done := range names[:i] {
			err = errors.Join(err, p.scorers.Engines.replace(was.Engines[done]))
		}
		return err
	}
	return nil
}

// settles is how long a reload waits for the workers' word that they serve what is new.
const settles = time.Second

// replace has the workers of this process serve profiles otherwise, and returns when its
// gateway may know. It fails only where the connection to the queues has ended for good.
func (p *parts) replace(ctx context.Context, served map[string]workers.Profile) error {
	for name, s := range served {
		was, own := p.serving[name]
		if !own {
			continue // other workers have it
		}
		for i, w := range p.workers {
			if err := w.Replace(name, s); err != nil {
				for _, done := range p.workers[:i] {
					err = errors.Join(err, done.Replace(name, was))
				}
				return err
			}
		}
		p.serving[name] = s
	}
	if p.presence == nil {
		return nil
	}
	until := time.Now().Add(settles)
	for time.Now().Before(until) && ctx.Err() == nil && !p.announced(served) {
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

// announced reports whether the gateway of this process has heard that all its workers serve
// profiles by their queues.
func (p *parts) announced(served map[string]workers.Profile) bool {
	heard := map[string]wire.WorkerInfo{}
	for _, info := range p.presence.Workers() {
		heard[info.ID] = info
	}
	return !slices.ContainsFunc(p.workers, func(w *workers.Worker) bool {
		return slices.ContainsFunc(heard[w.Info().ID].Profiles, func(of wire.ProfileInfo) bool {
			s, ok := served[of.Name]
			return ok && s.Queue != of.Queue
		})
	})
}
