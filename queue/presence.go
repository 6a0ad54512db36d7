package queue

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
)

// presence knows the live workers from what they announce. With a hundred workers of a
// hundred profiles that is 600 KB a second, in which next to nothing but counters moves: those
// are noted and nothing else, until somebody looks.
type presence struct {
	gone time.Duration
	// changed is told of a worker that was not there, or says other things than counters;
	// false: it is to be told again.
	changed func(wire.WorkerInfo) bool

	mu    sync.Mutex
	order []*wire.WorkerInfo // by id; guarded by mu
	crowd map[string]int     // how many of them take from a queue; guarded by mu
	revs  uint64             // changes so far; guarded by mu
	list  []wire.WorkerInfo  // the same as others have it; replaced, never changed; guarded by mu
	check time.Time          // when the next one may be gone; guarded by mu
	stale time.Time          // since when the list is behind; zero: it is not; guarded by mu
	other bool               // it is behind in more than counters; guarded by mu
}

func watch(nc *nats.Conn, gone time.Duration, changed func(wire.WorkerInfo) bool) (*presence, error) {
	p := &presence{gone: gone, changed: changed, crowd: map[string]int{}}
	if _, err := nc.Subscribe(presenceSubject, p.heard); err != nil { // ends with the connection
		return nil, fmt.Errorf("queue: presence: %w", err)
	}
	return p, nc.Flush()
}

// heard takes a worker's word. It runs on one goroutine of the connection.
func (p *presence) heard(m *nats.Msg) {
	p.mu.Lock()
	guess := p.guess(m.Data)
	p.mu.Unlock()
	info, err := wire.DecodeWorkerInfo(m.Data, guess)
	if err != nil || info.ID == "" || foreign(m, presenceSubject) {
		return // another release's word; the worker does not count until it speaks ours
	}
	info.Seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	i, known := p.at(info.ID)
	if known && info.Resembles(p.order[i]) {
		info.Rev = p.order[i].Rev
		*p.order[i] = info
		if p.stale.IsZero() {
			p.stale = info.Seen
		}
		return
	}
	if !p.changed(info) {
		return // it will be heard again
	}
	if known {
		p.count(p.order[i], -1)
	} else {
		p.order = slices.Insert(p.order, i, new(wire.WorkerInfo))
	}
	p.revs++
	info.Rev = p.revs
	*p.order[i] = info
	p.count(&info, 1)
	p.other = true
}

// guess is the worker that a word begins with, as it was; nil: there is none. The caller holds
// mu.
func (p *presence) guess(word []byte) *wire.WorkerInfo {
	rest, ours := bytes.CutPrefix(word, []byte(`{"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	if i, known := p.at(string(id)); ours && known {
		return p.order[i]
	}
	return nil
}

// behind is how long the list may show a worker's older word, where only its counters
// have moved: with a thousand workers there is one each millisecond, and every new list
// is a thousand entries.
const behind = 50 * time.Millisecond

// renew makes the list anew. The caller holds mu.
func (p *presence) renew() {
	list := make([]wire.WorkerInfo, len(p.order))
	p.check, p.stale, p.other = time.Time{}, time.Time{}, false
	for i, w := range p.order {
		list[i] = *w
		if until := w.Seen.Add(p.gone); p.check.IsZero() || until.Before(p.check) {
			p.check = until
		}
	}
	p.list = list
}

// count notes that a worker takes from its queues, or no longer does. The caller holds mu.
func (p *presence) count(w *wire.WorkerInfo, by int) {
	for _, profile := range w.Profiles {
		if p.crowd[profile.Queue] += by; p.crowd[profile.Queue] == 0 {
			delete(p.crowd, profile.Queue)
		}
	}
}

// serving is how many live workers take from a queue.
func (p *presence) serving(queue string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crowd[queue]
}

// at is where a worker is in the order, or belongs. The caller holds mu.
func (p *presence) at(id string) (int, bool) {
	return slices.BinarySearchFunc(p.order, id, func(w *wire.WorkerInfo, id string) int { return cmp.Compare(w.ID, id) })
}

// workers returns the live workers, by id, with counters that are at most behind old.
func (p *presence) workers(now time.Time) []wire.WorkerInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.check.IsZero() && now.After(p.check) {
		p.order = slices.DeleteFunc(p.order, func(w *wire.WorkerInfo) bool {
			lost := now.Sub(w.Seen) > p.gone
			if lost {
				p.count(w, -1)
			}
			return lost
		})
		p.renew()
	} else if p.other || !p.stale.IsZero() && now.Sub(p.stale) > behind {
		p.renew()
	}
	return p.list
}
