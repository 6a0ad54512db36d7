package fabric

import (
	"context"
	"encoding/json"
	"time"

	"github.com/rewardloop/rewardloop/wire"
	"github.com/rewardloop/rewardloop/workers"
)

// Source hands the stream's tickets to one worker. What it wants its hub asks for.
type Source struct {
	hub    *hub
	worker string
	signal chan struct{} // capacity 1: a ticket came

	want   int      // slots of the open Take that have no ticket; guarded by hub.mu
	got    []*lease // came for it; guarded by hub.mu
	closed bool     // guarded by hub.mu
}

// longestTake is how long a Take waits for a ticket before its worker looks again.
const longestTake = time.Second

// newSource makes a worker's source; crowd is how many workers share the engine.
func newSource(b *bus, worker string, crowd func() int) (*Source, error) {
	s := &Source{worker: worker, signal: make(chan struct{}, 1)}
	return s, b.enlist(s, consumerOfPool(b.cfg.Pool), crowd)
}

// Take implements workers.Source.
func (s *Source) Take(ctx context.Context, n int) ([]workers.Lease, error) {
	if got := s.hub.ask(s, n); len(got) > 0 {
		return got, nil
	}
	t := time.NewTimer(longestTake)
	defer t.Stop()
	select {
	case <-s.signal:
	case <-t.C:
	case <-ctx.Done():
	}
	return s.hub.collect(s), nil
}

// Announce implements workers.Source.
func (s *Source) Announce(info wire.WorkerInfo) {
	data, err := json.Marshal(info)
	if err == nil {
		err = s.hub.bus.nc.Publish(presenceSubject, data)
	}
	if err != nil {
		s.hub.bus.cfg.Log.Debug("announcement not sent", "worker", info.ID, "error", err)
	}
}

// Close implements workers.Source.
func (s *Source) Close() { s.hub.close(s) }

// Disconnect ends the source, after the worker has stopped: leases that are not over lapse.
func (s *Source) Disconnect() {
	s.Close()
	s.hub.bus.dismiss(s)
}

// take gives a ticket to the source. The caller holds mu.
func (s *Source) take(l *lease) {
	l.source = s
	s.got = append(s.got, l)
}

// hand gives the worker what came. The caller holds mu.
func (s *Source) hand() []workers.Lease {
	out := make([]workers.Lease, 0, len(s.got))
	for _, l := range s.got {
		out = append(out, l)
	}
	s.got = nil
	return out
}
