package preference

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// role is what an input is for.
type role string

// The roles.
const (
	rolePixels role = "pixels"
	roleIDs    role = "ids"
	roleMask   role = "mask"
	roleTypes  role = "types"
)

// wants is what a sidecar asks of one file.
type wants struct {
	file string
	// names of the inputs for each role that the file may have.
	names map[role]string
	// must are the roles that the file has to have: those it is for, and those that the
	// sidecar names itself.
	must map[role]bool
	// outputs are read.
	outputs   []string
	constants []constant
}

// graph is a model whose inputs and outputs are known to be what a sidecar says.
type graph struct {
	net  infer.Net
	file string
	// fed are the inputs that the model declares, by role.
	fed       map[role]infer.Port
	constants []infer.Tensor
}

// bind loads a model and holds what it declares against what the sidecar asks. Its error
// names everything that does not fit and wraps infer.ErrModel.
func bind(ctx context.Context, net infer.Net, w wants) (*graph, error) {
	info, err := net.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.file, err)
	}
	g := &graph{net: net, file: w.file, fed: make(map[role]infer.Port)}
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: %s: %w", infer.ErrModel, w.file, fmt.Errorf(format, args...)))
	}
	constants := make(map[string]constant)
	for _, c := range w.constants {
		constants[c.Name] = c
	}
	for _, in := range info.Inputs {
		r, known := w.role(in.Name)
		c, constant := constants[in.Name]
		switch {
		case known && constant:
			fault("input %q is both a constant and fed with %s: keep one of the two in %s", in.Name, r, sidecarFile)
		case known:
			if err := checkPort(in, r); err != nil {
				fault("%w", err)
			}
			g.fed[r] = in
		case constant:
			t, err := c.fit(in)
			if err != nil {
				fault("%w", err)
			}
			g.constants = append(g.constants, t)
		default:
			fault("input %s has no source: %s feeds %s; export the model without the input, or define the input in %s", show(in), sidecarFile, w.feeds(), sidecarFile)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(w.must)) {
		if _, has := g.fed[r]; !has && w.must[r] {
			fault("input %q (%s) is missing: the model has %s", w.names[r], r, portList(info.Inputs))
		}
	}
	for _, c := range w.constants {
		if !slices.ContainsFunc(info.Inputs, func(p infer.Port) bool { return p.Name == c.Name }) {
			fault("constant %q is not an input: the model has %s", c.Name, portList(info.Inputs))
		}
	}
	for _, name := range w.outputs {
		if err := checkOutput(info.Outputs, name); err != nil {
			fault("%w", err)
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return g, nil
}

func (w wants) role(name string) (role, bool) {
	for r, n := range w.names {
		if n == name {
			return r, true
		}
	}
	return "", false
}

// feeds lists what the sidecar would feed, for people.
func (w wants) feeds() string {
	var names []string
	for _, r := range slices.Sorted(maps.Keys(w.names)) {
		names = append(names, w.names[r])
	}
	for _, c := range w.constants {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}

// checkPort says why an input cannot be fed with a role.
func checkPort(in infer.Port, r role) error {
	want, rank := []infer.DType{infer.I64, infer.I32}, 2
	if r == rolePixels {
		want, rank = []infer.DType{infer.F32}, 4
	}
	if !slices.ContainsFunc(want, in.Carries) || len(in.Shape) != rank {
		return fmt.Errorf("input %s takes %s: want %s with %d axes", show(in), r, join(want), rank)
	}
	return nil
}

func checkOutput(outputs []infer.Port, name string) error {
	i := slices.IndexFunc(outputs, func(p infer.Port) bool { return p.Name == name })
	switch {
	case i < 0:
		return fmt.Errorf("output %q is missing: the model has %s; %s can name another under outputs", name, portList(outputs), sidecarFile)
	case !outputs[i].Carries(infer.F32):
		return fmt.Errorf("output %s: want F32 or F16; export it with such outputs", show(outputs[i]))
	}
	return nil
}

// fit is the constant as an item's input. Items are stacked, so that a constant has a batch
// axis where it runs: one that the model declares without takes its place only if its first
// axis is 1, and then lets the model run one item at a time.
func (c constant) fit(in infer.Port) (infer.Tensor, error) {
	t := c.tensor()
	switch {
	case !in.Carries(c.DType):
		return t, fmt.Errorf("constant %q is %s, the input is %s", c.Name, c.DType, show(in))
	case len(in.Shape) == len(c.Shape)+1:
		return t, nil
	case len(in.Shape) == len(c.Shape) && len(c.Shape) > 0 && c.Shape[0] == 1:
		t.Shape = t.Shape[1:]
		return t, nil
	}
	return t, fmt.Errorf("constant %q has shape %v, the input is %s: want it with a batch axis in front, or with a first axis of 1", c.Name, c.Shape, show(in))
}

func show(p infer.Port) string { return fmt.Sprintf("%q (%s %v)", p.Name, p.DType, p.Shape) }

func portList(ports []infer.Port) string {
	if len(ports) == 0 {
		return "none"
	}
	const most = 16
	var out []string
	for _, p := range ports[:min(len(ports), most)] {
		out = append(out, show(p))
	}
	if len(ports) > most {
		out = append(out, fmt.Sprintf("and %d more", len(ports)-most))
	}
	return strings.Join(out, ", ")
}

func join(types []infer.DType) string {
	out := make([]string, len(types))
	for i, t := range types {
		out[i] = string(t)
	}
	return strings.Join(out, " or ")
}

// reads tells whether the graph takes something of a role.
func (g *graph) reads(r role) bool {
	_, ok := g.fed[r]
	return ok
}

// run asks the model about a picture and tokens, each nil where there is none, and returns
// the named outputs' rows in their order.
func (g *graph) run(ctx context.Context, item string, picture *infer.Tensor, t *tokens, outputs ...string) ([]infer.Tensor, error) {
	req := infer.Request{Name: item, Inputs: slices.Clone(g.constants), Outputs: outputs} // others, last_hidden_state among them, do not travel
	if picture != nil && g.reads(rolePixels) {
		in := *picture
		in.Name = g.fed[rolePixels].Name
		req.Inputs = append(req.Inputs, in)
	}
	if t != nil {
		for _, part := range []struct {
			r role
			v []int64
		}{{roleIDs, t.ids}, {roleMask, t.mask}, {roleTypes, t.types}} {
			if port, ok := g.fed[part.r]; ok {
				req.Inputs = append(req.Inputs, integers(port, part.v))
			}
		}
	}
	out, err := g.net.Infer(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.file, err)
	}
	rows := make([]infer.Tensor, 0, len(outputs))
	for _, name := range outputs {
		i := slices.IndexFunc(out, func(t infer.Tensor) bool { return t.Name == name })
		if i < 0 || out[i].DType != infer.F32 || out[i].Check() != nil {
			return nil, fmt.Errorf("%w: %s: no output %q of floats in the answer", infer.ErrFault, g.file, name)
		}
		rows = append(rows, out[i])
	}
	return rows, nil
}

// integers is a list of numbers in the type that the input has.
func integers(port infer.Port, v []int64) infer.Tensor {
	t := infer.Tensor{Name: port.Name, DType: infer.DType(port.DType), Shape: []int{len(v)}}
	if t.DType == infer.I64 {
		t.I64 = v
		return t
	}
	t.I32 = make([]int32, len(v))
	for i, n := range v {
		t.I32[i] = int32(n)
	}
	return t
}
