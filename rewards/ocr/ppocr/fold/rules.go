package fold

import (
	"errors"
	"fmt"
	"slices"
)

// report says how often each rule was applied.
type report struct {
	// Subnormal counts constants in which numbers became 0.
	Subnormal int
	// HardSwish, Scale and Pool count what was found of each; Before and After are
	// steps that went into the convolution before or after them, Normal those that
	// became a normalisation.
	HardSwish, Scale, Pool, Before, After, Normal int
}

// Changed tells whether any was.
func (r report) Changed() bool { return r != report{} }

func (r report) String() string {
	return fmt.Sprintf("%d constants with subnormal numbers, %d hard swishes, %d scales, %d pools, %d steps into the convolution before, %d after, %d normalisations",
		r.Subnormal, r.HardSwish, r.Scale, r.Pool, r.Before, r.After, r.Normal)
}

// model rewrites the bytes of an ONNX file. A model that it does not know comes back
// as it is; an error means that the bytes are no ONNX model. The same bytes always
// give the same.
func model(data []byte) ([]byte, report, error) {
	g, err := parse(data)
	switch {
	case errors.Is(err, errUnknown):
		return data, report{}, nil
	case err != nil:
		return nil, report{}, fmt.Errorf("fold: %w", err)
	}
	r := g.fold()
	if !r.Changed() {
		return data, r, nil
	}
	return g.encode(), r, nil
}

// fold applies the rules. Axes of ReduceMean and bounds of Clip are attributes and
// inputs by turns in the versions of ONNX; these rules know versions 11 to 17.
func (g *graph) fold() report {
	r := report{Subnormal: len(g.flushed)}
	if g.opset < 11 || g.opset > 17 {
		return r
	}
	g.straighten()
	r.HardSwish = g.each(g.hardSwish)
	r.Before = g.each(g.intoConv)
	for _, n := range slices.Clone(g.nodes) {
		switch g.affine(n) {
		case intoNext:
			r.After++
		case normalised:
			r.Normal++
		}
	}
	r.Scale = g.each(g.scale)
	r.Pool = g.each(g.pool)
	return r
}

// each applies a rule to every node until it applies to none, and counts.
func (g *graph) each(rule func(n *node) bool) int {
	count := 0
	for again := true; again; {
		again = false
		for _, n := range slices.Clone(g.nodes) {
			if !n.gone && n.domain == "" && len(n.out) == 1 && rule(n) {
				count++
				again = true
			}
		}
	}
	return count
}

// straighten takes out the nodes that hand on a value under another name.
func (g *graph) straighten() {
	alias := map[string]string{}
	for _, n := range g.nodes {
		for i, in := range n.in {
			if to, ok := alias[in]; ok {
				n.in[i], n.raw = to, nil
			}
		}
		if n.op == "Identity" && n.domain == "" && len(n.in) == 1 && len(n.out) == 1 && !g.fixed[n.out[0]] {
			alias[n.out[0]], n.gone = n.in[0], true
		}
	}
}

// users are the nodes that take a value.
func (g *graph) users(name string) []*node {
	var out []*node
	for _, n := range g.nodes {
		if !n.gone && slices.Contains(n.in, name) {
			out = append(out, n)
		}
	}
	return out
}

// maker is the node that gives a value, or nil.
func (g *graph) maker(name string) *node {
	for _, n := range g.nodes {
		if !n.gone && slices.Contains(n.out, name) {
			return n
		}
	}
	return nil
}

// only is the one node that takes a value, once, if it is of the kind; or nil.
func (g *graph) only(name, op string) *node {
	if g.fixed[name] {
		return nil
	}
	u := g.users(name)
	if len(u) != 1 || u[0].op != op || u[0].domain != "" || len(u[0].out) != 1 {
		return nil
	}
	n := 0
	for _, in := range u[0].in {
		if in == name {
			n++
		}
	}
	if n != 1 {
		return nil
	}
	return u[0]
}

// operand splits a node of two inputs into a constant and the other.
func (g *graph) operand(n *node) (t *tensor, other string) {
	if len(n.in) != 2 {
		return nil, ""
	}
	for i := range 2 {
		if t := g.consts[n.in[i]]; t != nil && g.consts[n.in[1-i]] == nil {
			return t, n.in[1-i]
		}
	}
	return nil, ""
}

// number is operand for a constant that is one number.
func (g *graph) number(n *node) (v float32, other string, ok bool) {
	t, other := g.operand(n)
	v, ok = t.scalar()
	return v, other, ok
}

// is tells whether the constant of a name is this number.
func (g *graph) is(name string, v float32) bool {
	got, ok := g.consts[name].scalar()
	return ok && got == v
}

// constOf makes a constant for the node that gives like.
func (g *graph) constOf(like string, t *tensor) string {
	name := fmt.Sprintf("fold:%d:%s", len(g.fresh), like)
	g.consts[name] = t
	g.fresh = append(g.fresh, name)
	return name
}

// insert puts nodes in the place of another, which is gone.
func (g *graph) insert(old *node, nodes ...*node) {
	old.gone = true
	g.nodes = slices.Insert(g.nodes, slices.Index(g.nodes, old), nodes...)
}

// hardSwish: clip(x+3, 0, 6)·x/6 from its first step on.
func (g *graph) hardSwish(n *node) bool {
	if n.op != "Add" {
		return false
	}
	three, x, ok := g.number(n)
	if !ok || three != 3 {
		return false
	}
	clip := g.only(n.out[0], "Clip")
	if clip == nil || len(clip.in) != 3 || !g.is(clip.in[1], 0) || !g.is(clip.in[2], 6) {
		return false
	}
	mul := g.only(clip.out[0], "Mul")
	if mul == nil || len(mul.in) != 2 || !slices.Contains(mul.in, x) {
		return false
	}
	div := g.only(mul.out[0], "Div")
	if div == nil || len(div.in) != 2 || div.in[0] != mul.out[0] || !g.is(div.in[1], 6) {
		return false
	}
	sigmoid := &node{op: "HardSigmoid", in: []string{x}, out: clip.out, attrs: []attr{floatAttr("alpha", 1.0/6), floatAttr("beta", .5)}}
	product := &node{op: "Mul", in: []string{x, clip.out[0]}, out: div.out}
	n.gone, clip.gone, mul.gone = true, true, true
	g.insert(div, sigmoid, product)
	return true
}

// scale: x + x·s with s a HardSigmoid after a pooled convolution.
func (g *graph) scale(n *node) bool {
	if n.op != "Add" || len(n.in) != 2 {
		return false
	}
	for i := range 2 {
		x := n.in[i]
		mul := g.maker(n.in[1-i])
		if mul == nil || mul.op != "Mul" || len(mul.in) != 2 || g.only(mul.out[0], "Add") != n || !slices.Contains(mul.in, x) {
			continue
		}
		s := mul.in[0]
		if s == x {
			s = mul.in[1]
		}
		gate := g.maker(s)
		if s == x || gate == nil || gate.op != "HardSigmoid" || g.only(s, "Mul") != mul {
			continue
		}
		one := g.constOf("one", &tensor{data: []float32{1}, dims: []int64{1}})
		sum := &node{op: "Add", in: []string{s, one}, out: []string{"fold:" + s}}
		product := &node{op: "Mul", in: []string{x, "fold:" + s}, out: n.out}
		mul.gone = true
		g.insert(n, sum, product)
		return true
	}
	return false
}

// pool: the mean over the last two of four axes.
func (g *graph) pool(n *node) bool {
	if n.op != "ReduceMean" || len(n.in) != 1 {
		return false
	}
	four := false
	for _, a := range n.attrs {
		switch a.name {
		case "axes":
			// Counted from the front, because it has four axes then.
			four = len(a.ints) == 2 && min(a.ints[0], a.ints[1]) == 2 && max(a.ints[0], a.ints[1]) == 3
		case "keepdims":
			if a.int != 1 {
				return false
			}
		default:
			return false
		}
	}
	// That there are four axes and not five, the convolution says.
	if before := g.makerOfMaps(n.in[0]); !four || before == nil {
		return false
	}
	g.insert(n, &node{op: "GlobalAveragePool", in: n.in, out: n.out})
	return true
}
