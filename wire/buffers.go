package wire

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minClassBits = 12 // the smallest class holds 4 KiB
	maxClassBits = 28 // a buffer above 256 MiB is not kept
	classCount   = (maxClassBits-minClassBits)*4 + 1
)

// Buffers lends byte buffers by size class. There are four classes to the octave, so a buffer is at
// most a quarter larger than requested. Of the returned buffers, the first 32 MiB are kept; all
// others stay in sync.Pools, which the garbage collector empties. The zero value is ready to use. A
// Buffers must not be copied and is safe for concurrent use.
type Buffers struct {
	// Poison fills released buffers with 0xDB, so that a test can detect a read of a frame after
	// its release. Poison must be set before the first use.
	Poison bool

	live    atomic.Int64
	classes [classCount]sync.Pool

	mu    sync.Mutex
	kept  [classCount][]*buffer // guarded by mu
	bytes int                   // of kept; guarded by mu
}

// keepBytes bounds what is kept over collections. Without it each collection, three
// a second under load, is followed by clearing fresh memory for every frame: of
// 786 KB that is 0.1 ms.
const keepBytes = 32 << 20

// buffer is what the pools hold: a pointer, so that Put does not allocate.
type buffer struct {
	b     []byte
	class int // -1: not pooled
}

// Live returns the number of bytes that are lent out, counted by the size of their class.
func (p *Buffers) Live() int64 { return p.live.Load() }

// get lends a buffer of length n; of a nil Buffers it is the garbage collector's.
func (p *Buffers) get(n int) *buffer {
	if p == nil {
		return &buffer{b: make([]byte, n), class: -1}
	}
	class, size := classFor(n)
	var buf *buffer
	if class >= 0 {
		if buf = p.take(class); buf == nil {
			buf, _ = p.classes[class].Get().(*buffer)
		}
	}
	if buf == nil {
		buf = &buffer{b: make([]byte, size), class: class}
	}
	buf.b = buf.b[:n]
	p.live.Add(int64(cap(buf.b)))
	return buf
}

// put takes a buffer back.
func (p *Buffers) put(buf *buffer) {
	if p == nil {
		return
	}
	buf.b = buf.b[:cap(buf.b)]
	p.live.Add(-int64(len(buf.b)))
	if p.Poison {
		for i := range buf.b {
			buf.b[i] = 0xDB
		}
	}
	if buf.class >= 0 && !p.keep(buf) {
		p.classes[buf.class].Put(buf)
	}
}

// take returns a kept buffer of the class, or nil.
func (p *Buffers) take(class int) *buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.kept[class]
	if len(kept) == 0 {
		return nil
	}
	last := len(kept) - 1
	buf := kept[last]
	kept[last] = nil
	p.kept[class] = kept[:last]
	p.bytes -= cap(buf.b)
	return buf
}

// keep takes the buffer unless enough is kept.
func (p *Buffers) keep(buf *buffer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bytes+cap(buf.b) > keepBytes {
		return false
	}
	p.kept[buf.class] = append(p.kept[buf.class], buf)
	p.bytes += cap(buf.b)
	return true
}

// classFor returns the class of a buffer of n bytes and the size of that class;
// class -1 and n itself beyond the largest.
func classFor(n int) (class, size int) {
	if n <= 1<<minClassBits {
		return 0, 1 << minClassBits
	}
	if n > 1<<maxClassBits {
		return -1, n
	}
	k := bits.Len(uint(n-1)) - 1 // 2^k < n <= 2^(k+1)
	quarter := 1 << (k - 2)
	steps := (n - 1<<k + quarter - 1) / quarter
	return (k-minClassBits)*4 + steps, 1<<k + steps*quarter
}
