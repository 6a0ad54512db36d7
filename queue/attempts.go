package queue

import (
	"sync"

	"github.com/rewardloop/rewardloop/wire"
)

// attempts are those that workers of this process have, and those that are over.
type attempts struct {
	mu     sync.Mutex
	leases map[wire.AttemptKey]*lease // of all that came and are not over; guarded by mu
	over   *recent                    // attempts that were revoked; guarded by mu
}

// remembered is how many revocations are: the word of one may come before its ticket.
const remembered = 4096

func newAttempts(most int) *attempts {
	return &attempts{leases: map[wire.AttemptKey]*lease{}, over: newRecent(most)}
}

// begin notes a lease; false: its attempt is over.
func (a *attempts) begin(l *lease) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := l.ticket.Key()
	if a.over.has(key) {
		return false
	}
	a.leases[key] = l
	return true
}

// end forgets a lease.
func (a *attempts) end(l *lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if key := l.ticket.Key(); a.leases[key] == l {
		delete(a.leases, key)
	}
}

// of returns the leases that a worker has of a queue. The caller holds the mutex of its hub.
func (a *attempts) of(t *taker) (leases []*lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if l.hub == t.hub && l.taker == t {
			leases = append(leases, l)
		}
	}
	return leases
}

// revoke ends the lease of an attempt that is over.
func (a *attempts) revoke(key wire.AttemptKey) {
	a.mu.Lock()
	a.over.add(key)
	l := a.leases[key]
	a.mu.Unlock()
	if l == nil {
		return
	}
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.revoked = true
	l.cancel()
}

// recent remembers the latest keys, a bounded number of them.
type recent struct {
	set  map[wire.AttemptKey]bool
	ring []wire.AttemptKey // grows up to most, then the oldest makes room
	most int
	next int
}

func newRecent(most int) *recent {
	return &recent{set: make(map[wire.AttemptKey]bool), most: most}
}

func (r *recent) add(k wire.AttemptKey) {
	if r.set[k] {
		return
	}
	r.set[k] = true
	if len(r.ring) < r.most {
		r.ring = append(r.ring, k)
		return
	}
	delete(r.set, r.ring[r.next])
	r.ring[r.next] = k
	r.next = (r.next + 1) % r.most
}

func (r *recent) has(k wire.AttemptKey) bool { return r.set[k] }
