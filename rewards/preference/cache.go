package preference

import "container/list"

// The bounds of a model's cache of embeddings, unless Deps says otherwise.
const (
	defaultEntries = 4096
	defaultBytes   = 64 << 20
)

// embedding is what a tower makes of a picture or a text.
type embedding struct {
	values []float32
	// norm is its length, above 0 and finite.
	norm float64
	// truncated says that the text was longer than the tower reads.
	truncated bool
}

// lru keeps embeddings by what they are of, the least recently used out first. Failures
// are not kept. It is used with a group's mutex held.
type lru struct {
	entries, bytes int // bounds
	size           int // bytes of what is kept
	order          *list.List
	at             map[string]*list.Element
}

type entry struct {
	key   string
	value embedding
}

// overhead is what an entry costs beside its key and its numbers, about: list element,
// map cell, headers.
const overhead = 200

func (e entry) bytes() int { return overhead + len(e.key) + 4*len(e.value.values) }

func newLRU(entries, bytes int) *lru {
	return &lru{entries: entries, bytes: bytes, order: list.New(), at: make(map[string]*list.Element)}
}

func (c *lru) get(k string) (embedding, error, bool) {
	el := c.at[k]
	if el == nil {
		return embedding{}, nil, false
	}
	c.order.MoveToFront(el)
	return held(el).value, nil, true
}

func (c *lru) put(k string, v embedding, err error) {
	e := entry{k, v}
	if err != nil || e.bytes() > c.bytes {
		return
	}
	if el := c.at[k]; el != nil {
		c.drop(el)
	}
	c.at[k] = c.order.PushFront(e)
	c.size += e.bytes()
	for c.order.Len() > c.entries || c.size > c.bytes {
		c.drop(c.order.Back())
	}
}

func (c *lru) drop(el *list.Element) {
	e := held(el)
	c.order.Remove(el)
	delete(c.at, e.key)
	c.size -= e.bytes()
}

// held is what an element of the list holds; put makes them all.
func held(el *list.Element) entry {
	e, _ := el.Value.(entry)
	return e
}
