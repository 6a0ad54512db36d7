package hftok

// cacheOf returns the model's cache, or nil.
func (t *Tokenizer) cacheOf() *wordCache {
	switch m := t.model.(type) {
	case *bpe:
		return m.cache
	case *wordPiece:
		return m.cache
	case *unigram:
		return m.cache
	}
	return nil
}

// ForgetWords empties the cache of words.
func (t *Tokenizer) ForgetWords() {
	if c := t.cacheOf(); c != nil {
		for i := range c.slots {
			c.slots[i].Store(nil)
		}
	}
}

// RememberNothing turns the cache of words off.
func (t *Tokenizer) RememberNothing() {
	if c := t.cacheOf(); c != nil {
		c.slots = nil
	}
}

// Words counts the words remembered.
func (t *Tokenizer) Words() (n, limit int) {
	c := t.cacheOf()
	for i := range c.slots {
		if c.slots[i].Load() != nil {
			n++
		}
	}
	return n, len(c.slots)
}
