package fold_test

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests' own writer, reader and calculator of small ONNX models.

type array struct {
	dims []int
	data []float32
}

func one(v float32) array { return array{dims: []int{1}, data: []float32{v}} }

func filled(r *rand.Rand, dims ...int) array {
	n := 1
	for _, d := range dims {
		n *= d
	}
	a := array{dims: dims, data: make([]float32, n)}
	for i := range a.data {
		a.data[i] = r.Float32()*4 - 2
	}
	return a
}

// attrs are integers, of which several make a list.
type attrs map[string][]int

type op struct {
	kind string
	in   []string
	out  string
	attr attrs
}

// model computes y from x.
type model struct {
	ops    []op
	consts map[string]array
	opset  int
	// inputs are constants that are named as inputs too.
	inputs []string
	// inNodes makes nodes of constants, nested and external what cannot be seen through.
	inNodes, nested, external bool
}

func tag(b []byte, number, kind int) []byte {
	return binary.AppendUvarint(b, uint64(number)<<3|uint64(kind))
}

func text(b []byte, number int, s string) []byte {
	return append(binary.AppendUvarint(tag(b, number, 2), uint64(len(s))), s...)
}

func number(b []byte, n int, v int) []byte { return binary.AppendUvarint(tag(b, n, 0), uint64(v)) }

func (a array) encode(name string, external bool) string {
	var b []byte
	for _, d := range a.dims {
		b = number(b, 1, d)
	}
	b = text(number(b, 2, 1), 8, name)
	if external {
		return string(text(b, 13, ""))
	}
	var raw []byte
	for _, v := range a.data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return string(text(b, 9, string(raw)))
}

func (o op) encode() []byte {
	var b []byte
	for _, in := range o.in {
		b = text(b, 1, in)
	}
	b = text(text(b, 2, o.out), 4, o.kind)
	for _, name := range slices.Sorted(maps.Keys(o.attr)) {
		a := text(nil, 1, name)
		if v := o.attr[name]; len(v) == 1 {
			a = number(number(a, 3, v[0]), 20, 2)
		} else {
			for _, i := range v {
				a = number(a, 8, i)
			}
			a = number(a, 20, 7)
		}
		b = text(b, 5, string(a))
	}
	return b
}

func (m model) encode() []byte {
	var g []byte
	for _, name := range slices.Sorted(maps.Keys(m.consts)) {
		t := m.consts[name].encode(name, m.external)
		if m.inNodes {
			value := text(text(nil, 1, "value"), 5, t)
			g = text(g, 1, string(text(op{kind: "Constant", out: name}.encode(), 5, string(number(value, 20, 4)))))
		} else {
			g = text(g, 5, t)
		}
	}
	for _, o := range m.ops {
		g = text(g, 1, string(o.encode()))
	}
	if m.nested {
		g = text(g, 1, string(text(nil, 5, string(text(text(nil, 1, "then"), 6, "")))))
	}
	g = text(g, 2, "a graph")
	for _, in := range append([]string{"x"}, m.inputs...) {
		g = text(g, 11, string(text(nil, 1, in)))
	}
	g = text(g, 12, string(text(nil, 1, "y")))
	opset := m.opset
	if opset == 0 {
		opset = 12
	}
	b := number(nil, 1, 8)
	b = text(b, 8, string(number(nil, 2, opset)))
	return text(b, 7, string(g))
}

// walk calls do with every field of a message.
func walk(t *testing.T, msg []byte, do func(n int, v uint64, data []byte)) {
	t.Helper()
	for len(msg) > 0 {
		key, n := binary.Uvarint(msg)
		require.Positive(t, n)
		msg = msg[n:]
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(msg)
			do(int(key>>3), v, nil)
			msg = msg[n:]
		case 5:
			do(int(key>>3), uint64(binary.LittleEndian.Uint32(msg)), nil)
			msg = msg[4:]
		default:
			size, n := binary.Uvarint(msg)
			do(int(key>>3), 0, msg[n:n+int(size)])
			msg = msg[n+int(size):]
		}
	}
}

// scale is how attributes of floats are kept in attrs.
const scale = 1 << 24

func decode(t *testing.T, data []byte) model {
	t.Helper()
	m := model{consts: map[string]array{}}
	constant := func(data []byte) (string, array) {
		var a array
		var name string
		walk(t, data, func(n int, v uint64, data []byte) {
			switch n {
			case 1:
				a.dims = append(a.dims, int(v))
			case 8:
				name = string(data)
			case 9:
				for ; len(data) > 0; data = data[4:] {
					a.data = append(a.data, math.Float32frombits(binary.LittleEndian.Uint32(data)))
				}
			}
		})
		return name, a
	}
	node := func(data []byte) {
		o := op{attr: attrs{}}
		walk(t, data, func(n int, _ uint64, data []byte) {
			switch n {
			case 1:
				o.in = append(o.in, string(data))
			case 2:
				o.out = string(data)
			case 4:
				o.kind = string(data)
			case 5:
				var name string
				walk(t, data, func(n int, v uint64, data []byte) {
					switch n {
					case 1:
						name = string(data)
					case 2:
						o.attr[name] = []int{int(math.Round(scale * float64(math.Float32frombits(uint32(v)))))}
					case 3, 8:
						o.attr[name] = append(o.attr[name], int(v))
					case 5:
						_, m.consts[o.out] = constant(data)
					}
				})
			}
		})
		m.ops = append(m.ops, o)
	}
	walk(t, data, func(n int, _ uint64, data []byte) {
		if n == 7 {
			walk(t, data, func(n int, _ uint64, data []byte) {
				switch n {
				case 1:
					node(data)
				case 5:
					name, a := constant(data)
					m.consts[name] = a
				}
			})
		}
	})
	return m
}

// run computes y.
func (m model) run(t *testing.T, x array) array {
	t.Helper()
	have := maps.Clone(m.consts)
	have["x"] = x
	for _, o := range m.ops {
		if o.kind == "Constant" {
			continue
		}
		in := make([]array, len(o.in))
		for i, name := range o.in {
			a, ok := have[name]
			require.True(t, ok, "%s of %s is used before it is computed", name, o.kind)
			in[i] = a
		}
		have[o.out] = o.run(t, in)
	}
	require.Contains(t, have, "y")
	return have["y"]
}

func (o op) run(t *testing.T, in []array) array {
	t.Helper()
	pair := func(f func(a, b float64) float64) array { return broadcast(in[0], in[1], f) }
	each := func(f func(a float64) float64) array {
		return broadcast(in[0], one(0), func(a, _ float64) float64 { return f(a) })
	}
	float := func(name string, otherwise float64) float64 {
		if v, ok := o.attr[name]; ok {
			return float64(v[0]) / scale
		}
		return otherwise
	}
	switch o.kind {
	case "Mul":
		return pair(func(a, b float64) float64 { return a * b })
	case "Add":
		return pair(func(a, b float64) float64 { return a + b })
	case "Div":
		return pair(func(a, b float64) float64 { return a / b })
	case "Clip":
		return each(func(a float64) float64 { return max(float64(in[1].data[0]), min(a, float64(in[2].data[0]))) })
	case "Relu":
		return each(func(a float64) float64 { return max(a, 0) })
	case "HardSigmoid":
		return each(func(a float64) float64 { return max(0, min(1, a*float("alpha", .2)+float("beta", .5))) })
	case "Identity":
		return in[0]
	case "GlobalAveragePool", "ReduceMean":
		return pooled(in[0])
	case "BatchNormalization":
		out := array{dims: in[0].dims, data: slices.Clone(in[0].data)}
		plane := in[0].dims[2] * in[0].dims[3]
		for i, v := range out.data {
			c := i / plane % in[0].dims[1]
			out.data[i] = float32((float64(v)-float64(in[3].data[c]))/math.Sqrt(float64(in[4].data[c])+float("epsilon", 1e-5))*float64(in[1].data[c]) + float64(in[2].data[c]))
		}
		return out
	case "Conv":
		return convolved(in, max(1, slices.Max(append(o.attr["group"], 1))), slices.Max(append(o.attr["pads"], 0)))
	case "ConvTranspose":
		return spread(in)
	case "Concat":
		out := array{dims: slices.Clone(in[0].dims), data: slices.Concat(in[0].data, in[1].data)}
		out.dims[1] += in[1].dims[1]
		return out
	}
	require.Fail(t, "unknown operation", o.kind)
	return array{}
}

// broadcast computes element by element; sizes of 1 and missing axes are repeated.
func broadcast(a, b array, f func(a, b float64) float64) array {
	axes := max(len(a.dims), len(b.dims))
	full := func(x array) []int { return append(slices.Repeat([]int{1}, axes-len(x.dims)), x.dims...) }
	da, db := full(a), full(b)
	out := array{dims: make([]int, axes)}
	n := 1
	for i := range axes {
		out.dims[i] = max(da[i], db[i])
		n *= out.dims[i]
	}
	for i := range n {
		ia, ib, rest := 0, 0, n
		at := i
		for k := range axes {
			rest /= out.dims[k]
			p := at / rest
			at %= rest
			ia, ib = ia*da[k]+p%da[k], ib*db[k]+p%db[k]
		}
		out.data = append(out.data, float32(f(float64(a.data[ia]), float64(b.data[ib]))))
	}
	return out
}

func pooled(x array) array {
	out := array{dims: []int{x.dims[0], x.dims[1], 1, 1}}
	plane := x.dims[2] * x.dims[3]
	for p := range slices.Chunk(x.data, plane) {
		sum := 0.0
		for _, v := range p {
			sum += float64(v)
		}
		out.data = append(out.data, float32(sum/float64(plane)))
	}
	return out
}

// convolved is a convolution with stride 1.
func convolved(in []array, groups, pad int) array {
	x, w := in[0], in[1]
	h, wd, kh, kw := x.dims[2], x.dims[3], w.dims[2], w.dims[3]
	oh, ow := h+2*pad-kh+1, wd+2*pad-kw+1
	out := array{dims: []int{1, w.dims[0], oh, ow}}
	for o := range w.dims[0] {
		first := o / (w.dims[0] / groups) * w.dims[1]
		for y := range oh {
			for z := range ow {
				sum := 0.0
				if len(in) == 3 {
					sum = float64(in[2].data[o])
				}
				for c := range w.dims[1] {
					for i := range kh {
						for j := range kw {
							if yy, zz := y+i-pad, z+j-pad; yy >= 0 && yy < h && zz >= 0 && zz < wd {
								sum += float64(x.data[((first+c)*h+yy)*wd+zz]) * float64(w.data[((o*w.dims[1]+c)*kh+i)*kw+j])
							}
						}
					}
				}
				out.data = append(out.data, float32(sum))
			}
		}
	}
	return out
}

// spread is a transposed convolution of 2x2 with stride 2.
func spread(in []array) array {
	x, w := in[0], in[1]
	h, wd := x.dims[2], x.dims[3]
	out := array{dims: []int{1, w.dims[1], 2 * h, 2 * wd}, data: make([]float32, w.dims[1]*4*h*wd)}
	for o := range w.dims[1] {
		for y := range 2 * h {
			for z := range 2 * wd {
				sum := 0.0
				if len(in) == 3 {
					sum = float64(in[2].data[o])
				}
				for c := range w.dims[0] {
					sum += float64(x.data[(c*h+y/2)*wd+z/2]) * float64(w.data[((c*w.dims[1]+o)*2+y%2)*2+z%2])
				}
				out.data[(o*2*h+y)*2*wd+z] = float32(sum)
			}
		}
	}
	return out
}
