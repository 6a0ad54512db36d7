package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/rewards"
)

// batcher joins samples that arrive within a short time into one request.
//
// A member is owned by the Score that brought it, which waits for done or for its
// own context. A batch is open until it is full or its time is up; then a goroutine
// of its own sends it, which the batcher waits for in close. A sample that leaves
// takes only itself along; when all have left, the request is given up.
type batcher struct {
	max  int
	wait time.Duration
	ask  func(ctx context.Context, its []item) ([]verdict, error)

	mu      sync.Mutex
	closed  bool                // guarded by mu
	open    *batch              // guarded by mu; takes members; nil: none
	sending map[*batch]struct{} // guarded by mu
	wg      sync.WaitGroup      // of the goroutines that send; added to under mu
}

// batch is one request in the making. Its fields are guarded by the batcher's mu.
type batch struct {
	members []*member
	here    int // members that have not left
	timer   *time.Timer
	// work is the context to send it with, began what is closed when the service is asked.
	work   context.Context //nolint:containedctx // of all members, and of none of them
	began  <-chan struct{}
	cancel context.CancelFunc // of a batch that is being sent
}

type member struct {
	item item
	left bool // guarded by the batcher's mu
	done chan struct{}
	said batchVerdict // written before done is closed
}

func (m *member) answer(v batchVerdict) {
	m.said = v
	close(m.done)
}

// batchVerdict is a verdict; whole says that the request failed for all of its
// several samples, of which any may be the cause.
type batchVerdict struct {
	verdict
	whole bool
}

func newBatcher(most int, wait time.Duration, ask func(context.Context, []item) ([]verdict, error)) *batcher {
	return &batcher{max: most, wait: wait, ask: ask, sending: map[*batch]struct{}{}}
}

// score sends the item with others and waits for its own verdict, or for ctx.
func (b *batcher) score(ctx context.Context, it item) batchVerdict {
	m := &member{item: it, done: make(chan struct{})}
	bt := b.join(ctx, m)
	if bt == nil {
		return closedVerdict()
	}
	asked, err := rewards.Await(ctx, bt.began, m.done)
	if err == nil {
		return m.said
	}
	b.leave(bt, m)
	err = rewards.Ended(ctx, asked, rewards.BlameDependency, fmt.Errorf("waiting for the answer to its batch: %w", err))
	return batchVerdict{verdict: verdict{err: err}}
}

func closedVerdict() batchVerdict {
	return batchVerdict{verdict: verdict{err: rewards.Blamed(rewards.BlameWorker, fmt.Errorf("%w: the scorer is closed", rewards.Unavailable))}}
}

// join puts the member into the open batch and sends the batch if it is full. It
// returns nil after close.
func (b *batcher) join(ctx context.Context, m *member) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	bt := b.open
	if bt == nil {
		bt = &batch{}
		work := context.Background()
		if rewards.Returns(ctx) {
			work = rewards.Returning(work)
		}
		bt.work, bt.began = rewards.Joined(work)
		bt.timer = time.AfterFunc(b.wait, func() { b.due(bt) })
		b.open = bt
	}
	bt.members = append(bt.members, m)
	bt.here++
	if len(bt.members) == b.max {
		bt.timer.Stop()
		b.start(bt)
	}
	return bt
}

// due sends a batch whose time is up, unless it was sent or given up before.
func (b *batcher) due(bt *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == bt {
		b.start(bt)
	}
}

// start sends the open batch. The caller holds mu.
func (b *batcher) start(bt *batch) {
	b.open = nil
	var sent []*member
	for _, m := range bt.members {
		if !m.left {
			sent = append(sent, m)
		}
	}
	// The members' contexts bound it: when the last has left, it ends.
	ctx, cancel := context.WithCancel(bt.work)
	bt.cancel = cancel
	b.sending[bt] = struct{}{}
	b.wg.Go(func() {
		defer cancel()
		b.send(ctx, sent)
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.sending, bt)
	})
}

// send asks for the members and gives each its own verdict.
func (b *batcher) send(ctx context.Context, members []*member) {
	its := make([]item, len(members))
	for i, m := range members {
		its[i] = m.item
	}
	var out []verdict
	err := rewards.Guard(func() (err error) { // on a goroutine of its own nobody else would catch a panic
		out, err = b.ask(ctx, its)
		return err
	})
	b.mu.Lock()
	ended := err != nil && b.closed
	b.mu.Unlock()
	for i, m := range members {
		switch {
		case ended:
			m.answer(closedVerdict())
			continue
		case err != nil:
			m.answer(batchVerdict{verdict: verdict{err: err}, whole: len(members) > 1})
			continue
		}
		m.answer(batchVerdict{verdict: out[i]})
	}
}

// leave takes a member out. A batch that nobody waits for is given up.
func (b *batcher) leave(bt *batch, m *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.left = true
	if bt.here--; bt.here > 0 {
		return
	}
	if b.open == bt {
		b.open = nil
		bt.timer.Stop()
		return
	}
	if bt.cancel != nil { // nil: it was closed before it was sent
		bt.cancel()
	}
}

// close refuses new samples, fails those that wait to be sent, ends the requests
// that are under way and waits for their goroutines.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	if bt := b.open; bt != nil {
		b.open = nil
		bt.timer.Stop()
		for _, m := range bt.members {
			m.answer(closedVerdict())
		}
	}
	for bt := range b.sending {
		bt.cancel()
	}
	b.mu.Unlock()
	b.wg.Wait()
}
