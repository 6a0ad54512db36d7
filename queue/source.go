package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Source hands tickets to one worker. The hub of each queue requests the tickets.
type Source struct {
	bus    *bus
	worker string

	mu     sync.Mutex
	takers map[string]*taker // by queue; guarded by mu
}

// taker is what one worker takes from one queue.
type taker struct {
	hub    *hub
	worker string
	signal chan struct{} // capacity 1: a ticket came

	want   int      // places of the open Take that have no ticket; guarded by hub.mu
	got    []*lease // came for it; guarded by hub.mu
	closed bool     // guarded by hub.mu
}

// longestTake is how long a Take waits for a ticket before its worker looks again.
const longestTake = time.Second

// newSource makes the source of a worker that takes from these queues.
func newSource(b *bus, worker string, queues []string) (*Source, error) {
	s := &Source{bus: b, worker: worker, takers: map[string]*taker{}}
	for _, queue := range queues {
		if err := s.open(queue); err != nil {
			s.Disconnect()
			return nil, err
		}
	}
	return s, nil
}

// open has the worker take from a queue.
func (s *Source) open(queue string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.takers[queue]; t != nil {
		t.hub.reopen(t)
		return nil
	}
	t := &taker{worker: s.worker, signal: make(chan struct{}, 1)}
	if err := s.bus.enlist(t, queue); err != nil {
		return err
	}
	s.takers[queue] = t
	return nil
}

// Move implements workers.Source. It also forgets queues that the worker left earlier and has no
// lease of.
func (s *Source) Move(from, to string) error {
	if err := s.open(to); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for queue, t := range s.takers {
		switch {
		case queue == from:
			t.hub.close(t)
		case queue != to && t.hub.left(t) && len(s.bus.attempts.of(t)) == 0:
			s.bus.dismiss(t)
			delete(s.takers, queue)
		}
	}
	return nil
}

// Take implements workers.Source. It returns after at most 1 s.
func (s *Source) Take(ctx context.Context, queue string, n int) ([]workers.Lease, error) {
	s.mu.Lock()
	taker := s.takers[queue]
	s.mu.Unlock()
	if taker == nil {
		return nil, fmt.Errorf("queue: worker %s was not connected to the queue %q", s.worker, queue)
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
		s.bus.cfg.Log.Debug("the announcement of a worker was not sent to gateways; the worker announces itself every second", "worker", info.ID, "error", err)
	}
}

// Close implements workers.Source.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.takers {
		t.hub.close(t)
	}
}

// Disconnect ends the source after the worker has stopped. The remaining leases lapse.
func (s *Source) Disconnect() {
	s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
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
