package fabric

import (
	"context"
	"encoding/json"
	"maps"
	"time"

	"github.com/rewardloop/rewardloop/wire"
)

// keeper sees to it that the engine has what tickets need: the stream, and a consumer for
// every pool that it has heard of. It also says once a second that this gateway lives. One goroutine owns all of it.
type keeper struct {
	f      *Fabric
	news   chan wire.WorkerInfo // workers that have just appeared
	again  chan struct{}        // capacity 1: the connection is back
	cancel context.CancelFunc
	done   chan struct{}

	made map[string]string // subjects by the consumer that has them; the goroutine's
}

// announceEvery is how often a gateway says that it lives.
const announceEvery = time.Second

// retryAfter is when what could not be made is tried again.
const retryAfter = 500 * time.Millisecond

func newKeeper(f *Fabric) *keeper {
	return &keeper{f: f, news: make(chan wire.WorkerInfo, 1024), again: make(chan struct{}, 1), made: map[string]string{}}
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

// appeared is told of a worker that was not there before. With a full channel it is told
// again: a worker without a consumer says so by asking for nothing, not by being silent.
func (k *keeper) appeared(w wire.WorkerInfo) bool {
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
	wanted := map[string]string{} // not made yet
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
		case <-k.again: // perhaps to an engine that has forgotten everything
			k.f.gateways.again()
			maps.Copy(wanted, k.made)
			clear(k.made)
			wanted[""] = ""
		case <-retry:
		}
		retry = nil
		if len(wanted) > 0 && !k.make(ctx, wanted) {
			retry = time.After(retryAfter)
		}
	}
}

// want notes what a worker needs.
func (k *keeper) want(wanted map[string]string, w wire.WorkerInfo) {
	name, subject := consumerOfPool(poolAny), poolSubject+poolAny
	switch {
	case w.Pool != "" && poolName.MatchString(w.Pool):
		name, subject = consumerOfPool(w.Pool), poolSubject+w.Pool
	case w.Pool != "":
		k.f.cfg.Log.Warn("a worker's pool cannot be a pool's name; it gets nothing", "worker", w.ID, "pool", w.Pool)
		return
	}
	if _, there := k.made[name]; !there {
		wanted[name] = subject
	}
}

// make makes what is wanted and reports whether all of it is there. "" stands for the
// stream after a loss, whose gateway is told once everything is there again.
func (k *keeper) make(ctx context.Context, wanted map[string]string) bool {
	log := k.f.cfg.Log
	_, restored := wanted[""]
	if restored {
		if err := k.f.declareAll(ctx); err != nil {
			log.WarnContext(ctx, "the engine is not ready for tickets; trying again", "error", err)
			return false
		}
	}
	for name, subject := range wanted {
		if name == "" {
			continue
		}
		if err := k.f.consumer(ctx, name, subject); err != nil {
			log.WarnContext(ctx, "tickets of a pool cannot be handed out; trying again", "subject", subject, "error", err)
			return false
		}
		k.made[name] = subject
		delete(wanted, name)
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
	// Workers is how many it sees, by which they pace their requests.
	Workers int `json:"workers"`
}

func (k *keeper) announce() {
	data, err := json.Marshal(gatewayInfo{ID: k.f.cfg.Name, Workers: len(k.f.Workers())})
	if err == nil {
		err = k.f.nc.Publish(gatewaySubject, data)
	}
	if err != nil {
		k.f.cfg.Log.Debug("announcement not sent", "error", err)
	}
}
