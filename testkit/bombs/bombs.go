// Package bombs creates pictures that are small files but expensive to decode, as an attacker would
// send them to overload a reward server. The pictures are generated and not stored as files.
package bombs

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
)

// All returns functions that create the bombs that the server must withstand, by name. side is the
// side of the largest PNG. 4096, the maximum with the default limits, takes a second to create and
// another to decode.
func All(side int) map[string]func() []byte {
	return map[string]func() []byte{
		"webp_groups":      webPGroups,
		"png16_interlaced": func() []byte { return PNGInterlaced(side) },
		// With 4,096, the largest that may have 64 scans.
		"jpeg_scans":       func() []byte { return JPEGScans(side/2, 64) },
		"jpeg_scans_large": func() []byte { return JPEGScans(4096, 64) },
		"png_65535":        func() []byte { return pngHeader(65535, 65535) },
		"zlib_tail":        func() []byte { return pngTail(64, 16*side*side) },
	}
}

// chunk is one chunk of a PNG.
func chunk(name string, body []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	out = append(append(out, name...), body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

// The kinds of PNG, as their headers name them.
const (
	gray  = 0
	color = 6 // with alpha
)

// pngOf is a PNG of what the zlib stream holds.
func pngOf(width, height uint32, depth, kind, interlaced byte, stream []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, width)
	head = binary.BigEndian.AppendUint32(head, height)
	head = append(head, depth, kind, 0, 0, interlaced)
	out := append([]byte("\x89PNG\r\n\x1a\n"), chunk("IHDR", head)...)
	out = append(out, chunk("IDAT", stream)...)
	return append(out, chunk("IEND", nil)...)
}

// pngHeader is a PNG of 70 bytes that declares a size and has no pixels.
func pngHeader(width, height uint32) []byte {
	return pngOf(width, height, 8, color, 0, []byte{0x78, 0x9c, 0, 0, 0, 0})
}

// zeros is a zlib stream of n zeros, a thousandth of that as long.
func zeros(n int) []byte {
	var out bytes.Buffer
	w, _ := zlib.NewWriterLevel(&out, zlib.BestCompression) // the level exists
	block := make([]byte, 1<<16)
	for n > 0 {
		k := min(n, len(block))
		_, _ = w.Write(block[:k]) // a buffer takes all
		n -= k
	}
	_ = w.Close()
	return out.Bytes()
}

// PNGInterlaced returns a black, interlaced PNG of side×side pixels with 16 bits for each channel
// and alpha, which takes 16 bytes for each pixel while it is decoded. side must be a multiple of 8.
func PNGInterlaced(side int) []byte {
	const pixel = 8
	total := 0
	for _, pass := range [7][2]int{{8, 8}, {8, 8}, {4, 8}, {4, 4}, {2, 4}, {2, 2}, {1, 2}} { // one pixel of so many, in x and in y
		total += side / pass[1] * (1 + side/pass[0]*pixel)
	}
	return pngOf(uint32(side), uint32(side), 16, color, 1, zeros(total))
}

// PNGTransparentGray returns a black PNG of side×side gray pixels with the given number of bits.
// One shade is transparent, so that the decoded picture has four channels.
func PNGTransparentGray(side int, depth byte) []byte {
	plain := pngOf(uint32(side), uint32(side), depth, gray, 0, zeros(side*(1+side*int(depth)/8)))
	const head = 8 + 25 // what is before the chunk that says so
	return slices.Concat(plain[:head], chunk("tRNS", []byte{0, 7}), plain[head:])
}

// pngTail is a gray PNG of side×side pixels whose stream goes on for tail bytes behind them.
func pngTail(side, tail int) []byte {
	return pngOf(uint32(side), uint32(side), 8, gray, 0, zeros(side*(1+side)+tail))
}

// JPEGScans returns a gray progressive JPEG of side×side pixels with the given number of scans, of
// 35 KB for a side of 4096. Each scan visits every coefficient again.
func JPEGScans(side, scans int) []byte {
	segment := func(marker byte, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint16([]byte{0xff, marker}, uint16(len(body)+2)), body...)
	}
	out := []byte{0xff, 0xd8}
	out = append(out, segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)...)
	out = append(out, segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)...)
	// Each table has one code of one bit, 0: a DC difference of 0, and a run of 16,384 blocks and
	// more without another coefficient.
	table := func(class, symbol byte) []byte {
		return segment(0xc4, append(append([]byte{class, 1}, make([]byte, 15)...), symbol)...)
	}
	out = append(append(out, table(0x00, 0)...), table(0x10, 0xe0)...)
	blocks := side / 8 * (side / 8)
	out = append(out, segment(0xda, 1, 1, 0, 0, 0, 0)...)
	out = append(out, make([]byte, (blocks+7)/8)...)
	var runs bitString
	for done := 0; done < blocks; done += 1<<15 - 1 {
		runs.high(0, 1)
		runs.high(1<<14-1, 14) // the longest run
	}
	for range scans - 1 {
		out = append(out, segment(0xda, 1, 1, 0, 1, 63, 0x10)...)
		for _, b := range runs.flipped() {
			if out = append(out, b); b == 0xff {
				out = append(out, 0)
			}
		}
	}
	return append(out, 0xff, 0xd9)
}

// webPGroups is a lossless WebP of 204×204 black pixels in 85 KB whose 2,600 groups of Huffman trees
// take more than 150 MiB.
func webPGroups() []byte {
	const side, tiles, groups = 204, 51, 2600
	var b bitString
	b.low(0x2f, 8)
	b.low(side-1, 14)
	b.low(side-1, 14)
	b.low(0, 1+3) // no alpha; version
	b.low(0, 1)   // no transform
	b.low(1, 1)   // a color cache
	b.low(11, 4)  // of 2,048 colors
	b.low(1, 1)   // an entropy image
	b.low(0, 3)   // of a pixel for 4×4
	b.low(0, 1)   // without a color cache
	b.equal(8)    // green
	b.equal(8)    // red
	b.low(1, 4)   // blue: one symbol
	b.low(1, 4)   // alpha
	b.low(1, 4)   // distances
	for i := range tiles * tiles {
		group := min(i, groups-1)
		b.high(uint32(group&255), 8)
		b.high(uint32(group>>8), 8)
	}
	for range groups {
		b.equal(11) // green, lengths and cache
		b.equal(8)
		b.equal(8)
		b.equal(8)
		b.equal(5) // distances
	}
	// One pixel, which is repeated: by 4,096 pixels at most, from the one before.
	b.high(0, 11)
	b.high(0, 3*8)
	for left := side*side - 1; left > 0; {
		if left < 4096 {
			for range left {
				b.high(0, 11)
				b.high(0, 3*8)
			}
			break
		}
		b.high(256+23, 11)
		b.low(1023, 10)
		b.high(1, 5)
		left -= 4096
	}
	stream := append(b.bytes(), 0, 0) // the decoder looks ahead
	if len(stream)%2 != 0 {
		stream = append(stream, 0)
	}
	out := append([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(12+len(stream)))...)
	out = append(out, "WEBPVP8L"...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(stream)))
	return append(out, stream...)
}

// bitString is written the lowest bit of each byte first.
type bitString struct {
	out []byte
	n   int
}

// low writes a number of n bits, its lowest first.
func (b *bitString) low(v uint32, n int) {
	for i := range n {
		if b.n%8 == 0 {
			b.out = append(b.out, 0)
		}
		b.out[b.n/8] |= byte(v>>i&1) << (b.n % 8)
		b.n++
	}
}

// high writes a number of n bits, its highest first, as codes are.
func (b *bitString) high(v uint32, n int) { b.low(bits.Reverse32(v)>>(32-n), n) }

func (b *bitString) bytes() []byte { return b.out }

// flipped has the highest bit of each byte first, and ones at its end.
func (b *bitString) flipped() []byte {
	out := make([]byte, len(b.out))
	for i, v := range b.out {
		out[i] = bits.Reverse8(v)
	}
	if rest := b.n % 8; rest > 0 {
		out[len(out)-1] |= 1<<(8-rest) - 1
	}
	return out
}

// equal writes a tree of a VP8L stream whose first symbols, 1<<n of them, have codes of n bits. The
// code of the lengths has one symbol, which takes no bits.
func (b *bitString) equal(n int) {
	place := map[int]int{5: 7, 8: 11, 11: 14}[n] // in the order of the lengths
	b.low(0, 1)
	b.low(uint32(place+1-4), 4)
	for range place {
		b.low(0, 3)
	}
	b.low(1, 3)
	b.low(1, 1) // how many lengths there are
	b.low(5, 3)
	b.low(1<<n-2, 2+2*5)
}
