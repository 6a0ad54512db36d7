package localmodel

// Size is what the cache holds: entries and bytes.
func (c *Cache[V]) Size() (entries, bytes int) {
	c.group.mu.Lock()
	defer c.group.mu.Unlock()
	return c.kept.order.Len(), c.kept.spent
}

// Overhead is what an entry costs beside its key and its value.
const Overhead = overhead
