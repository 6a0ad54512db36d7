package localmodel

import (
	"container/list"
	"context"
)

// Cache keeps values by key within limits; the least recently used value is removed first. It is
// safe for concurrent use.
type Cache[V any] struct {
	group *group[V]
	kept  *lru[V]
}

// NewCache returns an empty cache with that maximum number of entries and maximum total size in
// bytes. size returns the approximate size of a value; the key is counted too.
func NewCache[V any](entries, bytes int, size func(v V) int) *Cache[V] {
	kept := &lru[V]{entries: entries, bytes: bytes, size: size, at: make(map[string]*list.Element)}
	return &Cache[V]{newGroup(kept, false), kept}
}

// Get returns the cached value of the key, or calls work and caches its result. Concurrent calls
// for the same key share one call of work, whose context has the values of the first caller's
// context, and ends when no caller waits any more. An error is that of work, or wraps that of ctx,
// and is not cached; a panic becomes an error of class rewards.Panicked.
func (c *Cache[V]) Get(ctx context.Context, key string, work func(ctx context.Context) (V, error)) (V, error) {
	return c.group.do(ctx, key, work)
}

// Peek returns the cached value of the key, if there is one.
func (c *Cache[V]) Peek(key string) (V, bool) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	v, _, ok := c.kept.get(key)
	return v, ok
}

// Put stores a value, and replaces the key's previous value.
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
