package node

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/config"
	"github.com/rewardloop/rewardloop/pool/engines"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/rewards/python"
)

// profileIdle is for how long no sample of a profiled step is scored before its profile is written.
const profileIdle = 2 * time.Second

// profiler has engines and Python rewards profiled while samples of chosen training steps are scored in this process: from the
// first one until none has been for profileIdle, or one of another step comes.
type profiler struct {
	engines *Engines
	python  *python.Functions
	all     []*config.Profiler

	mu      sync.Mutex
	step    int             // guarded by mu; the one that is profiled
	on      bool            // guarded by mu
	running int             // guarded by mu; samples of the step
	idle    *time.Timer     // guarded by mu; nil: some are running
	last    <-chan struct{} // guarded by mu; closed when what was told last is done
	work    sync.WaitGroup
}

// newProfiler is nil where nothing is profiled.
func newProfiler(c *config.Config, s *Scorers) *profiler {
	p := &profiler{engines: s.Engines, python: s.Python, all: c.Profilers()}
	if len(p.all) == 0 {
		return nil
	}
	return p
}

// of is the profiler of a step; nil: it is not profiled.
func (p *profiler) of(step int) *config.Profiler {
	for _, one := range p.all {
		if slices.Contains(one.Steps, step) {
			return one
		}
	}
	return nil
}

// profileOf is how the servers of an engine are profiled; nil: none is.
func profileOf(m *config.Managed) (*engines.Profile, error) {
	if m.Profiler == nil {
		return nil, nil
	}
	folder, err := filepath.Abs(m.Profiler.SavePath)
	if err != nil {
		return nil, err
	}
	return &engines.Profile{Tool: m.Profiler.Tool, Servers: m.Profiler.Of(m.Servers), Folder: folder}, nil
}

// begun is told of every sample that is scored. One of validation changes nothing.
func (p *profiler) begun(s *rewards.Sample) (ended func()) {
	if s.Split == rewards.Val {
		return func() {}
	}
	step := int(s.Step)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on && step != p.step {
		p.stop()
	}
	if p.of(step) == nil {
		return func() {}
	}
	if !p.on {
		p.on, p.step, p.running = true, step, 0
		p.do(true)
	}
	p.running++
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	return func() { p.over(step) }
}

// over is told of the end of a sample of a profiled step.
func (p *profiler) over(step int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on || p.step != step {
		return
	}
	if p.running--; p.running == 0 {
		p.idle = time.AfterFunc(profileIdle, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.on && p.step == step && p.running == 0 {
				p.stop()
			}
		})
	}
}

// stop ends the profile. The caller holds mu.
func (p *profiler) stop() {
	p.on = false
	if p.idle != nil {
		p.idle.Stop()
		p.idle = nil
	}
	p.do(false)
}

// do has profiles begun or written, one after the other. The caller holds mu.
func (p *profiler) do(begin bool) {
	step, before, after := p.step, p.last, make(chan struct{})
	p.last = after
	p.work.Go(func() { // ends with its calls, which are bounded
		defer close(after)
		if before != nil {
			<-before
		}
		var both sync.WaitGroup
		both.Go(func() { p.doEngines(begin, step) })
		both.Go(func() { p.doPython(begin, step) })
		both.Wait()
	})
}

func (p *profiler) doEngines(begin bool, step int) {
	what, done, failed := (*engines.Engine).StopProfile, "a profile of an engine is written", "a profile of an engine was not written"
	if begin {
		what, done, failed = (*engines.Engine).StartProfile, "a profile of an engine has begun", "a profile of an engine did not begin"
	}
	for _, x := range p.engines.engines {
		if x.run == nil || x.cfg.Managed.Profiler == nil || !slices.Contains(x.cfg.Managed.Profiler.Steps, step) {
			continue
		}
		if err := what(x.run, context.Background()); err != nil {
			p.engines.log.Error(failed, "engine", x.cfg.Name, "step", step, "error", err)
			continue
		}
		p.engines.log.Info(done, "engine", x.cfg.Name, "step", step, "folder", x.cfg.Managed.Profiler.SavePath)
	}
}

func (p *profiler) doPython(begin bool, step int) {
	var pr *python.Profile
	done, failed := "a profile of a Python reward was written", "a profile of a Python reward was not written"
	if cfg := p.of(step); begin {
		folder, err := filepath.Abs(cfg.SavePath)
		if err != nil {
			p.engines.log.Error("the path of the profile folder cannot be resolved", "folder", cfg.SavePath, "error", err)
			return
		}
		pr = &python.Profile{Tool: string(cfg.Tool), All: cfg.All, Ranks: cfg.Ranks, Folder: folder, Step: step}
		done, failed = "a profile of a Python reward was started", "a profile of a Python reward was not started"
	}
	paths, err := p.python.Profile(context.Background(), pr)
	for _, path := range paths {
		p.engines.log.Info(done, "step", step, "file", path)
	}
	if err != nil {
		p.engines.log.Error(failed, "step", step, "error", err)
	}
}

// close writes what is being profiled.
func (p *profiler) close() {
	p.mu.Lock()
	if p.on {
		p.stop()
	}
	p.mu.Unlock()
	p.work.Wait()
}
