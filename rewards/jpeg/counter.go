package jpeg

import "math/bits"

// mcuSide is the side of a minimum coded unit in pixels: with chroma at half
// resolution both ways (4:2:0) it holds 2×2 luma blocks and one of each chroma.
const mcuSide = 16

const (
	endOfBlock = 0x00 // symbol: no further non-zero coefficient
	zeroRun    = 0xF0 // symbol: sixteen zeros
)

// counter codes one picture, MCU by MCU. One goroutine owns it; all of its
// state is fixed-size (about 9 KiB), so the picture's size does not matter.
type counter struct {
	luma, chroma coder
	dc           [3]int32 // quantised DC of the last block of Y, Cb, Cr
	bits         bitCounter

	// One MCU before the transform. The colour planes are at full resolution;
	// rows and columns beyond the picture repeat its edge.
	y, cb, cr [mcuSide * mcuSide]int32
	work      block
}

// coder is what a class of component is quantised and coded with.
type coder struct {
	quant quantiser
	dc    [256]code
	ac    [256]code
}

func newCounter(quality int) *counter {
	return &counter{
		luma:   coder{quant: newQuantiser(lumaQuant(), quality), dc: lumaDC().codes(), ac: lumaAC().codes()},
		chroma: coder{quant: newQuantiser(chromaQuant(), quality), dc: chromaDC().codes(), ac: chromaAC().codes()},
	}
}

// mcu codes the unit whose top left pixel is (x0, y0).
func (c *counter) mcu(rgb []byte, width, height, x0, y0 int) {
	c.convert(rgb, width, height, x0, y0)
	for by := 0; by < mcuSide; by += 8 {
		for bx := 0; bx < mcuSide; bx += 8 {
			if x0+bx >= width || y0+by >= height {
				c.dummy()
				continue
			}
			for r := range 8 {
				copy(c.work[8*r:8*r+8], c.y[(by+r)*mcuSide+bx:])
			}
			c.block(&c.luma, 0)
		}
	}
	// Rows of chroma that hold at least one row of the picture.
	rows := min(8, (height-y0+1)/2)
	c.halve(&c.cb, rows)
	c.block(&c.chroma, 1)
	c.halve(&c.cr, rows)
	c.block(&c.chroma, 2)
}

// convert fills the MCU's planes with Y, Cb, Cr less 128, computed per pixel in
// libjpeg's fixed point (jccolor.c: 1/65536 units; Y rounds half up, Cb and Cr
// round half down by the −1 in their constant).
func (c *counter) convert(rgb []byte, width, height, x0, y0 int) {
	const (
		half   = 1 << 15
		centre = 128 << 16
	)
	across := min(mcuSide, width-x0)
	down := min(mcuSide, height-y0)
	for j := range down {
		line := rgb[3*((y0+j)*width+x0):][:3*across]
		ys := (*[mcuSide]int32)(c.y[j*mcuSide:])
		cbs := (*[mcuSide]int32)(c.cb[j*mcuSide:])
		crs := (*[mcuSide]int32)(c.cr[j*mcuSide:])
		for i := range across {
			r, g, b := int32(line[3*i]), int32(line[3*i+1]), int32(line[3*i+2])
			ys[i] = (19595*r + 38470*g + 7471*b + half - centre) >> 16
			cbs[i] = (-11059*r - 21709*g + 32768*b + half - 1) >> 16
			crs[i] = (32768*r - 27439*g - 5329*b + half - 1) >> 16
		}
		for i := across; i < mcuSide; i++ {
			ys[i], cbs[i], crs[i] = ys[i-1], cbs[i-1], crs[i-1]
		}
	}
	for j := down; j < mcuSide; j++ {
		copy(c.y[j*mcuSide:(j+1)*mcuSide], c.y[(j-1)*mcuSide:])
		copy(c.cb[j*mcuSide:(j+1)*mcuSide], c.cb[(j-1)*mcuSide:])
		copy(c.cr[j*mcuSide:(j+1)*mcuSide], c.cr[(j-1)*mcuSide:])
	}
}

// halve writes the mean of every 2×2 pixels of a colour plane to c.work. The
// rounding component is 1 in even and 2 in odd columns (jcsample.c
// h2v2_downsample), so that ties do not all go up. Below the last of rows the
// halved row itself is repeated, not the picture's last line: libjpeg pads
// after halving.
func (c *counter) halve(plane *[mcuSide * mcuSide]int32, rows int) {
	for r := range rows {
		top := (*[mcuSide]int32)(plane[2*r*mcuSide:])
		low := (*[mcuSide]int32)(plane[(2*r+1)*mcuSide:])
		out := (*[8]int32)(c.work[8*r:])
		for i := range out {
			bias := int32(1 + i&1)
			out[i] = (top[2*i] + top[2*i+1] + low[2*i] + low[2*i+1] + bias) >> 2
		}
	}
	for r := rows; r < 8; r++ {
		copy(c.work[8*r:8*r+8], c.work[8*r-8:8*r])
	}
}

// dummy codes a luma block that lies wholly outside the picture: libjpeg gives
// it the previous block's DC and no AC, so it costs the codes of a zero
// difference and of an end of block (T.81 table K.3 and K.5: 2 and 4 bits).
func (c *counter) dummy() {
	zero, end := c.luma.dc[0], c.luma.ac[endOfBlock]
	c.bits.put(uint32(zero.bits), uint(zero.length))
	c.bits.put(uint32(end.bits), uint(end.length))
}

// block transforms, quantises and codes c.work as the next block of component
// comp (T.81 F.1.2).
func (c *counter) block(with *coder, comp int) {
	c.work.transform()
	var coef [64]int32 // in zig-zag order
	used := quantise(&coef, &c.work, &with.quant)

	diff := coef[0] - c.dc[comp]
	c.dc[comp] = coef[0]
	size, extra := magnitude(diff)
	c.symbol(with.dc[size], size, extra)

	last := 0
	for used &^= 1; used != 0; used &= used - 1 {
		k := bits.TrailingZeros64(used)
		run := k - last - 1
		for ; run > 15; run -= 16 {
			c.symbol(with.ac[zeroRun], 0, 0)
		}
		size, extra := magnitude(coef[k])
		c.symbol(with.ac[uint(run)<<4|size], size, extra)
		last = k
	}
	if last < 63 {
		c.symbol(with.ac[endOfBlock], 0, 0)
	}
}

// quantise divides with rounding half away from zero, reorders, and returns a
// bit set of the non-zero results.
func quantise(out *[64]int32, in *block, by *quantiser) (used uint64) {
	for k := range out {
		d := &by[k]
		v := in[d.at&63]
		sign := v >> 31
		abs := uint32((v ^ sign) - sign)
		q := int32(uint64(abs+d.half) * uint64(d.inv) >> 32)
		used |= uint64(uint32(-q)>>31) << k
		out[k] = (q ^ sign) - sign
	}
	return used
}

// magnitude returns the number of bits of |v| and the bits that are appended to
// the symbol: v itself, or v−1 for a negative v, cut to that many bits.
func magnitude(v int32) (size uint, extra uint32) {
	sign := v >> 31
	size = uint(bits.Len32(uint32((v ^ sign) - sign)))
	return size, uint32(v+sign) & (1<<size - 1)
}

func (c *counter) symbol(s code, size uint, extra uint32) {
	c.bits.put(uint32(s.bits)<<size|extra, uint(s.length)+size)
}

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
