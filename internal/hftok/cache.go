package hftok

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

const (
	// cacheSlots bounds the words remembered. The 1,017 prompts of flow_grpo's OCR test set have 6,582.
	cacheSlots = 1 << 13
	// cacheWord is the longest word remembered, in bytes: with the slots it bounds the cache to some
	// 6 MB in the worst case.
	cacheWord = 64
)

// wordCache remembers the ids of words. Each word has one slot, and the last word put there holds it:
// the size is bounded and nothing is ever locked.
type wordCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedWord]
}

type cachedWord struct {
	word string
	ids  []int64 // never written again
}

func newWordCache() *wordCache {
	return &wordCache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cachedWord], cacheSlots)}
}

// encode appends the ids of word to dst: remembered ones, or those that run appends, which it then
// remembers.
func (c *wordCache) encode(dst []int64, word string, run func(dst []int64) ([]int64, error)) ([]int64, error) {
	if len(word) > cacheWord || len(c.slots) == 0 {
		return run(dst)
	}
	slot := &c.slots[maphash.String(c.seed, word)&(cacheSlots-1)]
	if e := slot.Load(); e != nil && e.word == word {
		return append(dst, e.ids...), nil
	}
	at := len(dst)
	dst, err := run(dst)
	if err != nil {
		return nil, err
	}
	slot.Store(&cachedWord{word: strings.Clone(word), ids: append([]int64(nil), dst[at:]...)})
	return dst, nil
}
