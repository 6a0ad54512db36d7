package jpeg

// The constants of the transform, in 1/8192 units (libjpeg: CONST_BITS 13).
// They are the rotations of C. Loeffler, A. Ligtenberg and G. Moschytz,
// "Practical fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989.
const (
	constBits = 13
	pass1Bits = 2 // extra precision kept between the two passes

	c0298 = 2446  // 0.298631336
	c0390 = 3196  // 0.390180644
	c0541 = 4433  // 0.541196100
	c0765 = 6270  // 0.765366865
	c0899 = 7373  // 0.899976223
	c1175 = 9633  // 1.175875602
	c1501 = 12299 // 1.501321110
	c1847 = 15137 // 1.847759065
	c1961 = 16069 // 1.961570560
	c2053 = 16819 // 2.053119869
	c2562 = 20995 // 2.562915447
	c3072 = 25172 // 3.072711026
)

// block is 8×8 values, rows from top to bottom.
type block [64]int32

// transform replaces samples (−128…127) by their DCT, scaled by 8. It rounds
// where libjpeg's "islow" method rounds: after the rows, to a quarter of a unit,
// and after the columns, to a unit. All sums between are exact integers, so any
// order of them gives libjpeg's values.
func (b *block) transform() {
	for r := 0; r < 64; r += 8 {
		s := (*[8]int32)(b[r:])
		e0, e1, e2, e3, o0, o1, o2, o3 := eight(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7])
		s[0] = (e0 + e1) << pass1Bits
		s[4] = (e0 - e1) << pass1Bits
		s[2] = descale(e2, constBits-pass1Bits)
		s[6] = descale(e3, constBits-pass1Bits)
		s[1] = descale(o0, constBits-pass1Bits)
		s[3] = descale(o1, constBits-pass1Bits)
		s[5] = descale(o2, constBits-pass1Bits)
		s[7] = descale(o3, constBits-pass1Bits)
	}
	for c := range 8 {
		s := (*[57]int32)(b[c:])
		e0, e1, e2, e3, o0, o1, o2, o3 := eight(s[0], s[8], s[16], s[24], s[32], s[40], s[48], s[56])
		s[0] = descale(e0+e1, pass1Bits)
		s[32] = descale(e0-e1, pass1Bits)
		s[16] = descale(e2, constBits+pass1Bits)
		s[48] = descale(e3, constBits+pass1Bits)
		s[8] = descale(o0, constBits+pass1Bits)
		s[24] = descale(o1, constBits+pass1Bits)
		s[40] = descale(o2, constBits+pass1Bits)
		s[56] = descale(o3, constBits+pass1Bits)
	}
}

// descale divides by 2^n and rounds half up.
func descale(v int32, n uint) int32 { return (v + 1<<(n-1)) >> n }

// eight is the one-dimensional transform without its roundings. The sum and the
// difference of e0 and e1 are outputs 0 and 4 (unscaled); e2 and e3 are outputs 2
// and 6, o0 to o3 outputs 1, 3, 5 and 7, these six in 1/8192 units. Eight
// scalars, because Go passes them in registers and arrays in memory.
func eight(d0, d1, d2, d3, d4, d5, d6, d7 int32) (e0, e1, e2, e3, o0, o1, o2, o3 int32) {
	s0, t0 := d0+d7, d0-d7
	s1, t1 := d1+d6, d1-d6
	s2, t2 := d2+d5, d2-d5
	s3, t3 := d3+d4, d3-d4

	a, b := s0-s3, s1-s2
	r := (a + b) * c0541
	e0, e1, e2, e3 = s0+s3, s1+s2, r+a*c0765, r-b*c1847

	p, q := t3+t1, t2+t0
	both := (p + q) * c1175
	p, q = both-p*c1961, both-q*c0390
	u, v := (t3+t0)*-c0899, (t2+t1)*-c2562
	o0, o1 = t0*c1501+u+q, t1*c3072+v+p
	o2, o3 = t2*c2053+v+q, t3*c0298+u+p
	return e0, e1, e2, e3, o0, o1, o2, o3
}
