package ppocr

// table maps a pixel's value to what a model is given, by plane.
type table [3][256]float32

// detectorTable is (v/255 − mean)/std. The reference multiplies with the 32-bit
// 1/255; RapidOCR goes on with 64 bits and rounds at the end, PaddleOCR stays at
// 32.
func (c constants) detectorTable() *table {
	var t table
	const scale = float32(1.0 / 255.0)
	for p := range t {
		for v := range t[p] {
			x := float32(v) * scale
			if c.wide {
				t[p][v] = float32((float64(x) - c.mean[p]) / c.std[p])
			} else {
				t[p][v] = (x - float32(c.mean[p])) / float32(c.std[p])
			}
		}
	}
	return &t
}

// lineTable is (v/255 − 0.5)/0.5 in 32 bits: the recogniser.
func lineTable() *table {
	var t table
	for p := range t {
		for v := range t[p] {
			t[p][v] = (float32(v)/255 - .5) / .5
		}
	}
	return &t
}

// planes writes an RGB picture as three planes of width columns each, the
// picture's on the left; what is right of them is left alone. Blue comes first,
// or red if swap is set.
func (t *table) planes(dst []float32, b bitmap, width int, swap bool) {
	n := width * b.H
	first, last := &t[0], &t[2]
	p0, p1, p2 := dst[:n], dst[n:2*n], dst[2*n:3*n]
	if swap {
		first, last = last, first
		p0, p2 = p2, p0
	}
	for y := range b.H {
		row := b.Pix[y*b.W*3 : (y+1)*b.W*3]
		at := y * width
		q0, q1, q2 := p0[at:at+b.W], p1[at:at+b.W], p2[at:at+b.W]
		for x := range q0 {
			q2[x], q1[x], q0[x] = last[row[0]], t[1][row[1]], first[row[2]]
			row = row[3:]
		}
	}
}
