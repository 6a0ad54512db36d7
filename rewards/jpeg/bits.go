package jpeg

// bitCounter receives the entropy-coded bits and remembers only how many bytes
// they come to. Whether a byte is stuffed depends on its value, so the last
// bits are kept until they fill a word.
type bitCounter struct {
	acc   uint64 // the newest pending bits, right-aligned; bits above them are old and ignored
	n     uint   // number of pending bits, below 32 between two puts
	bytes int    // bytes completed, stuffing included
}

// put appends the low n bits of v; n is at most 26 (16 of a Huffman code and 10
// of an AC coefficient), so that acc never holds more than 57 pending bits. Bits
// of v above n must be zero.
func (b *bitCounter) put(v uint32, n uint) {
	b.acc = b.acc<<n | uint64(v)
	b.n += n
	if b.n >= 32 {
		b.n -= 32
		b.word(uint32(b.acc >> b.n))
	}
}

// word completes four bytes. A byte 0xFF is followed by a stuffed 0x00 (T.81
// F.1.2.3); the first test passes in one step the words that have none, which are
// most.
func (b *bitCounter) word(w uint32) {
	b.bytes += 4
	if inv := ^w; (inv-0x01010101)&w&0x80808080 == 0 {
		return
	}
	for ; w != 0; w >>= 8 {
		if w&0xFF == 0xFF {
			b.bytes++
		}
	}
}

// finish fills the last byte with ones, as libjpeg does, and returns the number
// of bytes. The padding can make that byte 0xFF, which is stuffed as well.
func (b *bitCounter) finish() int {
	for b.n >= 8 {
		b.n -= 8
		b.last(byte(b.acc >> b.n))
	}
	if b.n > 0 {
		b.last(byte(b.acc<<(8-b.n)) | 0xFF>>b.n)
		b.n = 0
	}
	return b.bytes
}

func (b *bitCounter) last(v byte) {
	b.bytes++
	if v == 0xFF {
		b.bytes++
	}
}
