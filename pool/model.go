package pool

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/obs"
	"github.com/rewardloop/rewardloop/rewards"
)

// Model is a handle on a model of a pool. It is safe for use by several goroutines.
type Model struct {
	model   infer.Model
	options ModelOptions
	device  *device
	account *account // guarded by the device's mutex
	load    shared[infer.Info]
}

// Info returns what the model says about itself. It opens the device and loads the
// model if nobody did before. Errors are as of Infer.
func (m *Model) Info(ctx context.Context) (infer.Info, error) {
	info, err := m.ready(ctx)
	if err != nil {
		return infer.Info{}, fmt.Errorf("pool: model %s on %s: %w", m.model.Name, m.model.Device, err)
	}
	return info, nil
}

// Infer runs the model on one item, in a batch with others of the same key, and
// returns the item's outputs without a batch axis. It opens the device and loads
// the model if nobody did before, waits for room in the device's queue, and for its
// turn.
//
// The request's tensors are read until it returns and not after that, even when ctx
// ends first. Outputs are the caller's own, though those of one batch lie in the
// same memory. When its turn comes, the time of ctx's component starts (rewards.Start).
//
// Errors wrap a sentinel of internal/infer, of which ErrInput is the request's fault
// and ErrTimeout includes ctx's deadline; or they are ctx's. A deadline that
// passes wraps both.
func (m *Model) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	out, err := m.infer(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("pool: model %s on %s, item %q: %w", m.model.Name, m.model.Device, req.Name, err)
	}
	return out, nil
}

func (m *Model) infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	if err := m.check(req); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, infer.Marked(infer.ErrWaiting, gaveUp(ctx))
	}
	if _, err := m.ready(ctx); err != nil {
		return nil, err
	}
	it := &item{
		req: req, tenant: fair.Tenant(rewards.TenantOf(ctx)), account: m.account, key: req.Key(), bytes: req.Bytes(),
		begun: make(chan struct{}), done: make(chan struct{}),
	}
	it.deadline, _ = ctx.Deadline()
	asked := time.Now()
	m.device.submit(it)
	if _, err := rewards.Await(ctx, it.begun, it.done); err != nil {
		m.device.cancel(it, gaveUp(ctx))
		<-it.done // at once, unless a run still reads its tensors, which has been ended
	}
	if !it.began.IsZero() {
		obs.Spent(ctx, obs.BatchWait, it.began.Sub(asked))
		obs.Spent(ctx, obs.Infer, time.Since(it.began))
	}
	return it.out, it.err
}

// Enter waits for leave to make an item ready for the model, such as to decode a picture, and to
// ask this and other models about it: so much is made ready at a time as fills two batches for
// each slot of a card, or one item for each slot of the CPU, and tenants take turns. The caller calls leave when it has the
// last answer, and must not call Enter before. It opens the device and loads the model if
// nobody did before. Errors are as of Infer.
func (m *Model) Enter(ctx context.Context) (leave func(), err error) {
	if _, err = m.ready(ctx); err == nil {
		asked := time.Now()
		leave, err = m.device.enter(ctx, fair.Tenant(rewards.TenantOf(ctx)))
		obs.Spent(ctx, obs.BatchWait, time.Since(asked))
	}
	if err != nil {
		return nil, fmt.Errorf("pool: model %s on %s: %w", m.model.Name, m.model.Device, err)
	}
	return leave, nil
}

// check refuses what no model or not this one can run, before it is queued.
func (m *Model) check(req infer.Request) error {
	if err := req.Check(); err != nil {
		return err
	}
	switch {
	case m.model.Embed != "" && req.Generate == nil:
		return fmt.Errorf("%w: a language model is told what to generate", infer.ErrInput)
	case m.model.Embed == "" && req.Generate != nil:
		return fmt.Errorf("%w: the model has no embed_tokens, so it generates nothing", infer.ErrInput)
	}
	return nil
}

// ready opens the device and loads the model.
func (m *Model) ready(ctx context.Context) (infer.Info, error) {
	if _, err := m.device.open.get(ctx); err != nil {
		return infer.Info{}, err
	}
	return m.load.get(ctx)
}

// embeds is the input of a language model's decoder that says how many items a batch
// may have.
const embeds = "inputs_embeds"

// bringUp loads the model. It is the work of Model.load.
func (m *Model) bringUp(ctx context.Context) (infer.Info, error) {
	r, err := m.device.open.get(ctx)
	if err != nil {
		return infer.Info{}, err
	}
	info, err := r.Load(ctx, m.model)
	if err != nil {
		return infer.Info{}, err
	}
	for _, in := range info.Inputs {
		if len(in.Shape) == 0 || in.Shape[0] < 0 {
			continue
		}
		if m.model.Embed != "" && in.Name != embeds {
			continue // of these some have no batch axis, and the load has looked at the others
		}
		if in.Shape[0] != 1 {
			return infer.Info{}, fmt.Errorf("%w: input %q has shape %v: a batch of exactly %d; export it with a free first axis, or 1",
				infer.ErrModel, in.Name, in.Shape, in.Shape[0])
		}
		m.device.mu.Lock()
		m.account.top = 1 // it has no items yet
		m.device.mu.Unlock()
	}
	if most := info.MaxBatch; most > 0 { // the device lacked memory for more
		m.device.mu.Lock()
		if top := m.account.top; top == 0 || top > most {
			m.account.top = most
		}
		m.device.mu.Unlock()
	}
	return info, nil
}

// fileState changes with the model's files, so that one that was put right is
// loaded at once.
func (m *Model) fileState() string {
	state := func(path string) string {
		fi, err := os.Stat(path)
		if err != nil {
			return "absent"
		}
		return fmt.Sprint(fi.Size(), fi.ModTime().Format(time.RFC3339Nano))
	}
	if m.model.Embed == "" {
		return state(m.model.Path)
	}
	return state(m.model.Path) + state(m.model.Embed)
}
