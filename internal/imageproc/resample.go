package imageproc

import "encoding/binary"

// resample is PIL's resize of 8-bit pictures, to the byte: a pass along the rows, rounded
// to bytes, and then one along the columns, with weights in fixed point. It makes only
// the part win of the w×h picture.
//
// The first pass makes rows two at a time, in the two halves of 64-bit integers, and only
// as the second needs them, so that what lies between the passes is not a picture but a
// few rows, which stay in the cache. The second pass takes 8 bytes of a row at a time.
// It starts no goroutine: scorers run side by side already.
func resample(src *Picture, w, h int, win window, f Filter) *Picture {
	out := &Picture{Width: win.width(), Height: win.height()}
	n := out.Width * 3
	// 8 bytes more, because the second pass writes 8 at a time.
	buf := make([]byte, n*out.Height+8)
	out.RGB = buf[: n*out.Height : n*out.Height]

	rows := newRows(src, w, win, f)
	if h == src.Height {
		rows.room(1)
		for y := range out.Height {
			copy(out.RGB[y*n:], rows.from(win.top+y, win.top+y+1))
		}
		return out
	}
	list := spans(src.Height, h, win.top, win.bottom, f)
	need := 0
	for _, s := range list {
		need = max(need, len(s.weights))
	}
	rows.room(need)
	for y, s := range list {
		vertical(buf[y*n:], rows.from(s.first, s.first+len(s.weights)), rows.stride, n, s.weights)
	}
	return out
}

// vertical writes n bytes, and up to 7 behind them which the next row overwrites: each is
// the weighted sum of the bytes at its place in the rows.
func vertical(dst, rows []byte, stride, n int, weights []int32) {
	for x := 0; x < n; x += 8 {
		a, b, c, d := downwards(weights, rows[x:], stride)
		o := dst[x : x+8 : x+8]
		o[0], o[4] = clipBoth(a)
		o[1], o[5] = clipBoth(b)
		o[2], o[6] = clipBoth(c)
		o[3], o[7] = clipBoth(d)
	}
}

// downwards are the weighted sums of 8 columns of bytes: a of columns 0 and 4, b of 1 and
// 5, c of 2 and 6, d of 3 and 7. As with along, a function of its own keeps the sums in
// registers.
//
//go:noinline
func downwards(weights []int32, rows []byte, stride int) (a, b, c, d int64) {
	const lanes = 0x000000ff_000000ff // bytes 0 and 4 of 8, each with 32 bits of room
	a, b, c, d = halves, halves, halves, halves
	at := 0
	for _, w := range weights {
		v := binary.LittleEndian.Uint64(rows[at:])
		k := int64(w)
		a += k * int64(v&lanes)
		b += k * int64(v>>8&lanes)
		c += k * int64(v>>16&lanes)
		d += k * int64(v>>24&lanes)
		at += stride
	}
	return a, b, c, d
}

// both is lo + hi·2³². A product with a weight and a sum of such numbers are those of
// both halves, as long as each stays within 32 bits; a negative lower half borrows 1 from
// the upper, which clipBoth gives back.
func both(lo, hi byte) int64 { return int64(lo) | int64(hi)<<32 }

const halves = half | half<<32

func clipBoth(v int64) (lo, hi byte) {
	l := int32(v)
	return clip(l), clip(int32((v - int64(l)) >> 32))
}

// rows makes the rows of the first pass in order, and keeps as many as the second needs.
type rows struct {
	src    *Picture
	left   int    // of the columns wanted
	spans  []span // nil: the columns are the source's own
	n      int    // bytes of a row
	stride int    // from row to row in kept: n and 8 more
	pair   []int64
	kept   []byte // the rows base to end−1
	cap    int    // rows that kept has room for
	base   int
	end    int
}

func newRows(src *Picture, w int, win window, f Filter) *rows {
	r := &rows{src: src, left: win.left, n: win.width() * 3, stride: win.width()*3 + 8}
	if w != src.Width {
		r.spans = spans(src.Width, w, win.left, win.right, f)
		r.pair = make([]int64, src.Width*3)
	}
	return r
}

// room makes place for a window of n rows. It is called before the first row is made.
func (r *rows) room(n int) {
	// Twice the window: rows are moved to the front only when as many have passed.
	r.cap = min(2*n+1, r.src.Height+1)
	r.kept = make([]byte, r.cap*r.stride)
}

// from returns rows begin to end−1, at stride bytes from each other. begin never goes
// back.
func (r *rows) from(begin, end int) []byte {
	if begin >= r.end {
		r.base, r.end = begin, begin
	} else if end+1 > r.base+r.cap {
		copy(r.kept, r.kept[(begin-r.base)*r.stride:(r.end-r.base)*r.stride])
		r.base = begin
	}
	for r.end < end {
		r.make()
	}
	return r.kept[(begin-r.base)*r.stride:]
}

// make makes the next row, or the next two.
func (r *rows) make() {
	y, at := r.end, (r.end-r.base)*r.stride
	width := r.src.Width * 3
	a := r.src.RGB[y*width : (y+1)*width]
	if r.spans == nil {
		copy(r.kept[at:at+r.n], a[r.left*3:])
		r.end++
		return
	}
	b := a
	if y+1 < r.src.Height {
		b = r.src.RGB[(y+1)*width : (y+2)*width]
	}
	n := r.src.Width
	red, green, blue := r.pair[:n], r.pair[n:2*n], r.pair[2*n:3*n]
	for i := range red {
		p, q := a[i*3:i*3+3:i*3+3], b[i*3:i*3+3:i*3+3]
		red[i], green[i], blue[i] = both(p[0], q[0]), both(p[1], q[1]), both(p[2], q[2])
	}
	lo, hi := r.kept[at:at+r.n], r.kept[at:at+r.n]
	if y+1 < r.src.Height {
		hi = r.kept[at+r.stride : at+r.stride+r.n]
		r.end++
	}
	horizontal(hi, lo, r.pair, r.spans)
	r.end++
}

// horizontal writes the row in the lower halves of pair to lo and that in the upper to
// hi. pair holds the red values of both rows, then the green, then the blue ones.
func horizontal(hi, lo []byte, pair []int64, list []span) {
	n := len(pair) / 3
	red, green, blue := pair[:n], pair[n:2*n], pair[2*n:]
	for x, s := range list {
		r, g, b := along(s.weights, red[s.first:], green[s.first:], blue[s.first:])
		l, h := lo[x*3:x*3+3:x*3+3], hi[x*3:x*3+3:x*3+3]
		l[0], h[0] = clipBoth(r)
		l[1], h[1] = clipBoth(g)
		l[2], h[2] = clipBoth(b)
	}
}

// along are the weighted sums of two rows' values. Inlined, the compiler keeps the sums on
// the stack, which takes twice the time.
//
//go:noinline
func along(weights []int32, red, green, blue []int64) (r, g, b int64) {
	r, g, b = halves, halves, halves
	red, green, blue = red[:len(weights)], green[:len(weights)], blue[:len(weights)]
	for i, w := range weights {
		k := int64(w)
		r += k * red[i]
		g += k * green[i]
		b += k * blue[i]
	}
	return r, g, b
}

// nearest is PIL's resize to the nearest pixel. PIL adds up the step from pixel to pixel,
// and so do we: the sum, not a product, decides at the borders.
func nearest(src *Picture, w, h int, win window) *Picture {
	out := &Picture{Width: win.width(), Height: win.height(), RGB: make([]byte, win.width()*win.height()*3)}
	columns := steps(src.Width, w)[win.left:win.right]
	for y, sy := range steps(src.Height, h)[win.top:win.bottom] {
		from := src.RGB[sy*src.Width*3 : (sy+1)*src.Width*3]
		to := out.RGB[y*out.Width*3:]
		for x, sx := range columns {
			copy(to[x*3:x*3+3], from[sx*3:sx*3+3])
		}
	}
	return out
}

// steps are the source pixels of out pixels along an axis of in.
func steps(in, out int) []int {
	list := make([]int, out)
	step := float64(in) / float64(out)
	at := step * 0.5
	for i := range list {
		list[i] = min(int(at), in-1)
		at += step
	}
	return list
}
