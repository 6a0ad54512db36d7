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

// Model is a handle on a model of a pool. It is safe for concurrent use.
type Model struct {
	model    infer.Model
	options  ModelOptions
	replicas []*replica // one or more, in the order of the options

	mu     sync.Mutex       // from choosing a device for an item until the device has it
	turn   int              // guarded by mu; counts what was chosen
	chosen map[*replica]int // guarded by mu; the turn in which it was last
}

// Info returns the description of the model. It opens a device and loads the model if necessary.
// Errors are like those of Infer.
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

// Infer runs the model on one item, in a batch with other items of the same key, and returns the
// item's outputs without a batch axis. Infer opens the devices and loads the model if necessary,
// and waits for room in a device's queue and for its turn. If there are several devices, the item
// goes to the device on which it is expected to end first. A device that cannot serve the model is
// left out as long as another device can.
//
// The request's tensors are read only until Infer returns, even if ctx ends first; a message is
// read until its Release is called. The outputs belong to the caller, but the outputs of one batch
// share memory. The timeout of ctx's component starts when the item's turn comes (see
// rewards.Start).
//
// Errors wrap a sentinel of internal/infer or the error of ctx. ErrInput means that the request is
// wrong. ErrTimeout includes the deadline of ctx; the error then wraps both.
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

// Enter waits for permission to prepare an item for the model, for example to decode a picture, and
// to run this and other models on it. The number of items in preparation is limited to two batches
// for each slot of a card and each process of a model in Python, and to one item for each other
// slot of the CPU, over all devices of the model. Tenants take turns. The caller must call leave
// when it has the last result, and must not call Enter again before that. Enter opens the devices
// and loads the model if necessary. Errors are like those of Infer.
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
