package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/internal/fair"
	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/timing"
	"github.com/rewardloop/rewardloop/rewards"
)

// Model is a handle on a model of a pool. It is safe for use by several goroutines.
type Model struct {
	model    infer.Model
	options  ModelOptions
	replicas []*replica // one or more, in the order of the options

	mu     sync.Mutex       // from choosing a device for an item until the device has it
	turn   int              // guarded by mu; counts what was chosen
	chosen map[*replica]int // guarded by mu; the turn in which it was last
}

// Info returns what the model says about itself. It opens a device and loads the
// model if nobody did before. Errors are as of Infer.
func (m *Model) Info(ctx context.Context) (infer.Info, error) {
	ready, err := m.ready(ctx, nil)
	if err == nil {
		defer release(ready)
		var info infer.Info
		if info, err = ready[0].load.get(ctx); err == nil {
			return info, nil
		}
	}
	return infer.Info{}, fmt.Errorf("pool: model %s on %s: %w", m.model.Name, m.model.Device, err)
}

// Infer runs the model on one item, in a batch with others of the same key, and
// returns the item's outputs without a batch axis. It opens the devices and loads
// the model if nobody did before, waits for room in a device's queue, and for its
// turn. Of several devices the item gets the one where it is expected to end first; one that
// cannot serve it is left out as long as another can.
//
// The request's tensors are read until it returns and not after that, even when ctx
// ends first; a message is read until its Release is called. Outputs are the caller's own, though those of one batch lie in the
// same memory. When its turn comes, the time of ctx's component starts (rewards.Start).
//
// Errors wrap a sentinel of internal/infer, of which ErrInput is the request's fault
// and ErrTimeout includes ctx's deadline; or they are ctx's. A deadline that
// passes wraps both.
func (m *Model) Infer(ctx context.Context, req infer.Request) ([]infer.Tensor, error) {
	out, on, read, err := m.infer(ctx, req)
	if msg := req.Message; msg != nil && msg.Release != nil {
		select {
		case <-read:
			msg.Release()
		default:
			go func() { // ends with the run
				<-read
				msg.Release()
			}()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("pool: model %s on %s, item %q: %w", m.model.Name, on, req.Name, err)
	}
	return out, nil
}

// maxMoves is how often an item may move to another device for each that its model has: because
// it waited at one that failed, or that failed it, or because one more was ready.
const maxMoves = 3

// infer says on which device the item was, too, and of a message when nothing reads it any more.
func (m *Model) infer(ctx context.Context, req infer.Request) (out []infer.Tensor, on string, read <-chan struct{}, err error) {
	on = m.model.Device
	never := make(chan struct{})
	close(never)
	if err := m.check(req); err != nil {
		return nil, on, never, err
	}
	if ctx.Err() != nil {
		return nil, on, never, infer.Marked(infer.ErrWaiting, gaveUp(ctx))
	}
	it := &item{
		req: req, tenant: fair.Tenant(rewards.TenantOf(ctx)), key: req.Key(), bytes: req.Bytes(),
		begun: make(chan struct{}), done: make(chan struct{}), read: unread(req), mobile: len(m.replicas) > 1,
	}
	it.deadline, _ = ctx.Deadline()
	var asked time.Time
	var tried []*replica // that failed it,
	var failed error     // and how
	for moves := 1; ; moves++ {
		ready, err := m.ready(ctx, tried)
		if err != nil {
			if failed != nil && ctx.Err() == nil {
				err = failed
			}
			return nil, on, never, err
		}
		if asked.IsZero() {
			asked = time.Now()
		}
		r := m.submit(it, ready)
		on = r.model.Device
		if _, err := rewards.Await(ctx, it.begun, it.done); err != nil {
			r.device.cancel(it, gaveUp(ctx))
			<-it.done // at once, unless a run still reads its tensors, which has been ended
		}
		r.release()
		var left *moved
		if !errors.As(it.err, &left) {
			break
		}
		if left.why != nil {
			tried, failed = append(tried, r), also(failed, on, left.why)
			if len(tried) == len(m.replicas) {
				return nil, m.model.Device, never, failed
			}
		}
		it = it.again(moves < maxMoves*len(m.replicas))
	}
	if !it.began.IsZero() {
		timing.Spent(ctx, timing.BatchWait, asked, it.began)
		timing.Spent(ctx, timing.Infer, it.began, time.Now())
	}
	return it.out, on, it.read, it.err
}

// also adds how an item failed on one more device.
func also(failed error, on string, why error) error {
	if failed == nil {
		return fmt.Errorf("on %s: %w", on, why)
	}
	return fmt.Errorf("%w; on %s: %w", failed, on, why)
}

// Enter waits for leave to make an item ready for the model, such as to decode a picture, and to
// ask this and other models about it: so much is made ready at a time as fills two batches for
// each slot of a card, or one item for each slot of the CPU, and tenants take turns. The slots of
// all devices of the model count. The caller calls leave when it has the
// last answer, and must not call Enter before. It opens the devices and loads the model if
// nobody did before. Errors are as of Infer.
func (m *Model) Enter(ctx context.Context) (leave func(), err error) {
	ready, err := m.ready(ctx, nil)
	if err == nil {
		asked, devices := time.Now(), m.order(ready, "")
		release(ready) // who waits for leave does not need the model yet
		leave, err = enter(ctx, devices, fair.Tenant(rewards.TenantOf(ctx)))
		timing.Spent(ctx, timing.BatchWait, asked, time.Now())
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
	case (m.model.Entry != "") != (req.Message != nil):
		return fmt.Errorf("%w: a model in Python needs a message, and other models must not have one", infer.ErrInput)
	case m.model.Embed != "" && req.Generate == nil:
		return fmt.Errorf("%w: a language model needs generation settings, and other models must not have them", infer.ErrInput)
	case m.model.Embed == "" && req.Generate != nil:
		return fmt.Errorf("%w: the model has no embed_tokens and cannot generate", infer.ErrInput)
	}
	return nil
}
