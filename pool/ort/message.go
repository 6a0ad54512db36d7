package ort

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// What a child can be asked.
const (
	opLoad   = "load"   // load Model
	opUnload = "unload" // give Model's memory back, if it is loaded
	opRun    = "run"    // run a batch, which lies in the shared memory
	opCanary = "canary" // run the canary
	opAbout  = "about"  // say which library was loaded, and try its providers
)

// Bounds of a batch, far above what models have.
const (
	maxPorts = 64
	maxAxes  = 16
)

// alignment of a tensor's first byte, in the shared memory and in an answer.
const alignment = 8

// request is the meta of a subprocess.Request. It says nothing of deadlines, so that
// equal work has equal bytes: a slot pool remembers by them what killed children.
type request struct {
	Op       string          `json:"op"`
	Model    infer.Model     `json:"model"`
	Inputs   []port          `json:"inputs,omitempty"`
	Outputs  []string        `json:"outputs,omitempty"`
	Reduce   infer.Reduction `json:"reduce,omitempty"`
	Whole    bool            `json:"whole,omitempty"`
	Generate *infer.Generate `json:"generate,omitempty"`
}

// batch is what a run is asked to run. The names of its items stay with the parent.
func (r request) batch(inputs []infer.Tensor) infer.Batch {
	return infer.Batch{Inputs: inputs, Outputs: r.Outputs, Reduce: r.Reduce, Whole: r.Whole, Generate: r.Generate}
}

// port is a tensor without its data.
type port struct {
	Name  string           `json:"name"`
	DType infer.DType      `json:"dtype"`
	Shape []int            `json:"shape"`
	Norm  *infer.Normalize `json:"norm,omitempty"`
}

// answer is the header of a child's answer; the outputs' data follow.
type answer struct {
	// PID is the process that answers, which now has the model.
	PID int `json:"pid"`
	// Info answers opLoad, About opAbout, Outputs the others.
	Info    *infer.Info `json:"info,omitempty"`
	About   *about      `json:"about,omitempty"`
	Outputs []port      `json:"outputs,omitempty"`
}

// about is what a child sees of the library it has loaded.
type about struct {
	Version string `json:"version"`
	// CUDA is why the CUDA provider cannot be used; "" if it can.
	CUDA string `json:"cuda"`
}

// encodeRun makes the request of a batch: the data of its inputs, one after the
// other, each beginning at a multiple of 8. It copies nothing.
func encodeRun(m infer.Model, b infer.Batch) (subprocess.Request, error) {
	r := request{Op: opRun, Model: m, Outputs: b.Outputs, Reduce: b.Reduce, Whole: b.Whole, Generate: b.Generate}
	out := subprocess.Request{Name: title(m, b)}
	for _, t := range b.Inputs {
		if err := t.Check(); err != nil {
			return subprocess.Request{}, fmt.Errorf("%s: %w", out.Name, err)
		}
		r.Inputs = append(r.Inputs, port{t.Name, t.DType, t.Shape, t.Norm})
		data := raw(t)
		out.Pixels = append(out.Pixels, data, make([]byte, padding(len(data))))
	}
	if len(r.Inputs) > maxPorts {
		return subprocess.Request{}, fmt.Errorf("%w: %s has %d inputs, at most %d are possible", infer.ErrInput, out.Name, len(r.Inputs), maxPorts)
	}
	var err error
	out.Meta, err = json.Marshal(r)
	return out, err
}

// title names a batch in errors.
func title(m infer.Model, b infer.Batch) string {
	switch len(b.Names) {
	case 0:
		return m.Name
	case 1:
		return m.Name + " of " + b.Names[0]
	}
	return fmt.Sprintf("%s of %s and %d more", m.Name, b.Names[0], len(b.Names)-1)
}

// errRequest marks what only a broken parent sends.
var errRequest = errors.New("malformed request")

// decode reads a request in the child. The tensors alias data, which begins at a
// multiple of 8.
func decode(meta, data []byte) (request, []infer.Tensor, error) {
	var r request
	if err := json.Unmarshal(meta, &r); err != nil {
		return r, nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	inputs, err := tensors(r.Inputs, data)
	return r, inputs, err
}

// encodeAnswer makes the body of an answer: the length of its header as 8 bytes,
// the header, and the outputs' data, each beginning at a multiple of 8. It writes
// to buf if that is large enough.
func encodeAnswer(buf []byte, a answer, outputs []infer.Tensor) ([]byte, error) {
	size := 0
	for _, t := range outputs {
		a.Outputs = append(a.Outputs, port{Name: t.Name, DType: t.DType, Shape: t.Shape})
		size += t.Len()*t.DType.Size() + alignment
	}
	head, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	size += len(head) + 2*alignment
	if size > subprocess.MaxAnswer {
		return nil, subprocess.Classed(subprocess.TooLong, fmt.Errorf("the outputs have %d bytes, an answer at most %d", size, subprocess.MaxAnswer))
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	buf = binary.LittleEndian.AppendUint64(buf[:0], uint64(len(head)))
	buf = pad(append(buf, head...))
	for _, t := range outputs {
		buf = pad(append(buf, raw(t)...))
	}
	return buf, nil
}

// decodeAnswer reads an answer in the parent. The tensors alias body.
func decodeAnswer(body []byte) (answer, []infer.Tensor, error) {
	var a answer
	if len(body) < alignment {
		return a, nil, fmt.Errorf("%w: an answer of %d bytes", infer.ErrFault, len(body))
	}
	n := binary.LittleEndian.Uint64(body)
	body = body[alignment:]
	if n > uint64(len(body)) || n+uint64(padding(int(n))) > uint64(len(body)) { //nolint:gosec // bounded by the first condition
		return a, nil, fmt.Errorf("%w: an answer whose header of %d bytes is truncated", infer.ErrFault, n)
	}
	if err := json.Unmarshal(body[:n], &a); err != nil {
		return a, nil, fmt.Errorf("%w: an answer with the header: %w", infer.ErrFault, err)
	}
	outputs, err := tensors(a.Outputs, body[int(n)+padding(int(n)):]) //nolint:gosec // bounded above
	if err != nil {
		return a, nil, fmt.Errorf("%w: an answer: %w", infer.ErrFault, err)
	}
	return a, outputs, nil
}

// tensors makes tensors of data that lies one after the other, without copying it.
// Every byte of it must belong to one.
func tensors(ports []port, data []byte) ([]infer.Tensor, error) {
	if len(ports) > maxPorts {
		return nil, fmt.Errorf("%w: %d tensors", errRequest, len(ports))
	}
	var all []infer.Tensor
	for _, p := range ports {
		size, n := p.DType.Size(), infer.Elements(p.Shape)
		if size == 0 || n < 0 || len(p.Shape) > maxAxes {
			return nil, fmt.Errorf("%w: tensor %q is %s%v", errRequest, p.Name, p.DType, p.Shape)
		}
		if size*n > len(data) || size*n+padding(size*n) > len(data) {
			return nil, fmt.Errorf("%w: tensor %q is %s%v, which needs %d bytes, and %d are left", errRequest, p.Name, p.DType, p.Shape, size*n, len(data))
		}
		t := infer.Tensor{Name: p.Name, DType: p.DType, Shape: p.Shape, Norm: p.Norm}
		setRaw(&t, data[:size*n])
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("%w: %s", errRequest, err.Error()) // its class is the request's, not the item's
		}
		all = append(all, t)
		data = data[size*n+padding(size*n):]
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%w: %d bytes belong to no tensor", errRequest, len(data))
	}
	return all, nil
}

// padding is what a length lacks to a multiple of 8.
func padding(n int) int { return -n & (alignment - 1) }

func pad(b []byte) []byte {
	return append(b, make([]byte, padding(len(b)))...)
}

// raw are the bytes of a tensor's data, in the machine's order: parent and child
// are one machine.
func raw(t infer.Tensor) []byte {
	switch t.DType {
	case infer.F32:
		return bytesOf(t.F32)
	case infer.I64:
		return bytesOf(t.I64)
	case infer.I32:
		return bytesOf(t.I32)
	case infer.U8, infer.Bool:
		return t.U8
	}
	return nil
}

// setRaw makes data, which begins at a multiple of its element's size, the
// tensor's.
func setRaw(t *infer.Tensor, data []byte) {
	switch t.DType {
	case infer.F32:
		t.F32 = elements[float32](data)
	case infer.I64:
		t.I64 = elements[int64](data)
	case infer.I32:
		t.I32 = elements[int32](data)
	case infer.U8, infer.Bool, infer.F16: // F16 only between a session and ONNX Runtime
		t.U8 = data
	}
}

func bytesOf[T float32 | int64 | int32](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0]))) //nolint:gosec // of the slice itself
}

func elements[T float32 | int64 | int32 | uint16](b []byte) []T {
	if len(b) == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/int(unsafe.Sizeof(*new(T)))) //nolint:gosec // aligned, see tensors
}

// reduceArgMax replaces an F32 tensor by the index of the largest element of its
// last axis, the first of several, and the element itself.
func reduceArgMax(t infer.Tensor) (index, value infer.Tensor, err error) {
	if len(t.Shape) == 0 || t.Shape[len(t.Shape)-1] == 0 {
		return index, value, fmt.Errorf("%w: output %q of shape %v has no last axis to take the largest of", infer.ErrInput, t.Name, t.Shape)
	}
	last := t.Shape[len(t.Shape)-1]
	shape := slices.Clone(t.Shape[:len(t.Shape)-1])
	n := len(t.F32) / last
	index = infer.Tensor{Name: t.Name, DType: infer.I32, Shape: shape, I32: make([]int32, n)}
	value = infer.Tensor{Name: t.Name + ".max", DType: infer.F32, Shape: slices.Clone(shape), F32: make([]float32, n)}
	for i := range n {
		row := t.F32[i*last : (i+1)*last]
		at, best := 0, row[0]
		for j, v := range row {
			if v > best {
				at, best = j, v
			}
		}
		index.I32[i], value.F32[i] = int32(at), best //nolint:gosec // Elements bounds it by 2^31
	}
	return index, value, nil
}
