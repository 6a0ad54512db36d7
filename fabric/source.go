package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Source hands tickets to one worker. What it wants of a queue that queue's hub asks for.
type Source struct {
	bus    *bus
	worker string
	takers map[string]*taker // by queue; never changed
}

// taker is what one worker takes from one queue.
type taker struct {
	hub    *hub
	worker string
	signal chan struct{} // capacity 1: a ticket came

	want   int      // slots of the open Take that have no ticket; guarded by hub.mu
	got    []*lease // came for it; guarded by hub.mu
	closed bool     // guarded by hub.mu
}

// longestTake is how long a Take waits for a ticket before its worker looks again.
const longestTake = time.Second

// newSource makes the source of a worker that takes from these queues.
func newSource(b *bus, worker string, queues []string) (*Source, error) {
	s := &Source{bus: b, worker: worker, takers: map[string]*taker{}}
	for _, queue := range queues {
		if s.takers[queue] != nil {
			continue
		}
		t := &taker{worker: worker, signal: make(chan struct{}, 1)}
		if err := b.enlist(t, queue); err != nil {
			s.Disconnect()
			return nil, err
		}
		s.takers[queue] = t
	}
	return s, nil
}

// Take implements workers.Source.
func (s *Source) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	taker := s.takers[queue]
	if taker == nil {
		return nil, fmt.Errorf("fabric: worker %s was not connected to the queue %q", s.worker, queue)
	}
	if got := taker.hub.ask(taker, n); len(got) > 0 {
		return got, nil
	}
	t := time.NewTimer(longestTake)
	defer t.Stop()
	select {
	case <-taker.signal:
	case <-t.C:
	case <-ctx.Done():
	}
	return taker.hub.collect(taker), nil
}

// Announce implements workers.Source.
func (s *Source) Announce(info wire.WorkerInfo) {
	data, err := json.Marshal(info)
	if err == nil {
		err = s.bus.nc.Publish(presenceSubject, data)
	}
	if err != nil {
		s.bus.cfg.Log.Debug("announcement not sent", "worker", info.ID, "error", err)
	}
}

// Close implements workers.Source.
func (s *Source) Close() {
	for _, t := range s.takers {
		t.hub.close(t)
	}
}

// Disconnect ends the source, after the worker has stopped: leases that are not over lapse.
func (s *Source) Disconnect() {
	s.Close()
	for _, t := range s.takers {
		s.bus.dismiss(t)
	}
}

// take gives a ticket to the worker. The caller holds mu.
func (t *taker) take(l *lease) {
	l.taker = t
	t.got = append(t.got, l)
}

// hand gives the worker what came. The caller holds mu.
func (t *taker) hand() []workers.Lease {
	out := make([]workers.Lease, 0, len(t.got))
	for _, l := range t.got {
		out = append(out, l)
	}
	t.got = nil
	return out
}
