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
	byID  map[string]wire.WorkerInfo // guarded by mu
	list  []wire.WorkerInfo          // by id; replaced, never changed; guarded by mu
	check time.Time                  // when the next one may be gone; guarded by mu
	stale time.Time                  // since when the list is behind byID; zero: it is not; guarded by mu
}

func watch(nc *nats.Conn, gone time.Duration, appeared func(wire.WorkerInfo) bool) (*presence, error) {
	p := &presence{gone: gone, appeared: appeared, byID: map[string]wire.WorkerInfo{}}
	if _, err := nc.Subscribe(presenceSubject, p.heard); err != nil { // ends with the connection
		return nil, fmt.Errorf("fabric: presence: %w", err)
	}
	return p, nc.Flush()
}

func (p *presence) heard(m *nats.Msg) {
	var info wire.WorkerInfo
	if err := json.Unmarshal(m.Data, &info); err != nil || info.ID == "" || foreign(m) {
		return // another release's word; the worker does not count until it speaks ours
	}
	info.Seen = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.byID[info.ID]
	if !known && !p.appeared(info) {
		return // it will be heard again
	}
	p.byID[info.ID] = info
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
	list := make([]wire.WorkerInfo, 0, len(p.byID))
	p.check, p.stale = time.Time{}, time.Time{}
	for _, w := range p.byID {
		list = append(list, w)
		if until := w.Seen.Add(p.gone); p.check.IsZero() || until.Before(p.check) {
			p.check = until
		}
	}
	slices.SortFunc(list, func(a, b wire.WorkerInfo) int { return cmp.Compare(a.ID, b.ID) })
	p.list = list
}

func (p *presence) workers(now time.Time) []wire.WorkerInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.check.IsZero() && now.After(p.check) {
		for id, w := range p.byID {
			if now.Sub(w.Seen) > p.gone {
				delete(p.byID, id)
			}
		}
		p.rebuild()
	} else if !p.stale.IsZero() && now.Sub(p.stale) > behind {
		p.rebuild()
	}
	return p.list
}
