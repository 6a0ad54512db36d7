package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Numbers of fields in onnx.proto.
const (
	modelGraph   = 7
	modelOpsets  = 8
	opsetDomain  = 1
	opsetVersion = 2

	graphNode        = 1
	graphInitializer = 5
	graphInput       = 11
	graphOutput      = 12
	graphSparse      = 15
	valueName        = 1

	nodeInput  = 1
	nodeOutput = 2
	nodeOp     = 4
	nodeAttr   = 5
	nodeDomain = 7

	attrName  = 1
	attrFloat = 2
	attrInt   = 3
	attrT     = 5
	attrGraph = 6
	attrInts  = 8
	attrGs    = 11
	attrType  = 20

	typeFloat = 1 // of an attribute

	tensorDims     = 1
	tensorType     = 2
	tensorFloats   = 4
	tensorName     = 8
	tensorRaw      = 9
	tensorExternal = 13

	elementFloat = 1 // a tensor's data_type
)

// node is an operation.
type node struct {
	op      string
	domain  string
	in, out []string
	attrs   []attr
	// rest are its other fields: name, domain, text.
	rest []byte
	// raw is the node as it was read; nil once something is changed.
	raw []byte
	// gone says that the node is no more.
	gone bool
}

// attr is an attribute; of others than integers and floats only raw counts.
type attr struct {
	name  string
	float float32
	int   int64
	ints  []int64
	// tensor is the message of a tensor.
	tensor []byte
	raw    []byte
}

// tensor is a constant of 32-bit floats.
type tensor struct {
	dims []int64
	data []float32
}

// scalar is the value of a tensor of one element and at most one axis: one of more axes
// than another operand would add axes to the result.
func (t *tensor) scalar() (float32, bool) {
	if t == nil || len(t.data) != 1 || len(t.dims) > 1 {
		return 0, false
	}
	return t.data[0], true
}

// graph is a model taken apart: what the rules look at, and the rest as it was.
type graph struct {
	nodes  []*node
	consts map[string]*tensor
	// flushed are the constants in which numbers became 0.
	flushed map[string]bool
	// fresh are constants that a rule has made, in their order.
	fresh []string
	// fixed are names that a node outside of the rules' sight may use: inputs and
	// outputs, and the latter alone.
	fixed, outputs map[string]bool
	opset          int64

	// model and rest are the other fields of model and graph.
	model, rest  []byte
	initializers []named
}

type named struct {
	name string
	raw  []byte
}

// errUnknown is for models that are valid, and not touched.
var errUnknown = errors.New("not a known model")

// parse takes a model apart. It wraps errUnknown for one with parts that the rules
// cannot see through: graphs within nodes, weights in other files.
func parse(data []byte) (*graph, error) {
	g := &graph{consts: map[string]*tensor{}, flushed: map[string]bool{}, fixed: map[string]bool{}, outputs: map[string]bool{}}
	var body []byte
	err := fields(data, func(f field) error {
		switch f.number {
		case modelGraph:
			if body != nil || f.kind != delimited {
				return fmt.Errorf("%w: two graphs", errWire)
			}
			body = f.data
			return nil
		case modelOpsets:
			if err := g.readOpset(f.data); err != nil {
				return err
			}
		}
		g.model = append(g.model, f.raw...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if body == nil {
		return nil, fmt.Errorf("%w: no graph", errWire)
	}
	if err := fields(body, g.read); err != nil {
		return nil, err
	}
	// An initializer that is an input as well is only a default.
	for name := range g.fixed {
		delete(g.consts, name)
		delete(g.flushed, name)
	}
	return g, g.ordered()
}

// ordered checks what the rules build on: every value is given once, and before it is
// used. ONNX asks for both.
func (g *graph) ordered() error {
	given := map[string]bool{"": true}
	for name := range g.fixed {
		given[name] = !g.outputs[name]
	}
	for _, i := range g.initializers {
		given[i.name] = true
	}
	for _, n := range g.nodes {
		for _, name := range n.in {
			if !given[name] {
				return fmt.Errorf("%w: %q is used before its definition", errUnknown, name)
			}
		}
		for _, name := range n.out {
			if given[name] && name != "" {
				return fmt.Errorf("%w: %q is defined twice", errUnknown, name)
			}
			given[name] = true
		}
	}
	return nil
}

func (g *graph) readOpset(msg []byte) error {
	var domain string
	var version int64
	err := fields(msg, func(f field) error {
		switch f.number {
		case opsetDomain:
			domain = string(f.data)
		case opsetVersion:
			version = int64(f.value)
		}
		return nil
	})
	if domain == "" {
		g.opset = version
	}
	return err
}

// read takes a field of the graph.
func (g *graph) read(f field) error {
	switch f.number {
	case graphNode:
		n, err := parseNode(f.data)
		if err != nil {
			return err
		}
		g.nodes = append(g.nodes, n)
		if i := slices.IndexFunc(n.attrs, func(a attr) bool { return a.name == "value" && a.tensor != nil }); n.op == "Constant" && i >= 0 && len(n.out) == 1 {
			return g.constant(n.out[0], n.attrs[i].tensor)
		}
		return nil
	case graphInitializer:
		name, err := tensorNamed(f.data)
		if err != nil {
			return err
		}
		g.initializers = append(g.initializers, named{name, f.raw})
		return g.constant(name, f.data)
	case graphSparse:
		return fmt.Errorf("%w: sparse weights", errUnknown)
	case graphInput, graphOutput:
		err := fields(f.data, func(v field) error {
			if v.number == valueName {
				g.fixed[string(v.data)] = true
				if f.number == graphOutput {
					g.outputs[string(v.data)] = true
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	g.rest = append(g.rest, f.raw...)
	return nil
}

func parseNode(msg []byte) (*node, error) {
	n := &node{raw: msg}
	err := fields(msg, func(f field) error {
		switch f.number {
		case nodeInput:
			n.in = append(n.in, string(f.data))
		case nodeOutput:
			n.out = append(n.out, string(f.data))
		case nodeOp:
			n.op = string(f.data)
		case nodeAttr:
			a, err := parseAttr(f.data)
			if err != nil {
				return err
			}
			n.attrs = append(n.attrs, a)
		default:
			if f.number == nodeDomain {
				n.domain = string(f.data)
			}
			n.rest = append(n.rest, f.raw...)
		}
		return nil
	})
	if n.domain == "ai.onnx" {
		n.domain = ""
	}
	return n, err
}

func parseAttr(msg []byte) (attr, error) {
	a := attr{raw: msg}
	err := fields(msg, func(f field) (err error) {
		switch f.number {
		case attrName:
			a.name = string(f.data)
		case attrFloat:
			a.float = math.Float32frombits(uint32(f.value))
		case attrInt:
			a.int = int64(f.value)
		case attrInts:
			a.ints, err = f.ints(a.ints)
		case attrT:
			a.tensor = f.data
		case attrGraph, attrGs:
			err = fmt.Errorf("%w: graphs within nodes", errUnknown)
		}
		return err
	})
	return a, err
}

func tensorNamed(msg []byte) (string, error) {
	var name string
	err := fields(msg, func(f field) error {
		if f.number == tensorName {
			name = string(f.data)
		}
		return nil
	})
	return name, err
}

// smallest is the least positive normal number.
const smallest = 1.1754943508222875e-38

// constant keeps a tensor of floats, its subnormal numbers as 0. One whose shape does
// not fit its data is left to the runtime.
func (g *graph) constant(name string, msg []byte) error {
	var (
		t    tensor
		kind int64
		raw  []byte
	)
	err := fields(msg, func(f field) (err error) {
		switch f.number {
		case tensorDims:
			t.dims, err = f.ints(t.dims)
		case tensorType:
			kind = int64(f.value)
		case tensorFloats:
			if f.kind == fixed32 {
				t.data = append(t.data, math.Float32frombits(uint32(f.value)))
			} else {
				t.data = appendFloats(t.data, f.data)
			}
		case tensorRaw:
			raw = f.data
		case tensorExternal:
			err = fmt.Errorf("%w: weights in another file", errUnknown)
		}
		return err
	})
	if err != nil || kind != elementFloat {
		return err
	}
	t.data = appendFloats(t.data, raw)
	if elements(t.dims) != len(t.data) {
		return nil
	}
	for i, v := range t.data {
		if v != 0 && v < smallest && v > -smallest {
			t.data[i] = 0
			g.flushed[name] = true
		}
	}
	g.consts[name] = &t
	return nil
}

// elements is the product of sizes, -1 if it is beyond what a file holds.
func elements(dims []int64) int {
	n := int64(1)
	for _, d := range dims {
		if d < 0 || d > maxFile || n*d > maxFile {
			return -1
		}
		n *= d
	}
	return int(n)
}

func appendFloats(dst []float32, data []byte) []float32 {
	dst = slices.Grow(dst, len(data)/4)
	for ; len(data) >= 4; data = data[4:] {
		dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return dst
}

// encode puts the model together again. Constants that nothing uses any more stay
// away.
func (g *graph) encode() []byte {
	used := map[string]bool{}
	for _, n := range g.nodes {
		if !n.gone {
			for _, name := range n.in {
				used[name] = true
			}
		}
	}
	keep := func(name string) bool { return used[name] || g.fixed[name] }
	var body []byte
	for _, n := range g.nodes {
		if n.gone || (n.op == "Constant" && len(n.out) == 1 && !keep(n.out[0])) {
			continue
		}
		body = appendBytes(body, graphNode, g.encodeNode(n))
	}
	for _, i := range g.initializers {
		switch {
		case !keep(i.name):
		case g.flushed[i.name]:
			body = appendBytes(body, graphInitializer, g.consts[i.name].encode(i.name))
		default:
			body = append(body, i.raw...)
		}
	}
	for _, name := range g.fresh {
		if keep(name) {
			body = appendBytes(body, graphInitializer, g.consts[name].encode(name))
		}
	}
	body = append(body, g.rest...)
	return appendBytes(slices.Clone(g.model), modelGraph, body)
}

func (g *graph) encodeNode(n *node) []byte {
	if n.op == "Constant" && len(n.out) == 1 && g.flushed[n.out[0]] {
		for i, a := range n.attrs {
			if a.name == "value" {
				n.attrs[i].raw = appendBytes(appendBytes(nil, attrName, a.name), attrT, g.consts[n.out[0]].encode(n.out[0]))
				n.attrs[i].raw = appendInt(n.attrs[i].raw, attrType, 4)
			}
		}
		n.raw = nil
	}
	if n.raw != nil {
		return n.raw
	}
	var b []byte
	for _, name := range n.in {
		b = appendBytes(b, nodeInput, name)
	}
	for _, name := range n.out {
		b = appendBytes(b, nodeOutput, name)
	}
	b = appendBytes(b, nodeOp, n.op)
	for _, a := range n.attrs {
		b = appendBytes(b, nodeAttr, a.raw)
	}
	return append(b, n.rest...)
}

func (t *tensor) encode(name string) []byte {
	var b []byte
	for _, d := range t.dims {
		b = appendInt(b, tensorDims, d)
	}
	b = appendInt(b, tensorType, elementFloat)
	b = appendBytes(b, tensorName, name)
	raw := make([]byte, 0, 4*len(t.data))
	for _, v := range t.data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return appendBytes(b, tensorRaw, raw)
}

// floatAttr is an attribute of one float.
func floatAttr(name string, v float32) attr {
	return attr{name: name, float: v, raw: appendInt(appendFloat(appendBytes(nil, attrName, name), attrFloat, v), attrType, typeFloat)}
}
