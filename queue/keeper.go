package queue

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// keeper sees to it that NATS has what tickets need: the stream, and a consumer for
// every queue that it has heard a worker take from. It also says once a second that this
// gateway lives. One goroutine owns all of it.
type keeper struct {
	f      *Queue
	news   chan wire.WorkerInfo // workers that have just appeared, or say other things than before
	again  chan struct{}        // capacity 1: the connection is back
	cancel context.CancelFunc
	done   chan struct{}
}

// announceEvery is how often a gateway says that it lives.
const announceEvery = time.Second

// retryAfter is when what could not be made is tried again.
const retryAfter = 500 * time.Millisecond

func newKeeper(f *Queue) *keeper {
	return &keeper{f: f, news: make(chan wire.WorkerInfo, 1024), again: make(chan struct{}, 1)}
}

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel, k.done = cancel, make(chan struct{})
	go k.run(ctx) // ends with stop
}

func (k *keeper) stop() {
	if k.cancel != nil {
		k.cancel()
		<-k.done
		k.cancel = nil
	}
}

// changed is told of a worker that was not there, or says other things than before. With a
// full channel it is told again.
func (k *keeper) changed(w wire.WorkerInfo) bool {
	select {
	case k.news <- w:
		return true
	default:
		return false
	}
}

// restored is told that the connection was lost and is back.
func (k *keeper) restored() {
	select {
	case k.again <- struct{}{}:
	default:
	}
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(announceEvery)
	defer tick.Stop()
	k.announce()
	wanted := map[string]bool{} // queues that are not made yet
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.announce()
			continue
		case w := <-k.news:
			k.want(wanted, w)
		case <-k.again: // perhaps to a NATS server that has forgotten everything
			k.f.gateways.again()
			for _, queue := range k.f.queues.lost() {
				wanted[queue] = true
			}
			wanted[""] = true
		case <-retry:
		}
		retry = nil
		if len(wanted) > 0 && !k.make(ctx, wanted) {
			retry = time.After(retryAfter)
		}
	}
}

// isQueueName reports whether a queue may be called so: it is a token of a subject, and part of
// the name of a consumer.
func isQueueName(name string) bool {
	return name != "" && len(name) <= 100 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// want notes the queues that a worker takes from.
func (k *keeper) want(wanted map[string]bool, w wire.WorkerInfo) {
	now := time.Now()
	for _, p := range w.Profiles {
		switch {
		case !isQueueName(p.Queue):
			k.f.cfg.Log.Warn("a worker requested a queue with an invalid name; the worker gets no samples", "worker", w.ID, "reward", p.Name, "queue", p.Queue)
		case !k.f.queues.lacks(p.Queue, now):
		case k.f.queues.full() || len(wanted) > mostQueues:
			k.f.cfg.Log.Error("a worker requested a queue beyond the maximum number of queues; the worker gets no samples of the reward", "worker", w.ID, "reward", p.Name, "most", mostQueues)
			return
		default:
			wanted[p.Queue] = true
		}
	}
}

// make makes what is wanted and reports whether all of it is there. "" stands for the
// stream after a loss, whose gateway is told once everything is there again.
func (k *keeper) make(ctx context.Context, wanted map[string]bool) bool {
	log := k.f.cfg.Log
	restored := wanted[""]
	if restored {
		if err := k.f.declare(ctx); err != nil {
			log.WarnContext(ctx, "the NATS stream of tickets is not ready; retrying", "error", err)
			return false
		}
	}
	for queue := range wanted {
		if queue == "" {
			continue
		}
		if err := k.f.ensure(ctx, queue); err != nil {
			log.WarnContext(ctx, "tickets (one for each waiting sample) cannot be delivered to workers of a queue; retrying", "queue", queue, "error", err)
			return false
		}
		delete(wanted, queue)
	}
	delete(wanted, "")
	if tell := k.f.restored.Load(); restored && tell != nil {
		(*tell)()
	}
	return true
}

// gatewayInfo is what a gateway tells of itself.
type gatewayInfo struct {
	ID string `json:"id"`
}

func (k *keeper) announce() {
	data, err := json.Marshal(gatewayInfo{ID: k.f.cfg.Name})
	if err == nil {
		err = k.f.nc.Publish(gatewaySubject, data)
	}
	if err != nil {
		k.f.cfg.Log.Debug("the announcement of this gateway was not sent to workers; the gateway announces itself every second", "error", err)
	}
}
