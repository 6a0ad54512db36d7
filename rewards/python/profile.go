package python

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Profile selects the processes that are profiled and the location of their profiles.
type Profile struct {
	// Tool is torch, for traces of PyTorch, or nsys, which controls the Nsight Systems under which
	// the server was started.
	Tool string
	// All selects all processes of each function. Otherwise Ranks contains the numbers of the
	// selected processes, from 0.
	All   bool
	Ranks []int
	// Folder is the absolute path of the folder for the traces. Step is the training step in their
	// names.
	Folder string
	Step   int
}

// profileTime bounds the writing of a profile, which takes a minute for a long one.
const profileTime = 5 * time.Minute

// of reports whether the process with a number is profiled.
func (p *Profile) of(process int) bool {
	return p != nil && (p.All || slices.Contains(p.Ranks, process))
}

// request is what a process is told; p is nil for the end of a profile.
func (p *Profile) request(o Options, process int) call {
	if !p.of(process) {
		return call{Op: "profile"}
	}
	base := strings.TrimSuffix(filepath.Base(strings.TrimPrefix(o.Path, "pkg://")), ".py")
	name := fmt.Sprintf("%s.%s.step-%d", base, o.Name, p.Step) // the process adds its pid
	return call{Op: "profile", Tool: p.Tool, Path: filepath.Join(p.Folder, name)}
}

// Profile starts a profile in the selected processes of all functions and models; with a nil pr it
// ends the profile. It returns the paths of the profiles that begin or end. The errors contain the
// names of the functions without a profile.
func (f *Functions) Profile(ctx context.Context, pr *Profile) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, profileTime)
	defer cancel()
	f.mu.Lock()
	var all []func() ([]string, error)
	for _, s := range f.made {
		all = append(all, func() ([]string, error) { return s.pool.setProfile(ctx, pr) })
	}
	for _, r := range f.models {
		all = append(all, func() ([]string, error) { return r.setProfile(ctx, pr) })
	}
	f.mu.Unlock()
	return together(all)
}

// together is what several calls come to that run at the same time, in their order.
func together(calls []func() ([]string, error)) ([]string, error) {
	var wg sync.WaitGroup
	paths, errs := make([][]string, len(calls)), make([]error, len(calls))
	for i, call := range calls {
		wg.Go(func() { paths[i], errs[i] = call() })
	}
	wg.Wait()
	return slices.Concat(paths...), errors.Join(errs...)
}

// setProfile has the processes of a function begin a profile, or with nil end theirs.
func (p *processes) setProfile(ctx context.Context, pr *Profile) ([]string, error) {
	p.mu.Lock()
	p.profile = pr
	var all []func() ([]string, error)
	for _, pl := range p.places {
		if pr == nil || pr.of(pl.number) {
			all = append(all, func() ([]string, error) { return pl.conn.profile(ctx, pr.request(p.opts, pl.number)) })
		}
	}
	p.mu.Unlock()
	return together(all)
}

// profileLate has a process that has just started join the profile of the others. The caller holds mu.
func (p *processes) profileLate(pl *place) {
	pr := p.profile
	if !pr.of(pl.number) {
		return
	}
	said, err := pl.conn.askProfile(pr.request(p.opts, pl.number)) // before its first call
	p.wg.Go(func() {                                               // ends with the process, or after profileTime
		ctx, cancel := context.WithTimeout(context.Background(), profileTime)
		defer cancel()
		if err == nil {
			_, err = pl.conn.awaitProfile(ctx, said)
		}
		if err != nil {
			p.cfg.Log.Warn("the profiler did not start in a process of a Python function", "function", p.opts.label(), "error", err)
		}
	})
}

// profile tells a process and waits for its answer.
func (c *conn) profile(ctx context.Context, what call) ([]string, error) {
	said, err := c.askProfile(what)
	if err != nil {
		return nil, err
	}
	return c.awaitProfile(ctx, said)
}

// askProfile tells a process, after what it was told before. A nil channel: it has ended.
func (c *conn) askProfile(what call) (said chan reply, err error) {
	head, err := encodeFrame(what, 0)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil
	}
	said = make(chan reply, 1)
	c.profiles = append(c.profiles, said)
	c.put(&frame{head: head, deadline: time.Now().Add(profileTime), done: make(chan struct{})})
	return said, nil
}

// awaitProfile waits for the answer to askProfile.
func (c *conn) awaitProfile(ctx context.Context, said chan reply) ([]string, error) {
	if said == nil {
		return nil, nil
	}
	select {
	case r := <-said:
		return r.profile(c.label)
	case <-c.gone:
		return nil, fmt.Errorf("%s: the process ended before it answered the profile request", c.label)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: the process did not answer the profile request: %w", c.label, ctx.Err())
	}
}

// profiled hands out the answer to a profile.
func (c *conn) profiled(r reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.profiles) > 0 {
		c.profiles[0] <- r
		c.profiles = c.profiles[1:]
	}
}

// profile is where a profile will be or is.
func (r reply) profile(label string) ([]string, error) {
	switch {
	case r.Message != "":
		return nil, fmt.Errorf("%s: %s", label, r.Message)
	case r.Path == "":
		return nil, nil
	}
	return []string{r.Path}, nil
}

// setProfile has the processes of a model begin a profile, or with nil end theirs. One that is not loaded has none.
func (r *Runner) setProfile(ctx context.Context, pr *Profile) ([]string, error) {
	r.mu.Lock()
	p, asleep := r.pool, r.asleep
	r.mu.Unlock()
	if p == nil || asleep {
		return nil, nil
	}
	answers, err := r.each(ctx, p, func(i int) any { return pr.request(r.opts, i) })
	if err != nil {
		return nil, fmt.Errorf("%s: the processes did not answer the profile request: %w", r.opts.label(), err)
	}
	var paths []string
	var errs []error
	for _, body := range answers {
		var said reply
		err := json.Unmarshal(body, &said)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: answer to the profile request: %w", r.opts.label(), err))
			continue
		}
		path, err := said.profile(r.opts.label())
		paths, errs = append(paths, path...), append(errs, err)
	}
	return paths, errors.Join(errs...)
}
