package ort

import (
	"cmp"
	"math/bits"
	"sync"
)

// buffers keep memory between runs, in sizes of powers of two, so that varying
// shapes share it. It is safe for concurrent use.
type buffers struct {
	mu   sync.Mutex
	free map[int][][]byte // guarded by mu; by size
	held int              // guarded by mu; bytes in free
	most int              // that are kept; 0: maxHeld
}

// maxHeld bounds what buffers keep. The largest outputs here, probability maps of
// 2,048 by 2,048 floats, have 16 MiB. A language model's are larger: the cache of 30
// layers with 3 heads of 64 has 45 KiB a token and item, half of it in F16.
const (
	maxHeld      = 64 << 20
	maxHeldCache = 512 << 20
)

// get returns at least n bytes that begin at a multiple of 8. They are not zeroed.
func (b *buffers) get(n int) []byte {
	size := 1 << bits.Len(uint(max(n, alignment)-1)) //nolint:gosec // positive
	b.mu.Lock()
	defer b.mu.Unlock()
	if all := b.free[size]; len(all) > 0 {
		b.free[size] = all[:len(all)-1]
		b.held -= size
		return all[len(all)-1]
	}
	return make([]byte, size)
}

// put takes memory back that get gave.
func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held+len(buf) > cmp.Or(b.most, maxHeld) {
		return
	}
	if b.free == nil {
		b.free = make(map[int][][]byte)
	}
	b.free[len(buf)] = append(b.free[len(buf)], buf)
	b.held += len(buf)
}
