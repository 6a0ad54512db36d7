package media

import (
	"errors"
	"fmt"
)

// This file reads as much of a lossless WebP picture (VP8L) as tells how many groups of Huffman
// trees its decoder will make. Each takes up to 90 KB: a file of 100 KB with 204×204 pixels has
// 2,600 of them in 182 MiB, and its header does not say so. The groups are numbered in a small
// picture of their own, the entropy image, which lies behind the transforms.

// The limits of an entropy image.
const (
	// maxTiles is the most pixels of it. libwebp writes 2,600 at most.
	maxTiles = 1 << 18
	// maxGroups is the most groups that package vp8l accepts.
	maxGroups = 2600
)

var (
	errTree  = errors.New("a Huffman tree is not complete")
	errShort = errors.New("the lossless picture is cut off")
	errVP8L  = errors.New("this is not a lossless picture")
)

// The alphabets of a group: green with lengths, red, blue, alpha, distances.
const (
	literals  = 256
	lengths   = 24
	distances = 40
)

// groupBytes is an upper bound of what one group takes: for each symbol two nodes of 8 bytes, two
// lists of 4 bytes while the tree is built, and an eighth for the allocator; for each tree 1,100
// bytes.
func groupBytes(cacheBits uint) int64 {
	return 27*(4*literals+lengths+distances+int64(1)<<cacheBits) + 5*1100
}

// treeBytes is an upper bound of what the Huffman trees of a VP8L stream take. The stream begins
// behind its header of 5 bytes.
func treeBytes(stream []byte, width, height int) (int64, error) {
	v := &vp8l{data: stream}
	total, err := v.transforms(&width, height)
	if err != nil {
		return 0, err
	}
	cacheBits, err := v.cacheBits()
	if err != nil {
		return 0, err
	}
	groups := 1
	if v.read(1) != 0 {
		tile := v.read(3) + 2
		w, h := tiles(width, tile), tiles(height, tile)
		if w > maxTiles/h {
			return 0, fmt.Errorf("the entropy image has %d×%d pixels; the limit is %d", w, h, maxTiles)
		}
		entropy := make([]uint32, w*h)
		cost, err := v.image(w, h, entropy)
		if err != nil {
			return 0, err
		}
		total += cost
		for _, argb := range entropy {
			groups = max(groups, int(argb>>8&0xffff)+1)
		}
	}
	if groups > maxGroups {
		return 0, fmt.Errorf("%d groups of Huffman trees; the limit is %d", groups, maxGroups)
	}
	return total + int64(groups)*groupBytes(cacheBits), v.err
}

// tiles is how many tiles of 1<<tile pixels cover so many pixels.
func tiles(size int, tile uint32) int { return (size + 1<<tile - 1) >> tile }

// vp8l reads a stream, the lowest bit of each byte first.
type vp8l struct {
	data []byte
	at   int // in bits
	err  error
}

// read reads up to 32 bits. Beyond the end it returns 0 and notes that.
func (v *vp8l) read(n uint32) (out uint32) {
	if v.at+int(n) > 8*len(v.data) {
		v.at, v.err = 8*len(v.data), errShort
		return 0
	}
	for got := uint32(0); got < n; {
		from := uint32(v.at & 7)
		take := min(8-from, n-got)
		out |= (uint32(v.data[v.at>>3]) >> from & (1<<take - 1)) << got
		got += take
		v.at += int(take)
	}
	return out
}

// transforms reads past the transforms; one of them makes the picture narrower.
func (v *vp8l) transforms(width *int, height int) (total int64, err error) {
	const indexing = 3
	var seen [4]bool
	for v.read(1) != 0 {
		kind := v.read(2)
		if seen[kind] {
			return 0, errors.New("a transform occurs twice")
		}
		seen[kind] = true
		var cost int64
		switch kind {
		case 0, 1: // predictor, colors
			tile := v.read(3) + 2
			cost, err = v.image(tiles(*width, tile), tiles(height, tile), nil)
		case indexing:
			colors := int(v.read(8)) + 1
			switch {
			case colors <= 2:
				*width = tiles(*width, 3)
			case colors <= 4:
				*width = tiles(*width, 2)
			case colors <= 16:
				*width = tiles(*width, 1)
			}
			cost, err = v.image(colors, 1, nil)
		}
		if err != nil {
			return 0, err
		}
		total += cost
	}
	return total, v.err
}

func (v *vp8l) cacheBits() (uint, error) {
	if v.read(1) == 0 {
		return 0, v.err
	}
	n := uint(v.read(4))
	if n < 1 || n > 11 {
		return 0, fmt.Errorf("a color cache of %d bits", n)
	}
	return n, v.err
}

// image reads a picture with one group of trees, into pix if there is one, and returns what its
// trees take.
func (v *vp8l) image(width, height int, pix []uint32) (int64, error) {
	cacheBits, err := v.cacheBits()
	if err != nil {
		return 0, err
	}
	var cache []uint32
	green := literals + lengths
	if cacheBits > 0 {
		cache = make([]uint32, 1<<cacheBits)
		green += len(cache)
	}
	var trees [5]tree
	for i, symbols := range [5]int{green, literals, literals, literals, distances} {
		if err := v.tree(&trees[i], symbols); err != nil {
			return 0, err
		}
	}
	for at := 0; at < width*height; {
		n, copied, argb := 1, 0, uint32(0)
		switch s := v.symbol(&trees[0]); {
		case s < literals:
			argb = s << 8
			argb |= v.symbol(&trees[1]) << 16
			argb |= v.symbol(&trees[2])
			argb |= v.symbol(&trees[3]) << 24
		case s < literals+lengths:
			n = int(v.parameter(s - literals))
			copied = distance(width, v.parameter(v.symbol(&trees[4])))
		default:
			argb = cache[s-literals-lengths]
		}
		switch {
		case v.err != nil:
			return 0, v.err
		case at+n > width*height || copied > at:
			return 0, errors.New("a reference to pixels outside the picture")
		case pix == nil:
			at += n
			continue
		}
		for end := at + n; at < end; at++ {
			if copied > 0 {
				argb = pix[at-copied]
			}
			pix[at] = argb
			if cache != nil {
				cache[argb*0x1e35a7bd>>(32-cacheBits)] = argb
			}
		}
	}
	return groupBytes(cacheBits), v.err
}

// parameter reads a length or a distance that begins with a symbol.
func (v *vp8l) parameter(s uint32) uint32 {
	if s < 4 {
		return s + 1
	}
	extra := (s - 2) >> 1
	return (2+s&1)<<extra + v.read(extra) + 1
}

// near are the pixels that have short names: 16·rows + 8 − columns.
const near = "\x18\x07\x17\x19\x28\x06\x27\x29\x16\x1a\x26\x2a\x38\x05\x37\x39\x15\x1b\x36\x3a" +
	"\x25\x2b\x48\x04\x47\x49\x14\x1c\x35\x3b\x46\x4a\x24\x2c\x58\x45\x4b\x34\x3c\x03" +
	"\x57\x59\x13\x1d\x56\x5a\x23\x2d\x44\x4c\x55\x5b\x33\x3d\x68\x02\x67\x69\x12\x1e" +
	"\x66\x6a\x22\x2e\x54\x5c\x43\x4d\x65\x6b\x32\x3e\x78\x01\x77\x79\x53\x5d\x11\x1f" +
	"\x64\x6c\x42\x4e\x76\x7a\x21\x2f\x75\x7b\x31\x3f\x63\x6d\x52\x5e\x00\x74\x7c\x41" +
	"\x4f\x10\x20\x62\x6e\x30\x73\x7d\x51\x5f\x40\x72\x7e\x61\x6f\x50\x71\x7f\x60\x70"

// distance is how many pixels back a reference is.
func distance(width int, code uint32) int {
	if code > uint32(len(near)) {
		return int(code) - len(near)
	}
	n := int(near[code-1])
	return max(1, n>>4*width+8-n&15)
}

// longest is the most bits of a code.
const longest = 15

// tree is a canonical Huffman code.
type tree struct {
	count   [longest + 1]int // of codes, by their length
	symbols []uint32         // by length, then by number
	single  bool             // one symbol, which takes no bits
}

// makeTree makes the code that has these lengths, and refuses one that is not complete, as
// libwebp does.
func makeTree(t *tree, lens []uint8) error {
	*t = tree{}
	var place [longest + 2]int
	for _, n := range lens {
		t.count[n]++
	}
	t.count[0] = 0
	used, room := 0, 1
	for n := 1; n <= longest; n++ {
		place[n] = used
		used += t.count[n]
		room = room<<1 - t.count[n]
		if room < 0 {
			return errTree
		}
	}
	if used == 0 || used > 1 && room != 0 {
		return errTree
	}
	t.single = used == 1
	t.symbols = make([]uint32, used)
	for s, n := range lens {
		if n > 0 {
			t.symbols[place[n]] = uint32(s)
			place[n]++
		}
	}
	return nil
}

// symbol reads one symbol.
func (v *vp8l) symbol(t *tree) uint32 {
	if t.single {
		return t.symbols[0]
	}
	code, first, index := 0, 0, 0
	for n := 1; n <= longest; n++ {
		code |= int(v.read(1))
		if v.err != nil {
			return 0
		}
		if code-first < t.count[n] {
			return t.symbols[index+code-first]
		}
		index += t.count[n]
		first = (first + t.count[n]) << 1
		code <<= 1
	}
	v.err = errTree // not reached: the code is complete
	return 0
}

// tree reads a Huffman code of so many symbols.
func (v *vp8l) tree(t *tree, symbols int) error {
	if v.read(1) != 0 {
		return v.simple(t, symbols)
	}
	order := [19]uint8{17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	n := v.read(4) + 4
	if int(n) > len(order) {
		return errTree
	}
	var lens [19]uint8
	for _, s := range order[:n] {
		lens[s] = uint8(v.read(3))
	}
	var outer tree
	if v.err != nil {
		return v.err
	}
	if err := makeTree(&outer, lens[:]); err != nil {
		return err
	}
	codes, err := v.codeLengths(&outer, symbols)
	if err != nil {
		return err
	}
	return makeTree(t, codes)
}

// simple reads a code of one symbol or two.
func (v *vp8l) simple(t *tree, symbols int) error {
	two := v.read(1) != 0
	size := uint32(1)
	if v.read(1) != 0 {
		size = 8
	}
	*t = tree{symbols: []uint32{v.read(size)}, single: true}
	if two { // the first has the code 0, whatever the numbers
		*t = tree{symbols: append(t.symbols, v.read(8))}
		t.count[1] = 2
	}
	for _, s := range t.symbols {
		if int(s) >= symbols {
			return errTree
		}
	}
	return v.err
}

// codeLengths reads the lengths of a code, which are themselves coded.
func (v *vp8l) codeLengths(outer *tree, symbols int) ([]uint8, error) {
	lens := make([]uint8, symbols)
	left := symbols
	if v.read(1) != 0 {
		left = int(v.read(2+2*v.read(3))) + 2
		if left > symbols {
			return nil, errTree
		}
	}
	last := uint8(8)
	for at := 0; at < symbols && left > 0; left-- {
		n := uint8(v.symbol(outer))
		if v.err != nil {
			return nil, v.err
		}
		if n <= longest {
			lens[at] = n
			at++
			if n > 0 {
				last = n
			}
			continue
		}
		var repeat int
		var value uint8
		switch n {
		case 16:
			repeat, value = int(v.read(2))+3, last
		case 17:
			repeat = int(v.read(3)) + 3
		default:
			repeat = int(v.read(7)) + 11
		}
		if at+repeat > symbols {
			return nil, errTree
		}
		for range repeat {
			lens[at] = value
			at++
		}
	}
	return lens, v.err
}
