//go:build cgo

package ort

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// call is everything that one call of ONNX Runtime uses and that must outlive it:
// the bindings hand on pointers only, and the garbage collector has been seen to
// free tensors in the middle of a run, whose results were then wrong.
type call struct {
	pins    runtime.Pinner
	inputs  []ort.Value
	outputs []ort.Value
	memory  [][]byte // of the foreseen outputs
	options *ort.RunOptions
}

// prepare makes the options.
func (c *call) prepare() (err error) {
	c.options, err = ort.NewRunOptions()
	return err
}

// attempt runs once, with outputs of the foreseen shapes in memory of ours.
func (s *Session) attempt(ctx context.Context, inputs []infer.Tensor, shapes [][]int) (*Answer, error) {
	c := &call{}
	defer c.destroy()
	foreseen := make([]infer.Tensor, len(shapes))
	if err := s.bind(c, inputs, shapes, foreseen); err != nil {
		s.giveBack(c)
		return nil, err
	}
	err := s.once(ctx, c)
	runtime.KeepAlive(inputs)
	runtime.KeepAlive(foreseen)
	if err != nil {
		s.giveBack(c)
		return nil, err
	}
	a := &Answer{Outputs: foreseen, buffers: &s.buffers, memory: c.memory}
	for i, p := range s.info.Outputs {
		if err := collect(&a.Outputs[i], p, c.outputs[i]); err != nil {
			a.Release()
			return nil, err
		}
	}
	return a, nil
}

// once makes the one call of ONNX Runtime that c is prepared for.
func (s *Session) once(ctx context.Context, c *call) error {
	if err := s.cfg.hooks.ran(c); err != nil {
		return err
	}
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = c.options.Terminate() // it can but set a flag
	})
	err := s.session.RunWithOptions(c.inputs, c.outputs, c.options)
	if !stop() {
		<-over // it may still hold the options
	}
	runtime.KeepAlive(c)
	return err
}

func (s *Session) giveBack(c *call) {
	for _, b := range c.memory {
		s.buffers.put(b)
	}
}

func (s *Session) bind(c *call, inputs []infer.Tensor, shapes [][]int, outputs []infer.Tensor) (err error) {
	if err := c.prepare(); err != nil {
		return err
	}
	for _, t := range inputs {
		v, err := value(c, t)
		if err != nil {
			return err
		}
		c.inputs = append(c.inputs, v)
	}
	c.outputs = make([]ort.Value, len(shapes))
	for i, p := range s.info.Outputs {
		shape := shapes[i]
		n := infer.Elements(shape)
		if shape == nil || n == 0 {
			continue
		}
		t := infer.Tensor{Name: p.Name, DType: passed(p), Shape: shape}
		size := n * t.DType.Size()
		memory := s.buffers.get(size)
		c.memory = append(c.memory, memory)
		setRaw(&t, memory[:size])
		if c.outputs[i], err = value(c, t); err != nil {
			return err
		}
		outputs[i] = t
	}
	return nil
}

// destroy gives the values back that ONNX Runtime made. Data that were asked for
// lie in Go's memory and stay.
func (c *call) destroy() {
	for _, v := range append(c.inputs, c.outputs...) {
		if v != nil {
			_ = v.Destroy() // it cannot fail
		}
	}
	if c.options != nil {
		_ = c.options.Destroy() // it cannot fail
	}
	c.pins.Unpin()
}

// value wraps a tensor without copying it. Scalars are copied: the bindings know
// no other way.
func value(c *call, t infer.Tensor) (ort.Value, error) {
	switch t.DType {
	case infer.F32:
		return wrap(c, t.Shape, t.F32)
	case infer.I64:
		return wrap(c, t.Shape, t.I64)
	case infer.I32:
		return wrap(c, t.Shape, t.I32)
	case infer.U8:
		return wrap(c, t.Shape, t.U8)
	case infer.Bool:
		return wrap(c, t.Shape, bools(t.U8))
	case infer.F16:
		return wrapHalves(c, t.Shape, t.U8)
	}
	return nil, fmt.Errorf("a tensor of %s", t.DType)
}

// bools views bytes, each 0 or 1, as what the bindings want. Nothing here reads them
// as such: the memory of an output holds anything before it is written.
func bools(b []byte) []bool {
	return unsafe.Slice((*bool)(unsafe.Pointer(unsafe.SliceData(b))), len(b)) //nolint:gosec // of the slice itself
}

func wrap[T float32 | int64 | int32 | uint8 | bool](c *call, shape []int, data []T) (ort.Value, error) {
	if len(shape) == 0 {
		return ort.NewScalar(data[0])
	}
	if len(data) > 0 {
		c.pins.Pin(&data[0])
	}
	return ort.NewTensor(dimensions(shape), data)
}

// wrapHalves is wrap for F16, of a shape with axes. The bindings want memory for a tensor
// without elements, too.
func wrapHalves(c *call, shape []int, data []byte) (ort.Value, error) {
	if len(data) == 0 {
		data = make([]byte, alignment)
	}
	c.pins.Pin(&data[0])
	return ort.NewCustomDataTensor(dimensions(shape), data, ort.TensorElementDataTypeFloat16)
}

func dimensions(shape []int) ort.Shape {
	out := make(ort.Shape, len(shape))
	for i, n := range shape {
		out[i] = int64(n)
	}
	return out
}

// collect makes t of an output. One that was foreseen is there already, but for
// scalars.
func collect(t *infer.Tensor, p infer.Port, v ort.Value) error {
	ok := false
	switch passed(p) {
	case infer.F32:
		t.F32, ok = take(t.F32, v)
	case infer.I64:
		t.I64, ok = take(t.I64, v)
	case infer.I32:
		t.I32, ok = take(t.I32, v)
	case infer.U8:
		t.U8, ok = take(t.U8, v)
	case infer.Bool:
		var b []bool
		if b, ok = take(bools(t.U8), v); ok {
			t.U8 = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(b))), len(b)) //nolint:gosec // of the slice itself
		}
	}
	if !ok {
		return fmt.Errorf("output %q has the type %T, but the model announces %s", p.Name, v, p.DType)
	}
	t.Name, t.DType, t.Shape = p.Name, passed(p), []int{}
	for _, n := range v.GetShape() {
		t.Shape = append(t.Shape, int(n))
	}
	return nil
}

func take[T float32 | int64 | int32 | uint8 | bool](foreseen []T, v ort.Value) ([]T, bool) {
	switch v := v.(type) {
	case *ort.Scalar[T]:
		return []T{v.GetData()}, true
	case *ort.Tensor[T]:
		if foreseen != nil {
			return foreseen, true
		}
		return v.GetData(), true
	}
	return nil, false
}

// saw tells of a call.
func (h hooks) saw(what string) error {
	if h.seen == nil {
		return nil
	}
	return h.seen(what, nil)
}

// ran tells of a run.
func (h hooks) ran(c *call) error {
	if h.seen == nil || len(c.inputs) == 0 {
		return nil
	}
	return h.seen("run", c.inputs[0].GetShape())
}
