package localmodel

import (
	"container/list"
	"context"
)

// Cache keeps what was made for a key, within bounds: the least recently used goes
// first. It is safe for concurrent use.
type Cache[V any] struct {
	group *group[V]
	kept  *lru[V]
}

// NewCache makes an empty cache of at most so many entries, which together have at most
// so many bytes. Size is about how many a value has; its key is counted too.
func NewCache[V any](entries, bytes int, size func(v V) int) *Cache[V] {
	kept := &lru[V]{entries: entries, bytes: bytes, size: size, at: make(map[string]*list.Element)}
	return &Cache[V]{newGroup(kept, false), kept}
}

// Get returns what is kept for the key, or what work makes of it, which is kept then.
// Work runs once for all who ask at the same time: its context has the values of the
// first one's, and ends when nobody waits any more. An error is work's, or wraps that of
// ctx, and is not kept; a panic is of class rewards.Panicked.
func (c *Cache[V]) Get(ctx context.Context, key string, work func(ctx context.Context) (V, error)) (V, error) {
	return c.group.do(ctx, key, work)
}

// Peek returns what is kept for the key, if anything is.
func (c *Cache[V]) Peek(key string) (V, bool) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	v, _, ok := c.kept.get(key)
	return v, ok
}

// Put keeps a value, in place of the one that the key had.
func (c *Cache[V]) Put(key string, v V) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	c.kept.put(key, v, nil)
}

// lru is the store of a Cache.
type lru[V any] struct {
	entries, bytes int // bounds
	size           func(v V) int

	spent int       // bytes of what is kept
	order list.List // of *entry[V], most recently used first
	at    map[string]*list.Element
}

type entry[V any] struct {
	key   string
	value V
	bytes int
}

// overhead is what an entry costs beside its key and its value, about: list element, map
// cell, headers.
const overhead = 200

func (c *lru[V]) get(key string) (V, error, bool) {
	el := c.at[key]
	if el == nil {
		var none V
		return none, nil, false
	}
	c.order.MoveToFront(el)
	return held[V](el).value, nil, true
}

func (c *lru[V]) put(key string, v V, err error) {
	if err != nil {
		return
	}
	if el := c.at[key]; el != nil {
		c.drop(el)
	}
	e := &entry[V]{key, v, overhead + len(key) + c.size(v)}
	if e.bytes > c.bytes {
		return // nothing else has to go for it
	}
	c.at[key] = c.order.PushFront(e)
	c.spent += e.bytes
	for c.order.Len() > c.entries || c.spent > c.bytes {
		c.drop(c.order.Back())
	}
}

func (c *lru[V]) drop(el *list.Element) {
	e := held[V](el)
	c.order.Remove(el)
	delete(c.at, e.key)
	c.spent -= e.bytes
}

// held is what an element of the list holds; put makes them all.
func held[V any](el *list.Element) *entry[V] {
	e, _ := el.Value.(*entry[V])
	return e
}
