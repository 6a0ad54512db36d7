package subprocess

import (
	"fmt"
	"hash/maphash"
	"sync"
)

// quarantineSize bounds the inputs that are remembered; the oldest is forgotten.
const quarantineSize = 1024

// quarantine remembers inputs by a hash of their meta and pixels. It is safe for
// concurrent use.
type quarantine struct {
	seed maphash.Seed

	mu    sync.Mutex
	why   map[uint64]error
	order []uint64
}

func newQuarantine() *quarantine {
	return &quarantine{seed: maphash.MakeSeed(), why: make(map[uint64]error)}
}

// check returns why an input is in quarantine, or nil. While nothing is, which
// is nearly always, it does not look at the pixels.
func (q *quarantine) check(req Request) error {
	if q.size() == 0 {
		return nil
	}
	key := q.key(req)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.why[key]
}

// admit refuses a request that is beyond a bound, or has killed a child or spoilt a handler
// before. It clips the request's name.
func (q *quarantine) admit(cfg Config, req *Request) error {
	req.Name = clip(req.Name, 256)
	if err := cfg.admit(*req); err != nil {
		return err
	}
	if why := q.check(*req); why != nil {
		return quarantined(req.Name, why)
	}
	return nil
}

func (q *quarantine) add(req Request, why error) {
	key := q.key(req)
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.why[key]; !ok {
		if len(q.order) == quarantineSize {
			delete(q.why, q.order[0])
			q.order = append(q.order[:0], q.order[1:]...)
		}
		q.order = append(q.order, key)
	}
	q.why[key] = why
}

func (q *quarantine) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order)
}

func (q *quarantine) key(req Request) uint64 {
	var h maphash.Hash
	h.SetSeed(q.seed)
	maphash.WriteComparable(&h, len(req.Meta))
	_, _ = h.Write(req.Meta)
	for _, p := range req.Pixels {
		_, _ = h.Write(p)
	}
	return h.Sum64()
}

// quarantined refuses a request whose input is remembered.
func quarantined(name string, why error) error {
	return fmt.Errorf("%w: %q is in quarantine after %d crashes of child processes: %w", ErrCrashed, name, attempts, why)
}
