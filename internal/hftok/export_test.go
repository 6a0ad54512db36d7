package hftok

// The classes of errors, and the longest text.
var (
	ErrInvalid     = errInvalid
	ErrUnsupported = errUnsupported
	ErrText        = errText
)

const MaxText = maxText

// Parse is Load for a file in memory.
func Parse(data []byte) (*Tokenizer, error) { return parse(data) }

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

// Token returns the token of an id as the vocabulary writes it.
func (t *Tokenizer) Token(id int64) (string, bool) {
	token, ok := t.tokens[id]
	return token, ok
}

// Kept is the room that the lists of the last call have left to the next one, and its bound.
func (t *Tokenizer) Kept() (room, limit int) {
	sc, ok := t.scratch.Get().(*scratch)
	if !ok {
		return 0, maxKept
	}
	return max(sc.room(), cap(sc.spare)), maxKept
}
