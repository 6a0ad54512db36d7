package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// replica is a model on one device.
type replica struct {
	model   infer.Model // with the device's name
	most    int         // ModelOptions.MaxBatch
	memory  int64       // ModelOptions.Memory
	device  *device
	account *account // guarded by the device's mutex
	load    shared[infer.Info]
}

// hold keeps the model on its device until release, if it is there.
func (r *replica) hold() standing {
	now := time.Now()
	d := r.device
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.memory.hold(r.account):
		return crowded
	case now.Before(d.out):
		return resting
	}
	return good
}

// asked reports whether it was held before.
func (r *replica) asked() bool {
	m := r.device.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	return r.account.asked
}

// release ends a hold.
func (r *replica) release() { r.device.memory.release(r.account, time.Now()) }

// poll begins to open the device and to load the model if need be, and waits for nothing:
// it returns what shared.poll does.
func (r *replica) poll() (*attempt, error) {
	if a, err := r.device.open.poll(); a != nil || err != nil {
		return a, err
	}
	return r.load.poll()
}

// embeds is the input of a language model's decoder that says how many items a batch
// may have.
const embeds = "inputs_embeds"

// bringUp loads the model, once there is room for it. It is the work of replica.load.
func (r *replica) bringUp(ctx context.Context) (info infer.Info, err error) {
	d := r.device
	run, err := d.open.get(ctx)
	if err != nil {
		return infer.Info{}, err
	}
	if err := d.reserve(ctx, r.account, int64(run.slots)*max(r.memory, Estimate(r.model))); err != nil {
		return infer.Info{}, err
	}
	begun, there := time.Now(), false
	defer func() { d.settle(r.account, there, int64(run.slots)*info.Bytes, time.Since(begun)) }()
	info, err = run.Load(ctx, r.model)
	if errors.Is(err, infer.ErrMemory) { // the book was wrong
		wait, cancel := context.WithTimeout(ctx, d.cfg.LoadTimeout/2)
		defer cancel()
		for errors.Is(err, infer.ErrMemory) && d.yield(wait, r.account) == nil {
			info, err = run.Load(ctx, r.model)
		}
	}
	if err != nil {
		return infer.Info{}, err
	}
	top, err := r.batches(info)
	if err != nil {
		return infer.Info{}, errors.Join(err, run.Unload(ctx, r.model))
	}
	d.mu.Lock()
	r.account.top = top
	d.mu.Unlock()
	there = true
	return info, nil
}

// batches is how many items a batch of the model may have; 0: as many as the pool allows.
func (r *replica) batches(info infer.Info) (int, error) {
	top := r.most
	for _, in := range info.Inputs {
		if len(in.Shape) == 0 || in.Shape[0] < 0 {
			continue
		}
		if r.model.Embed != "" && in.Name != embeds {
			continue // of these some have no batch axis, and the load has looked at the others
		}
		if in.Shape[0] != 1 {
			return 0, fmt.Errorf("%w: input %q has shape %v: a batch of exactly %d; export the model with a free first axis, or 1",
				infer.ErrModel, in.Name, in.Shape, in.Shape[0])
		}
		top = 1
	}
	if most := info.MaxBatch; most > 0 && (top == 0 || top > most) { // the device lacked memory for more
		top = most
	}
	return top, nil
}

// fileState changes with the model's files, so that one that was put right is
// loaded at once.
func (r *replica) fileState() string {
	state := func(path string) string {
		fi, err := os.Stat(path)
		if err != nil {
			return "absent"
		}
		return fmt.Sprint(fi.Size(), fi.ModTime().Format(time.RFC3339Nano))
	}
	if r.model.Embed == "" { // of a module in Python it is always "absent"
		return state(r.model.Path)
	}
	return state(r.model.Path) + state(r.model.Embed)
}
