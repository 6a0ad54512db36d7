package randmodel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
)

// DType is the type of a tensor, as onnx.proto counts them.
type DType int

// The types that the graphs use.
const (
	Float32 DType = 1
	Int64   DType = 7
	Bool    DType = 9
	Float16 DType = 10
)

// graph is a model while it is made.
type graph struct {
	floats  DType // of weights and of what is computed
	seed    uint64
	nodes   []byte // fields of GraphProto
	inputs  []byte
	outputs []byte
	consts  []tensor
	count   int
}

// tensor is an initializer: ints, or floats that are random around base.
type tensor struct {
	name  string
	shape []int
	ints  []int64
	fixed []float32 // where they are not random
	scale float64
	base  float32
}

func newGraph(floats DType, seed uint64) *graph { return &graph{floats: floats, seed: seed} }

// The wire format of protocol buffers, as far as a model needs it.

func tag(b []byte, number, kind int) []byte {
	return binary.AppendUvarint(b, uint64(number)<<3|uint64(kind)) //nolint:gosec // small
}

func number(b []byte, field int, v int64) []byte {
	return binary.AppendUvarint(tag(b, field, 0), uint64(v)) //nolint:gosec // as protocol buffers have it
}

func text[T ~string | ~[]byte](b []byte, field int, v T) []byte {
	return append(binary.AppendUvarint(tag(b, field, 2), uint64(len(v))), v...)
}

// port describes an input or output; a size below 0 is free.
func port(name string, t DType, shape []int) []byte {
	var dims []byte
	for i, n := range shape {
		var dim []byte
		if n < 0 {
			dim = text(dim, 2, name+strconv.Itoa(i))
		} else {
			dim = number(dim, 1, int64(n))
		}
		dims = text(dims, 1, dim)
	}
	kind := text(number(nil, 1, int64(t)), 2, dims)
	return text(text(nil, 1, name), 2, text(nil, 1, kind))
}

func (g *graph) input(name string, t DType, shape ...int) string {
	g.inputs = text(g.inputs, 11, port(name, t, shape))
	return name
}

func (g *graph) output(name string, t DType, shape ...int) {
	g.outputs = text(g.outputs, 12, port(name, t, shape))
}

// attribute is one of a node.
type attribute struct {
	name  string
	value any // int, float32, []int
}

func (a attribute) bytes() []byte {
	b := text(nil, 1, a.name)
	switch v := a.value.(type) {
	case int:
		return number(number(b, 3, int64(v)), 20, 2)
	case float32:
		b = binary.LittleEndian.AppendUint32(tag(b, 2, 5), math.Float32bits(v))
		return number(b, 20, 1)
	case []int:
		for _, n := range v {
			b = number(b, 8, int64(n))
		}
		return number(b, 20, 7)
	}
	panic(fmt.Sprintf("attribute %s of %T", a.name, a.value))
}

// opTo adds a node with the outputs that are named.
func (g *graph) opTo(outputs []string, kind string, inputs []string, attributes ...attribute) {
	var node []byte
	for _, name := range inputs {
		node = text(node, 1, name)
	}
	for _, name := range outputs {
		node = text(node, 2, name)
	}
	node = text(text(node, 3, kind+strconv.Itoa(g.count)), 4, kind)
	for _, a := range attributes {
		node = text(node, 5, a.bytes())
	}
	g.nodes = text(g.nodes, 1, node)
	g.count++
}

// op adds a node and returns its output.
func (g *graph) op(kind string, inputs []string, attributes ...attribute) string {
	out := "t" + strconv.Itoa(g.count)
	g.opTo([]string{out}, kind, inputs, attributes...)
	return out
}

func (g *graph) do(kind string, inputs ...string) string { return g.op(kind, inputs) }

func (g *graph) add(t tensor) string {
	t.name = "w" + strconv.Itoa(len(g.consts))
	g.consts = append(g.consts, t)
	return t.name
}

// weight is random, evenly spread with the deviation scale around base.
func (g *graph) weight(scale float64, base float32, shape ...int) string {
	return g.add(tensor{shape: shape, scale: scale, base: base})
}

// ints is a list; of none of scalar.
func (g *graph) ints(values ...int64) string {
	return g.add(tensor{shape: []int{len(values)}, ints: values})
}

func (g *graph) scalar(v int64) string { return g.add(tensor{ints: []int64{v}}) }

func (g *graph) number(v float32) string { return g.add(tensor{fixed: []float32{v}}) }

func (g *graph) table(values []float32, shape ...int) string {
	return g.add(tensor{shape: shape, fixed: values})
}

func (g *graph) cast(in string, t DType) string {
	return g.op("Cast", []string{in}, attribute{"to", int(t)})
}

func (g *graph) reshape(in string, shape ...int64) string {
	return g.do("Reshape", in, g.ints(shape...))
}

func (g *graph) transpose(in string, perm ...int) string {
	return g.op("Transpose", []string{in}, attribute{"perm", perm})
}

// size is the length of an axis, as a list of one.
func (g *graph) size(in string, axis int64) string {
	return g.do("Gather", g.do("Shape", in), g.ints(axis))
}

func elements(shape []int) int {
	n := 1
	for _, k := range shape {
		n *= k
	}
	return n
}

// header is what stands before a tensor's bytes, and their number.
func (t tensor) header(floats DType) (head []byte, size int) {
	kind, width := floats, 4
	switch {
	case t.ints != nil:
		kind, width = Int64, 8
	case floats == Float16:
		width = 2
	}
	for _, n := range t.shape {
		head = number(head, 1, int64(n))
	}
	head = text(number(head, 2, int64(kind)), 8, t.name)
	size = width * elements(t.shape)
	return binary.AppendUvarint(tag(head, 9, 2), uint64(size)), size //nolint:gosec // positive
}

// write writes the model. Weights are made as they are written.
func (g *graph) write(path string) (err error) {
	body := text(g.nodes, 2, "random")
	total := len(body) + len(g.inputs) + len(g.outputs)
	var heads [][]byte
	for _, t := range g.consts {
		head, size := t.header(g.floats)
		inner := binary.AppendUvarint(tag(nil, 5, 2), uint64(len(head)+size)) //nolint:gosec // positive
		heads = append(heads, append(inner, head...))
		total += len(inner) + len(head) + size
	}
	if total > math.MaxInt32 {
		return fmt.Errorf("%s: a model of %d bytes, and a file can have 2 GiB", path, total)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	model := text(number(nil, 1, 8), 2, "rewardloop")
	model = text(model, 8, number(nil, 2, 17))
	put := func(b []byte) { _, _ = w.Write(b) } // the error stays until Flush
	put(binary.AppendUvarint(tag(model, 7, 2), uint64(total)))
	put(body)
	for i, t := range g.consts {
		put(heads[i])
		t.fill(w, g.floats, rand.New(rand.NewPCG(g.seed, uint64(i)))) //nolint:gosec // weights, and a place in a list
	}
	put(g.inputs)
	put(g.outputs)
	return w.Flush()
}

// fill writes a tensor's bytes.
func (t tensor) fill(w *bufio.Writer, floats DType, rng *rand.Rand) {
	var buf [8]byte
	for _, v := range t.ints {
		binary.LittleEndian.PutUint64(buf[:], uint64(v)) //nolint:gosec // as it is stored
		_, _ = w.Write(buf[:])
	}
	if t.ints != nil {
		return
	}
	spread := float32(t.scale * math.Sqrt(3) / (1 << 31))
	for i := range elements(t.shape) {
		v := t.base
		if t.fixed != nil {
			v = t.fixed[i]
		} else if t.scale > 0 {
			v += spread * float32(int32(rng.Uint32())) //nolint:gosec // evenly spread
		}
		if floats == Float16 {
			binary.LittleEndian.PutUint16(buf[:], Half(v))
			_, _ = w.Write(buf[:2])
			continue
		}
		binary.LittleEndian.PutUint32(buf[:], math.Float32bits(v))
		_, _ = w.Write(buf[:4])
	}
}

// Half rounds to a number of 16 bits, to the even one of two that are as near. Beyond
// 65,504 it is an infinity.
func Half(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	size := bits & 0x7fffffff
	switch {
	case size > 0x7f800000: // not a number
		return sign | 0x7e00
	case size >= 0x477ff000: // 65,520 and more
		return sign | 0x7c00
	case size < 0x38800000: // below 2⁻¹⁴: multiples of 2⁻²⁴
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(size))*(1<<24)))
	}
	size += 0xfff + size>>13&1
	return sign | uint16((size-0x38000000)>>13) //nolint:gosec // 15 bits
}
