package chat

import (
	"container/list"
	"crypto/sha256"
)

// key is the digest of a question.
type key [sha256.Size]byte

// cache remembers replies, the least recently used go first. It has no lock: the
// client's guards it.
type cache struct {
	maxEntries int
	maxBytes   int64
	bytes      int64
	order      *list.List // of *entry, the most recently used first
	entries    map[key]*list.Element
}

type entry struct {
	key   key
	reply *Reply
	bytes int64
}

func newCache(entries int, bytes int64) *cache {
	return &cache{maxEntries: entries, maxBytes: bytes, order: list.New(), entries: make(map[key]*list.Element)}
}

func (c *cache) get(k key) (*Reply, bool) {
	el, ok := c.entries[k]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(el)
	return el.Value.(*entry).reply, true // the list holds nothing else
}

// put remembers a reply in the place of the one that k may have. What is larger than
// an eighth of the cache is not remembered: it would drive out everything else.
func (c *cache) put(k key, r *Reply) {
	if el, ok := c.entries[k]; ok {
		c.remove(el)
	}
	e := &entry{key: k, reply: r, bytes: r.size()}
	if c.maxEntries < 1 || e.bytes > c.maxBytes/8 {
		return
	}
	c.entries[k] = c.order.PushFront(e)
	c.bytes += e.bytes
	for len(c.entries) > c.maxEntries || c.bytes > c.maxBytes {
		c.remove(c.order.Back())
	}
}

func (c *cache) remove(el *list.Element) {
	e := c.order.Remove(el).(*entry) // the list holds nothing else
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}

// size is about what a remembered reply takes in bytes: 256 for the entry, 48 for
// each token.
func (r *Reply) size() int64 {
	n := 256 + len(r.Text) + len(r.Reasoning) + len(r.FinishReason)
	for _, t := range r.Logprobs {
		n += 48 + len(t.Text)
		for _, alt := range t.Top {
			n += 48 + len(alt.Text)
		}
	}
	return int64(n)
}
