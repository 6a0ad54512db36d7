package vlm

import (
	"container/list"
	"sync"
)

// memory keeps what was made for a key, the least recently used goes first. What two
// ask for at the same time is made once.
type memory[V any] struct {
	entries int // the most it keeps
	cost    int // the most that these cost together

	mu    sync.Mutex
	known map[string]*list.Element // guarded by mu; of *remembered[V]
	order list.List                // guarded by mu; most recently used first
	spent int                      // guarded by mu
}

type remembered[V any] struct {
	key  string
	cost int // guarded by memory.mu; 0 until it is made
	make func() (V, int, error)
}

// get returns what is known of a key, or makes it. What cannot be made is forgotten.
func (m *memory[V]) get(key string, create func() (V, int, error)) (V, error) {
	m.mu.Lock()
	at, ok := m.known[key]
	if ok {
		m.order.MoveToFront(at)
	} else {
		at = m.add(key, create)
	}
	r, _ := at.Value.(*remembered[V])
	m.mu.Unlock()
	v, cost, err := r.make()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[key] != at { // it had to go while it was made
		return v, err
	}
	if err != nil {
		m.remove(at)
		return v, err
	}
	if r.cost == 0 {
		r.cost = cost + len(key)
		m.spent += r.cost
	}
	for m.order.Len() > m.entries || (m.spent > m.cost && m.order.Len() > 0) {
		m.remove(m.order.Back())
	}
	return v, nil
}

// add puts a key in front. The caller holds mu.
func (m *memory[V]) add(key string, create func() (V, int, error)) *list.Element {
	if m.known == nil {
		m.known = make(map[string]*list.Element)
	}
	var (
		once sync.Once
		v    V
		cost int
		err  error
	)
	at := m.order.PushFront(&remembered[V]{key: key, make: func() (V, int, error) {
		once.Do(func() { err = guarded(func() (err error) { v, cost, err = create(); return err }) })
		return v, cost, err
	}})
	m.known[key] = at
	return at
}

// remove forgets. The caller holds mu.
func (m *memory[V]) remove(at *list.Element) {
	r, _ := m.order.Remove(at).(*remembered[V])
	m.spent -= r.cost
	delete(m.known, r.key)
}
