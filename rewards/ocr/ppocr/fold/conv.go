package fold

import (
	"math"
	"slices"
)

// weights are those of a convolution with two axes of space: W of the shape (out,
// in/groups, rows, columns), or (in, out/groups, rows, columns) of a transposed one.
type weights struct {
	w    *tensor
	bias []float64
	// axis is that of the channels that come out.
	axis int
}

// weightsOf reads them; not ok if they are no constants or of another form.
func (g *graph) weightsOf(n *node) (weights, bool) {
	if (n.op != "Conv" && n.op != "ConvTranspose") || n.domain != "" || len(n.in) < 2 || len(n.in) > 3 || len(n.out) != 1 {
		return weights{}, false
	}
	w := g.consts[n.in[1]]
	if w == nil || len(w.dims) != 4 || len(w.data) == 0 {
		return weights{}, false
	}
	c := weights{w: w}
	if n.op == "ConvTranspose" {
		c.axis = 1
		for _, a := range n.attrs {
			if a.name == "group" && a.int != 1 {
				return weights{}, false
			}
		}
	}
	c.bias = make([]float64, w.dims[c.axis])
	if len(n.in) == 3 {
		b := g.consts[n.in[2]]
		if b == nil || len(b.data) != len(c.bias) {
			return weights{}, false
		}
		for i, v := range b.data {
			c.bias[i] = float64(v)
		}
	}
	return c, true
}

// each calls do with every stretch of elements that belong to one channel that comes
// out: from where to where, and the channel.
func (c weights) each(do func(from, to, channel int)) {
	d := c.w.dims
	stretch := int(d[2] * d[3])
	if c.axis == 0 {
		stretch *= int(d[1])
	}
	for from := 0; stretch > 0 && from < len(c.w.data); from += stretch {
		do(from, from+stretch, from/stretch%len(c.bias))
	}
}

// set gives a convolution other weights: scaled and shifted by channel. The product
// is rounded once.
func (g *graph) set(n *node, c weights, scale, bias []float64) {
	w := &tensor{dims: c.w.dims, data: make([]float32, len(c.w.data))}
	c.each(func(from, to, channel int) {
		for i, v := range c.w.data[from:to] {
			w.data[from+i] = normal(float64(v) * scale[channel])
		}
	})
	b := &tensor{dims: []int64{int64(len(bias))}, data: make([]float32, len(bias))}
	for i, v := range bias {
		b.data[i] = normal(v)
	}
	n.in = []string{n.in[0], g.constOf(n.out[0], w), g.constOf(n.out[0], b)}
	n.raw = nil
}

// normal is v in 32 bits, 0 if that is a subnormal number.
func normal(v float64) float32 {
	if math.Abs(v) < smallest {
		return 0
	}
	return float32(v)
}

// intoConv: a multiplication, addition or normalisation by channel of what a
// convolution gives.
func (g *graph) intoConv(n *node) bool {
	c, ok := g.weightsOf(n)
	if !ok || g.fixed[n.out[0]] {
		return false
	}
	for _, op := range []string{"Mul", "Add", "BatchNormalization"} {
		step := g.only(n.out[0], op)
		if step == nil {
			continue
		}
		scale, shift, ok := g.step(step, n.out[0], len(c.bias))
		if !ok {
			return false
		}
		bias := make([]float64, len(c.bias))
		for i := range bias {
			bias[i] = c.bias[i]*scale[i] + shift[i]
		}
		g.set(n, c, scale, bias)
		n.out, step.gone = step.out, true
		return true
	}
	return false
}

// step is what a node does with the channels of x: scale and shift of each.
func (g *graph) step(n *node, x string, channels int) (scale, shift []float64, ok bool) {
	scale, shift = slices.Repeat([]float64{1}, channels), make([]float64, channels)
	if n.op == "BatchNormalization" {
		return scale, shift, g.normalisation(n, x, scale, shift)
	}
	t, other := g.operand(n)
	if t == nil || other != x {
		return nil, nil, false
	}
	dims := t.dims
	if len(dims) == 4 && dims[0] == 1 {
		dims = dims[1:]
	}
	one := len(t.data) == 1 && len(t.dims) <= 4
	if !one && (len(dims) != 3 || dims[0] != int64(channels) || dims[1] != 1 || dims[2] != 1) {
		return nil, nil, false
	}
	for i := range channels {
		v := t.data[0]
		if !one {
			v = t.data[i]
		}
		if n.op == "Mul" {
			scale[i] = float64(v)
		} else {
			shift[i] = float64(v)
		}
	}
	return scale, shift, true
}

func (g *graph) normalisation(n *node, x string, scale, shift []float64) bool {
	if len(n.in) != 5 || n.in[0] != x || len(n.out) != 1 {
		return false
	}
	eps := 1e-5
	for _, a := range n.attrs {
		switch a.name {
		case "epsilon":
			eps = float64(a.float)
		case "training_mode":
			if a.int != 0 {
				return false
			}
		}
	}
	var p [4]*tensor
	for i := range p {
		if p[i] = g.consts[n.in[i+1]]; p[i] == nil || len(p[i].data) != len(scale) {
			return false
		}
	}
	for i := range scale {
		scale[i] = float64(p[0].data[i]) / math.Sqrt(float64(p[3].data[i])+eps)
		shift[i] = float64(p[1].data[i]) - float64(p[2].data[i])*scale[i]
	}
	return true
}

// What became of a multiplication and addition by one number each.
type fate int

const (
	unchanged fate = iota
	intoNext
	normalised
)

// affine: a·x + b after an activation. Convolutions without padding take it in; for
// others, whose padding would have to be -b/a and not 0, it becomes a normalisation,
// which the runtime does in one pass and in the layout of its convolutions.
func (g *graph) affine(n *node) fate {
	if n.gone || n.op != "Mul" || n.domain != "" || len(n.out) != 1 {
		return unchanged
	}
	a, x, ok := g.number(n)
	if !ok {
		return unchanged
	}
	add := g.only(n.out[0], "Add")
	if add == nil {
		return unchanged
	}
	b, _, ok := g.number(add)
	if !ok {
		return unchanged
	}
	y := add.out[0]
	if next := g.users(y); len(next) > 0 && !g.fixed[y] && !slices.ContainsFunc(next, func(c *node) bool { return !g.takes(c, y) }) {
		for _, c := range next {
			g.take(c, x, float64(a), float64(b))
		}
		n.gone, add.gone = true, true
		return intoNext
	}
	maps := g.makerOfMaps(x)
	if maps == nil {
		return unchanged
	}
	c, _ := g.weightsOf(maps)
	channels := len(c.bias)
	vector := func(v float32) string {
		return g.constOf(y, &tensor{dims: []int64{int64(channels)}, data: slices.Repeat([]float32{v}, channels)})
	}
	g.insert(add, &node{
		op: "BatchNormalization", out: add.out,
		in:    []string{x, vector(a), vector(b), vector(0), vector(1)},
		attrs: []attr{floatAttr("epsilon", 1e-30)}, // 1 + it is 1
	})
	n.gone = true
	return normalised
}

// takes tells whether a node is a convolution of y, and of nothing else, that does
// not pad.
func (g *graph) takes(n *node, y string) bool {
	if n.op != "Conv" || n.in[0] != y || slices.Contains(n.in[1:], y) {
		return false
	}
	for _, a := range n.attrs {
		if a.name == "pads" && slices.ContainsFunc(a.ints, func(p int64) bool { return p != 0 }) {
			return false
		}
		if a.name == "auto_pad" { // whatever it says
			return false
		}
	}
	_, ok := g.weightsOf(n)
	return ok
}

// take makes a convolution of a·x + b one of x.
func (g *graph) take(n *node, x string, a, b float64) {
	c, _ := g.weightsOf(n)
	bias := slices.Clone(c.bias)
	c.each(func(from, to, channel int) {
		for _, v := range c.w.data[from:to] {
			bias[channel] += b * float64(v)
		}
	})
	g.set(n, c, slices.Repeat([]float64{a}, len(bias)), bias)
	n.in[0] = x
}

// makerOfMaps is the convolution that x comes from through steps which change no
// shape, or nil.
func (g *graph) makerOfMaps(x string) *node {
	for range 8 {
		n := g.maker(x)
		if n == nil || n.domain != "" || len(n.in) == 0 {
			return nil
		}
		switch n.op {
		case "Conv", "ConvTranspose":
			if _, ok := g.weightsOf(n); !ok {
				return nil
			}
			return n
		case "Relu", "HardSigmoid", "BatchNormalization":
			x = n.in[0]
		case "Mul", "Add":
			// Only a product or sum of what has the same shape: x·HardSigmoid(x), x + 1.
			if _, other, ok := g.number(n); ok {
				x = other
				break
			}
			if len(n.in) != 2 {
				return nil
			}
			h := g.maker(n.in[1])
			if h == nil || h.op != "HardSigmoid" || !slices.Equal(h.in, n.in[:1]) {
				return nil
			}
			x = n.in[0]
		default:
			return nil
		}
	}
	return nil
}
