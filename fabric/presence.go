package fabric

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rewardloop/rewardloop/wire"
)

// presence knows the live workers from what they announce.
type presence struct {
	gone time.Duration
	// appeared is told of a worker that was not there; false: it is to be told again.
	appeared func(wire.WorkerInfo) bool

	mu    sync.Mutex
	order []*wire.WorkerInfo // by id; guarded by mu
	list  []wire.WorkerInfo  // the same as others have it; replaced, never changed; guarded by mu
	check time.Time          // when the next one may be gone; guarded by mu
	stale time.Time          // since when the list is behind; zero: it is not; guarded by mu
}

func watch(nc *nats.Conn, gone time.Duration, appeared func(wire.WorkerInfo) bool) (*presence, error) {
	p := &presence{gone: gone, appeared: appeared}
	if _, err := nc.Subscribe(presenceSubject, p.heard); err != nil { // ends with the connection
		return nil, fmt.Errorf("fabric: presence: %w", err)
	}
	return p, nc.Flush()
}

func (p *presence) heard(m *nats.Msg) {
	var info wire.WorkerInfo
	if err := json.Unmarshal(m.Data, &info); err != nil || info.ID == "" || foreign(m, presenceSubject) {
		return // another release's word; the worker does not count until it speaks ours
	}
	info.Seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	i, known := p.at(info.ID)
	if !known {
		if !p.appeared(info) {
			return // it will be heard again
		}
		p.order = slices.Insert(p.order, i, new(wire.WorkerInfo))
	}
	before := *p.order[i]
	*p.order[i] = info
	if !known || before.State != info.State || before.Slots != info.Slots || before.Pool != info.Pool {
		p.rebuild()
	} else if p.stale.IsZero() {
		p.stale = info.Seen
	}
}

// behind is how long the list may show a worker's older word, where only its counters
// have moved: with a thousand workers there is one each millisecond, and every new list
// is a thousand entries.
const behind = 50 * time.Millisecond

// rebuild makes the list anew. The caller holds mu.
func (p *presence) rebuild() {
	list := make([]wire.WorkerInfo, len(p.order))
	p.check, p.stale = time.Time{}, time.Time{}
	for i, w := range p.order {
		list[i] = *w
		if until := w.Seen.Add(p.gone); p.check.IsZero() || until.Before(p.check) {
			p.check = until
		}
	}
	p.list = list
}

// at is where a worker is in the order, or belongs. The caller holds mu.
func (p *presence) at(id string) (int, bool) {
	return slices.BinarySearchFunc(p.order, id, func(w *wire.WorkerInfo, id string) int { return cmp.Compare(w.ID, id) })
}

func (p *presence) workers(now time.Time) []wire.WorkerInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.check.IsZero() && now.After(p.check) {
		p.order = slices.DeleteFunc(p.order, func(w *wire.WorkerInfo) bool { return now.Sub(w.Seen) > p.gone })
		p.rebuild()
	} else if !p.stale.IsZero() && now.Sub(p.stale) > behind {
		p.rebuild()
	}
	return p.list
}
