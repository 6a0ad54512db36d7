package ort

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// runner runs models on one device.
type runner struct {
	cfg    Config
	device string
	procs  procs
	slots  int
	// lenience is how long Load waits for processes that are busy, once one has the model.
	lenience time.Duration
	alone    chan struct{} // holds a token while all processes are unloaded or replaced

	mu    sync.Mutex
	infos map[infer.Model]infer.Info // guarded by mu; of the models that were loaded
	has   map[int][]infer.Model      // guarded by mu; the models of each process
}

// Slots is the number of processes.
func (r *runner) Slots() int { return r.slots }

// A process that is done quickly may take the request that is meant for one that is busy:
// Load asks again after loadPause, for loadLenience. Who is busy for longer loads the model
// with its first batch.
const (
	loadPause    = 10 * time.Millisecond
	loadLenience = 2 * time.Second
)

// Load has every process load the model, so that later runs need not, and returns
// what it says about itself. Those that are busy are waited for until ctx ends, and no
// longer than loadLenience; one that has it is success.
func (r *runner) Load(ctx context.Context, m infer.Model) (infer.Info, error) {
	wait, cancel := r.patience(ctx, true)
	defer cancel()
	failed := r.loadEverywhere(wait, m)
	r.mu.Lock()
	info, ok := r.infos[m]
	r.mu.Unlock()
	if !ok {
		return infer.Info{}, incoming(ctx, 1, failed)
	}
	if r.cfg.Loaded != nil {
		r.cfg.Loaded(m, info)
	}
	return info, nil
}

// loadEverywhere asks for the model until every process has it, one fails, or the wait is over.
func (r *runner) loadEverywhere(ctx context.Context, m infer.Model) error {
	var over <-chan time.Time // once one process has it
	for !r.isKnown(m) || !r.everyoneHas(m) {
		if err := r.loadEach(ctx, m); err != nil {
			return err
		}
		if over == nil {
			over = time.After(r.lenience)
			continue
		}
		select {
		case <-time.After(loadPause):
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// loadEach asks for the model as often as there are processes, at the same time,
// and returns the first error.
func (r *runner) loadEach(ctx context.Context, m infer.Model) error {
	meta, err := json.Marshal(request{Op: opLoad, Model: m})
	if err != nil {
		return err
	}
	errs := make([]error, r.slots)
	var all sync.WaitGroup // of goroutines that end with Do
	for i := range r.slots {
		all.Go(func() {
			resp, err := r.procs.Do(ctx, subprocess.Request{Name: "loading " + m.Name, Meta: meta})
			if err == nil {
				_, err = r.answered(m, resp.Body)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return cmp.Or(errs...)
}

// Run has a free process run the batch.
func (r *runner) Run(ctx context.Context, m infer.Model, b infer.Batch) ([]infer.Tensor, error) {
	if len(b.Names) == 0 {
		return nil, fmt.Errorf("%w: a batch of %s without items", infer.ErrInput, m.Name)
	}
	if ctx.Err() != nil {
		return nil, incoming(ctx, len(b.Names), ctx.Err())
	}
	req, err := encodeRun(m, b)
	if err != nil {
		return nil, err
	}
	req.Began = b.Began
	resp, err := r.do(ctx, req, !r.everyoneHas(m))
	if ranOut(err) && ctx.Err() == nil && !r.everyoneHas(m) {
		// A process was replaced in the same moment, and the time went to its start and the load.
		resp, err = r.do(ctx, req, true)
	}
	if err != nil {
		return nil, incoming(ctx, len(b.Names), err)
	}
	out, err := r.answered(m, resp.Body)
	if err != nil {
		return nil, err
	}
	if b.Whole { // there is no batch axis
		return out, nil
	}
	for _, t := range out {
		if len(t.Shape) == 0 || t.Shape[0] != len(b.Names) {
			return nil, fmt.Errorf("%w: %q: output %q has the shape %v for a batch of %d: its first axis is not the batch's", infer.ErrModel, m.Name, t.Name, t.Shape, len(b.Names))
		}
	}
	return out, nil
}

// do is one request with the patience that it needs.
func (r *runner) do(ctx context.Context, req subprocess.Request, mayLoad bool) (subprocess.Response, error) {
	wait, cancel := r.patience(ctx, mayLoad)
	defer cancel()
	return r.procs.Do(wait, req)
}

// ranOut reports whether a process has ended a run at its deadline by itself.
func ranOut(err error) bool {
	said := &subprocess.Error{}
	return errors.Is(err, subprocess.ErrHandler) && errors.As(err, &said) && errors.Is(sentinelOf(said.Class), infer.ErrTimeout)
}

// Unload has every process give the model's memory back. It takes the processes from all other
// work, so that none is left out: those that are busy are waited for.
func (r *runner) Unload(ctx context.Context, m infer.Model) error {
	meta, err := json.Marshal(request{Op: opUnload, Model: m})
	if err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return incoming(ctx, 1, err)
	}
	defer r.end()
	leases := make([]subprocess.Lease, 0, r.slots)
	defer func() {
		for _, l := range leases {
			l.Release()
		}
	}()
	for range r.slots {
		l, err := r.procs.Take(ctx, fair.Tenant{})
		if err != nil {
			return incoming(ctx, 1, fmt.Errorf("unloading %q: %w", m.Name, err))
		}
		leases = append(leases, l)
	}
	for _, l := range leases {
		resp, err := l.Do(ctx, subprocess.Request{Name: "unloading " + m.Name, Meta: meta, Check: readable})
		if err != nil {
			return incoming(ctx, 1, err)
		}
		if err := r.unloaded(m, resp.Body); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.infos, m)
	return nil
}

// Restart replaces all processes. The new ones load what they are asked to run.
func (r *runner) Restart(ctx context.Context) error {
	err := r.begin(ctx)
	if err == nil {
		defer r.end()
		err = r.procs.Restart(ctx)
	}
	if err != nil {
		return incoming(ctx, 1, err)
	}
	return nil
}

// begin waits until no other Unload or Restart goes on: two that take processes one by one would
// wait for each other.
func (r *runner) begin(ctx context.Context) error {
	select {
	case r.alone <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runner) end() { <-r.alone }

// unloaded notes that the process that answers has the model no more.
func (r *runner) unloaded(m infer.Model, body []byte) error {
	a, _, err := decodeAnswer(body)
	if err != nil {
		return fmt.Errorf("%q: %w", m.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.has[a.PID] = slices.DeleteFunc(r.has[a.PID], func(o infer.Model) bool { return o == m })
	return nil
}

// Close lets running batches end until ctx does and ends the processes.
func (r *runner) Close(ctx context.Context) error { return r.procs.Stop(ctx) }

// patience is the context of a request to a process. It ends later than the
// caller's, because a process whose request's context ends is killed.
//
// A process that only has to run ends the run itself at the caller's deadline, and
// is killed Grace after it. One that may have to load the model first is not
// killed for the caller's deadline at all: it would be replaced by one that has to
// load the model, and so on for ever. The caller leaves at its deadline, and the
// process finishes for nobody.
func (r *runner) patience(ctx context.Context, mayLoad bool) (context.Context, context.CancelFunc) {
	until := time.Now().Add(r.cfg.RunTimeout)
	deadline, bounded := ctx.Deadline()
	switch {
	case mayLoad:
		until = until.Add(r.cfg.LoadTimeout)
	case bounded && deadline.Before(until):
		until = deadline
	}
	wait, cancel := context.WithDeadline(context.WithoutCancel(ctx), until.Add(r.cfg.Grace))
	stop := context.AfterFunc(ctx, func() {
		if mayLoad || errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	return wait, func() {
		stop()
		cancel()
	}
}

// answered reads an answer and notes that its process has the model.
func (r *runner) answered(m infer.Model, body []byte) ([]infer.Tensor, error) {
	a, out, err := decodeAnswer(body)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.Info != nil {
		r.infos[m] = *a.Info
	}
	if !slices.Contains(r.has[a.PID], m) {
		r.has[a.PID] = append(r.has[a.PID], m)
		alive := r.procs.Stats().PIDs
		maps.DeleteFunc(r.has, func(pid int, _ []infer.Model) bool { return pid != a.PID && !slices.Contains(alive, pid) })
	}
	return out, nil
}

// isKnown reports whether the model has said what it is.
func (r *runner) isKnown(m infer.Model) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.infos[m]
	return ok
}

// everyoneHas reports whether no process has to load the model any more. Inline
// there is one process, and no harm in a deadline that passes while it loads.
func (r *runner) everyoneHas(m infer.Model) bool {
	if r.cfg.Isolation == Inline {
		return r.isKnown(m)
	}
	st := r.procs.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	return st.Alive == st.Slots && !slices.ContainsFunc(st.PIDs, func(pid int) bool { return !slices.Contains(r.has[pid], m) })
}
