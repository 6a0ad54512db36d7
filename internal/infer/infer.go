package infer

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The errors of models, besides the error of the caller's context.
var (
	// ErrModel means that the model cannot be loaded, or does not have the requested inputs and
	// outputs. A retry does not help.
	ErrModel = errors.New("model unusable")
	// ErrInput means that the model refuses the item, such as for a wrong shape or type. The item
	// is the cause.
	ErrInput = errors.New("model input refused")
	// ErrMemory means that the device had no memory for the batch. A smaller batch may fit.
	ErrMemory = errors.New("out of device memory")
	// ErrFault means that the runtime failed or returned NaN or an infinity, which is a fault of
	// the replica and not a value.
	ErrFault = errors.New("model replica at fault")
	// ErrCrashed means that the process that ran the batch crashed twice.
	ErrCrashed = errors.New("model process crashed")
	// ErrTimeout means that the deadline passed before the run ended; the run was stopped.
	ErrTimeout = errors.New("model deadline passed")
	// ErrUnavailable means that there is no replica, because none starts or the pool is closed.
	ErrUnavailable = errors.New("model unavailable")
	// ErrNumbers is the ErrFault for outputs with NaN or an infinity.
	ErrNumbers = fmt.Errorf("%w: not a number", ErrFault)
)

// Marks are wrapped together with the errors above, and give more details about the cause.
var (
	// ErrWaiting marks an ErrTimeout whose deadline passed before the run of the item began.
	ErrWaiting = errors.New("the deadline passed before the run of the item began")
	// ErrHung marks an ErrTimeout whose run did not end at its deadline, so that its process was
	// killed.
	ErrHung = errors.New("the process hung")
	// ErrHost marks an ErrCrashed, ErrFault, ErrMemory or ErrTimeout that is caused by the machine
	// or its device, not by the item.
	ErrHost = errors.New("the machine is at fault")
	// ErrMissing marks an ErrUnavailable because of a library, provider or device that is not
	// installed.
	ErrMissing = errors.New("not installed")
	// ErrLoad marks an error while a device was opened or a model was loaded or self-tested. No
	// item is the cause.
	ErrLoad = errors.New("while loading")
)

// Marked returns err with a mark that is not in its text. Marked returns nil if err is nil.
func Marked(mark, err error) error {
	if err == nil {
		return nil
	}
	return &marked{mark, err}
}

type marked struct{ mark, err error }

// Error is that of the error alone.
func (m *marked) Error() string { return m.err.Error() }

// Unwrap returns both, the mark first.
func (m *marked) Unwrap() []error { return []error{m.mark, m.err} }

// DType is the type of a tensor's elements, with the type names of safetensors.
type DType string

// The types of the inputs and outputs of models.
const (
	F32 DType = "F32"
	I64 DType = "I64"
	I32 DType = "I32"
	U8  DType = "U8"
	// Bool elements are bytes, 0 or 1, in the slice U8.
	Bool DType = "BOOL"
	// F16 is a type of ports only: the tensors of such a port are F32, and are converted by the
	// process that runs the model.
	F16 DType = "F16"
	// Text elements are strings of any length: the output of a model in Python.
	Text DType = "TEXT"
)

// Size returns the number of bytes of an element, or 0 for an unknown type and for Text.
func (d DType) Size() int {
	switch d {
	case F32, I32:
		return 4
	case I64:
		return 8
	case F16:
		return 2
	case U8, Bool:
		return 1
	}
	return 0
}

// Tensor is a dense array in row-major order. Only the slice for its DType is set.
type Tensor struct {
	// Name is the name of the model's input or output; "" is allowed if there is only one.
	Name  string
	DType DType
	// Shape contains the sizes of the axes, the slowest first. An empty Shape is a scalar.
	Shape []int

	F32 []float32
	I64 []int64
	I32 []int32
	U8  []byte
	// Texts are the elements of a Text tensor.
	Texts []string

	// Norm, for a U8 tensor, is applied by the process that runs the model, and results in an F32
	// or F16 input, so that only a quarter of the bytes is transferred. nil: the tensor is used
	// unchanged.
	Norm *Normalize
}

// Floats returns an F32 tensor that uses data without copying it.
func Floats(name string, data []float32, shape ...int) Tensor {
	return Tensor{Name: name, DType: F32, Shape: shape, F32: data}
}

// Elements returns the product of the sizes in shape: 1 for a scalar, and -1 if a size is negative
// or if the product is larger than 2^31-1.
func Elements(shape []int) int {
	n := int64(1)
	for _, s := range shape {
		if s < 0 || s > math.MaxInt32 {
			return -1
		}
		if n *= int64(s); n > math.MaxInt32 {
			return -1
		}
	}
	return int(n)
}

// Len returns the number of elements of the tensor's data.
func (t Tensor) Len() int {
	switch t.DType {
	case F32:
		return len(t.F32)
	case I64:
		return len(t.I64)
	case I32:
		return len(t.I32)
	case U8, Bool:
		return len(t.U8)
	case Text:
		return len(t.Texts)
	}
	return 0
}

// Check returns an error that wraps ErrInput if the tensor is invalid: an unknown type, or data of
// another length than its shape.
func (t Tensor) Check() error {
	if t.DType.Size() == 0 || t.DType == F16 {
		return fmt.Errorf("%w: tensor %q has type %q, want F32, I64, I32, U8 or BOOL", ErrInput, t.Name, t.DType)
	}
	if n := Elements(t.Shape); n < 0 || n != t.Len() {
		return fmt.Errorf("%w: tensor %q has %d elements for shape %v", ErrInput, t.Name, t.Len(), t.Shape)
	}
	if t.DType == Bool {
		if i := slices.IndexFunc(t.U8, func(b byte) bool { return b > 1 }); i >= 0 {
			return fmt.Errorf("%w: tensor %q is BOOL and has %d at %d", ErrInput, t.Name, t.U8[i], i)
		}
	}
	if t.Norm == nil {
		return nil
	}
	if t.DType != U8 {
		return fmt.Errorf("%w: tensor %q is %s, and only U8 is normalised", ErrInput, t.Name, t.DType)
	}
	if err := t.Norm.Check(); err != nil {
		return fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	if period := int64(t.Norm.Inner) * int64(len(t.Norm.Mean)); int64(t.Len())%period != 0 {
		return fmt.Errorf("%w: tensor %q of shape %v does not have complete channels: the normalisation repeats after %d elements", ErrInput, t.Name, t.Shape, period)
	}
	return nil
}

// Reduction is applied to outputs by the process that computes them, so that less data is
// transferred.
type Reduction string

// The reductions.
const (
	// AsIs returns outputs unchanged.
	AsIs Reduction = ""
	// ArgMax replaces an F32 output by two outputs over its last axis: an I32 output with the index
	// of the largest element (the first of several), and an F32 output with its value, whose name
	// has ".max" appended. The output of a CTC recogniser shrinks by the size of its alphabet,
	// 6,625 and more.
	ArgMax Reduction = "argmax"
)

// Request is one item for a model.
type Request struct {
	// Name identifies the item in errors, such as by a sample's id.
	Name string
	// Inputs have no batch axis.
	Inputs []Tensor
	// Outputs are the names of the requested outputs, in the order in which they are returned;
	// other outputs are not transferred. Empty: all outputs in the model's order.
	Outputs []string
	// Reduce is applied to every output.
	Reduce Reduction
	// Whole makes the item a batch by itself, for graphs without a batch axis (Qwen2-VL's vision
	// encoder): its inputs and outputs are passed unchanged, and it shares its run with no other
	// item.
	Whole bool
	// Generate selects what a language model (Model.Embed is set) computes for the item; nil for
	// other models.
	Generate *Generate
	// Message is the item of a model in Python (Model.Entry is set), which has no Inputs; nil for
	// other models. The output is one Text tensor "reply" without axes.
	Message *Message
}

// Message is an item for a model in Python.
type Message struct {
	// Head is a JSON object that describes the item and its blobs.
	Head []byte
	// Blobs are the bytes of tensors. The runner of the batch copies them into shared memory one
	// after another.
	Blobs [][]byte
	// Release, if set, is called once when the message is no longer read. This may be after Infer
	// has returned, because a caller that cancels does not wait for the end of its batch.
	Release func()
}

// Size returns the number of bytes of the head and the blobs.
func (m *Message) Size() int {
	n := len(m.Head)
	for _, b := range m.Blobs {
		n += len(b)
	}
	return n
}

// Key returns a key that is equal for items that may share a batch: names, types and shapes of the
// inputs, the requested outputs, the reduction, and the Generate are the same.
func (r Request) Key() string {
	if r.Message != nil {
		return messages
	}
	b := make([]byte, 0, 64)
	if r.Whole {
		b = append(b, '=')
	}
	b = append(b, r.Reduce...)
	for _, t := range r.Inputs {
		b = append(append(append(append(b, '|'), t.Name...), ':'), t.DType...)
		for i, n := range t.Shape {
			b = strconv.AppendInt(append(b, "[ "[min(i, 1)]), int64(n), 10)
		}
		b = t.Norm.append(append(b, ']'))
	}
	for _, name := range r.Outputs {
		b = strconv.AppendQuote(append(b, '<'), name)
	}
	return string(r.Generate.append(b))
}

// messages is the Key of all items of models in Python: what a batch of them may have is the
// model's own affair.
const messages = "{"

// Bytes returns the size of the item's inputs or of its message in bytes.
func (r Request) Bytes() int {
	n := 0
	if r.Message != nil {
		n = r.Message.Size()
	}
	for _, t := range r.Inputs {
		n += t.Len() * t.DType.Size()
	}
	return n
}

// Batch is several items of one Key in one set of tensors.
type Batch struct {
	// Names are the names of the items, in their order.
	Names []string
	// Inputs have the batch axis first. The part of an input that belongs to one item is
	// contiguous.
	Inputs []Tensor
	// Outputs are the Outputs of the items.
	Outputs []string
	Reduce  Reduction
	// Whole is the Whole of its only item: the batch has no batch axis.
	Whole bool
	// Generate is the Generate of the items.
	Generate *Generate
	// Messages are the items of a model in Python, which have no Inputs.
	Messages []*Message
	// Began, if not nil, is called by the runner when it begins with the batch. It may be called
	// more than once.
	Began func()
}

// Port is an input or output in the description of a model.
type Port struct {
	Name string `json:"name"`
	// DType is the type in the model, which may be F16; Carries reports which tensors are accepted.
	DType string `json:"dtype"`
	// Shape has -1 for sizes that are not fixed.
	Shape []int `json:"shape"`
}

// Carries reports whether the port accepts or returns tensors of type d: the type of the port, or
// F32 if the type of the port is F16.
func (p Port) Carries(d DType) bool {
	return p.DType == string(d) && d != F16 || p.DType == string(F16) && d == F32
}

// Types returns a list of ports by name and type, for people. Ports whose names differ only after
// the first dot, such as those of layers, are listed once: "logits F32, present F16".
func Types(ports []Port) string {
	var out []string
	for _, p := range ports {
		name, _, _ := strings.Cut(p.Name, ".")
		if one := name + " " + p.DType; !slices.Contains(out, one) {
			out = append(out, one)
		}
	}
	return strings.Join(out, ", ")
}

// Info is the description of a model.
type Info struct {
	Inputs  []Port `json:"inputs"`
	Outputs []Port `json:"outputs"`
	// Metadata are the custom entries of the model file, such as "character".
	Metadata map[string]string `json:"metadata,omitempty"`
	// Provider is the execution provider: "CPUExecutionProvider" or "CUDAExecutionProvider".
	Provider string `json:"provider"`
	// MaxBatch is the largest batch for which the device had memory when the model was loaded; 0:
	// the memory sufficed for all batches, or was not tested.
	MaxBatch int `json:"max_batch,omitempty"`
	// Bytes is the memory of the device that one process with the model uses for it, in bytes; 0:
	// unknown.
	Bytes int64 `json:"bytes,omitempty"`
}

// Model is a model file and the device that runs it. Two equal Models are the same model.
type Model struct {
	// Name is the name of the model in errors, metrics and the log.
	Name string `json:"name"`
	// Path is the path of the model file.
	Path string `json:"path"`
	// SHA256 is the checksum of the file in lower-case hexadecimal; "": the file is not checked.
	SHA256 string `json:"sha256,omitempty"`
	// Embed makes the model a language model: Path is then its decoder with a cache of keys and
	// values (decoder_model_merged.onnx), and Embed the file that computes embeddings of token ids
	// (embed_tokens.onnx). Items then have a Generate. "": an ordinary graph.
	Embed string `json:"embed,omitempty"`
	// Entry makes the model a model in Python. Entry identifies the model's entry in the
	// configuration; Path is the file or module, and items have a Message. "": an ONNX model.
	Entry string `json:"entry,omitempty"`
	// Device is "cpu", "cuda" for every GPU of the reward pool, or "cuda:<n>".
	Device string `json:"device"`
}

// Row returns the part of a batched tensor that belongs to item i, without the batch axis. The
// result shares the memory of the tensor. The error wraps ErrFault.
func (t Tensor) Row(i int) (Tensor, error) {
	if len(t.Shape) == 0 || i < 0 || i >= t.Shape[0] {
		return Tensor{}, fmt.Errorf("%w: no item %d in tensor %q of shape %v", ErrFault, i, t.Name, t.Shape)
	}
	n := Elements(t.Shape[1:])
	if n < 0 || t.Len() != n*t.Shape[0] {
		return Tensor{}, fmt.Errorf("%w: tensor %q has %d elements for shape %v", ErrFault, t.Name, t.Len(), t.Shape)
	}
	row := Tensor{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape[1:])}
	switch t.DType {
	case F32:
		row.F32 = t.F32[i*n : (i+1)*n : (i+1)*n]
	case I64:
		row.I64 = t.I64[i*n : (i+1)*n : (i+1)*n]
	case I32:
		row.I32 = t.I32[i*n : (i+1)*n : (i+1)*n]
	case U8, Bool:
		row.U8 = t.U8[i*n : (i+1)*n : (i+1)*n]
	case Text:
		row.Texts = t.Texts[i*n : (i+1)*n : (i+1)*n]
	}
	return row, nil
}

// Stack joins the inputs of the items into a batch. All items must have the same Key; otherwise the
// error wraps ErrInput and contains the name of the item.
func Stack(items []Request) (Batch, error) {
	if len(items) == 0 {
		return Batch{}, fmt.Errorf("%w: a batch without items", ErrInput)
	}
	b := Batch{Outputs: items[0].Outputs, Reduce: items[0].Reduce, Generate: items[0].Generate, Names: []string{items[0].Name}}
	if len(items) > 1 {
		key := items[0].Key()
		for _, it := range items[1:] {
			if it.Key() != key {
				return Batch{}, fmt.Errorf("%w: %q has %s, the batch has %s", ErrInput, it.Name, it.Key(), key)
			}
			b.Names = append(b.Names, it.Name)
		}
	}
	if items[0].Message != nil {
		for _, it := range items {
			b.Messages = append(b.Messages, it.Message)
		}
		return b, nil
	}
	if b.Whole = items[0].Whole; b.Whole {
		if len(items) > 1 {
			return Batch{}, fmt.Errorf("%w: %q must be the only item of its batch, got %d items", ErrInput, items[0].Name, len(items))
		}
		b.Inputs = slices.Clone(items[0].Inputs)
		return b, nil
	}
	for k, first := range items[0].Inputs {
		t := Tensor{Name: first.Name, DType: first.DType, Norm: first.Norm, Shape: append([]int{len(items)}, first.Shape...)}
		for _, it := range items {
			in := it.Inputs[k]
			if err := in.Check(); err != nil {
				return Batch{}, fmt.Errorf("%q: %w", it.Name, err)
			}
			if len(items) == 1 { // aliased: the way of every item on a CPU
				t.F32, t.I64, t.I32, t.U8 = in.F32, in.I64, in.I32, in.U8
				continue
			}
			if t.Len() == 0 {
				t = t.grow(len(items) * in.Len())
			}
			t.F32, t.I64 = append(t.F32, in.F32...), append(t.I64, in.I64...)
			t.I32, t.U8 = append(t.I32, in.I32...), append(t.U8, in.U8...)
		}
		b.Inputs = append(b.Inputs, t)
	}
	return b, nil
}

// grow returns the tensor with room for n elements of its type.
func (t Tensor) grow(n int) Tensor {
	switch t.DType {
	case F32:
		t.F32 = make([]float32, 0, n)
	case I64:
		t.I64 = make([]int64, 0, n)
	case I32:
		t.I32 = make([]int32, 0, n)
	case U8, Bool:
		t.U8 = make([]byte, 0, n)
	}
	return t
}

// The devices of a model besides cuda:<n>, which is the GPU number n that the process can use.
const (
	CPU = "cpu"
	// Pool means every GPU of the process's reward pool.
	Pool = "cuda"
)

// DeviceForm describes the names of devices for people.
const DeviceForm = "cpu, cuda (every card of the reward pool) or cuda:<n>"

var deviceForm = regexp.MustCompile(`^(cpu|cuda|cuda:(0|[1-9][0-9]{0,2}))$`)

// ValidDevice reports whether device is the name of a device. Each device has only one valid name,
// because models are shared by device.
func ValidDevice(device string) bool { return deviceForm.MatchString(device) }
