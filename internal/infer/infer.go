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

// The ways in which a model fails, beside the end of the caller's context.
var (
	// ErrModel: the model cannot be loaded, or does not have the inputs and outputs
	// that were asked for. Trying again does not help.
	ErrModel = errors.New("model unusable")
	// ErrInput: the model refuses this item: wrong shape, wrong type. The fault is
	// the item's.
	ErrInput = errors.New("model input refused")
	// ErrMemory: the device had no memory for the batch. A smaller one may fit.
	ErrMemory = errors.New("out of device memory")
	// ErrFault: the runtime failed or answered with NaN or an infinity: a fault of
	// the replica, not a value.
	ErrFault = errors.New("model replica at fault")
	// ErrCrashed: the process that ran the batch died, twice.
	ErrCrashed = errors.New("model process crashed")
	// ErrTimeout: the deadline passed first; the run was ended.
	ErrTimeout = errors.New("model deadline passed")
	// ErrUnavailable: no replica can be had: none starts, or the pool is closed.
	ErrUnavailable = errors.New("model unavailable")
	// ErrNumbers is the ErrFault of an answer with NaN or an infinity.
	ErrNumbers = fmt.Errorf("%w: not a number", ErrFault)
)

// Marks are beside the errors above and say more of whose fault they are.
var (
	// ErrWaiting, of ErrTimeout: the deadline passed before the item's run began.
	ErrWaiting = errors.New("the deadline passed before the run of the item began")
	// ErrHung, of ErrTimeout: the run did not end at its deadline, and its process was killed.
	ErrHung = errors.New("the process hung")
	// ErrHost, of ErrCrashed, ErrFault, ErrMemory or ErrTimeout: the machine or its device is
	// at fault, not the item.
	ErrHost = errors.New("the machine is at fault")
	// ErrMissing, of ErrUnavailable: a library, provider or device is not there, and will
	// not be before somebody installs it.
	ErrMissing = errors.New("not installed")
	// ErrLoad: it happened when a device was opened, or a model loaded or held to its
	// self-test, and has nothing to do with any item.
	ErrLoad = errors.New("while loading")
)

// Marked returns err with a mark that is not in its text. Nil stays nil.
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

// DType is the type of a tensor's elements, by its safetensors name.
type DType string

// The types that models here take and give.
const (
	F32 DType = "F32"
	I64 DType = "I64"
	I32 DType = "I32"
	U8  DType = "U8"
	// Bool elements are bytes, 0 or 1, in the slice of U8.
	Bool DType = "BOOL"
	// F16 is a type of ports alone: tensors of F32 go in and come out, and are converted
	// where the model runs.
	F16 DType = "F16"
	// Text elements are strings, of any length: what a model in Python answers.
	Text DType = "TEXT"
)

// Size is the number of bytes of an element; 0 for an unknown type, and for Text.
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

// Tensor is a dense array, row major. The one slice that DType names is set.
type Tensor struct {
	// Name of the model's input or output; "" is allowed where there is only one.
	Name  string
	DType DType
	// Shape holds the sizes of the axes, slowest first. Empty is a scalar.
	Shape []int

	F32 []float32
	I64 []int64
	I32 []int32
	U8  []byte
	// Texts are the elements of a Text tensor.
	Texts []string

	// Norm makes an F32 or F16 input of a U8 tensor where the model runs, so that a quarter
	// of the bytes travel. Nil: the tensor goes in as it is.
	Norm *Normalize
}

// Floats makes an F32 tensor of data, which it does not copy.
func Floats(name string, data []float32, shape ...int) Tensor {
	return Tensor{Name: name, DType: F32, Shape: shape, F32: data}
}

// Elements is the product of a shape's sizes: 1 for a scalar, -1 if a size is
// negative or the product passes 2^31-1, which no model here needs.
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

// Len is the number of elements in the tensor's data.
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

// Check says what is wrong with the tensor itself: unknown type, or data that is
// not as long as the shape says. It wraps ErrInput.
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

// Reduction is what is done with an output where it was computed, so that less of
// it has to travel.
type Reduction string

// The reductions.
const (
	// AsIs returns outputs as they are.
	AsIs Reduction = ""
	// ArgMax replaces an F32 output by two over its last axis: an I32 one with the
	// index of the largest element (the first, if several) and, under the same name
	// with ".max" appended, an F32 one with its value. A CTC recogniser's answer
	// shrinks by the size of its alphabet, 6,625 and more.
	ArgMax Reduction = "argmax"
)

// Request is one item for a model.
type Request struct {
	// Name stands for the item in errors, such as a sample's id.
	Name string
	// Inputs have no batch axis.
	Inputs []Tensor
	// Outputs are the names of those that are wanted, in the order in which they are
	// answered; the others stay where they were computed. Empty: all, in the model's
	// order.
	Outputs []string
	// Reduce is applied to every output.
	Reduce Reduction
	// Whole says that the item is a batch by itself, for graphs without a batch axis
	// (Qwen2-VL's vision encoder): its tensors go in as they are, and the outputs come
	// back as they are. It shares a run with nothing.
	Whole bool
	// Generate is what a language model does with the item (Model.Embed is set); nil
	// for every other model.
	Generate *Generate
	// Message is the item of a model in Python (Model.Entry is set), which has no Inputs; nil
	// for every other model. The answer is one Text tensor "reply" without axes.
	Message *Message
}

// Message is an item for a model in Python.
type Message struct {
	// Head is a JSON object that says what the item is, and what its blobs are.
	Head []byte
	// Blobs are tensors' bytes. What runs the batch puts them into shared memory one after
	// the other.
	Blobs [][]byte
	// Release, if set, is called once when nothing reads the message any more. That may be after
	// Infer has returned: a caller that leaves does not wait for the end of its batch.
	Release func()
}

// Size is how many bytes the head and the blobs have.
func (m *Message) Size() int {
	n := len(m.Head)
	for _, b := range m.Blobs {
		n += len(b)
	}
	return n
}

// Key is what items have in common that may share a batch: names, types and shapes of
// the inputs, the outputs that are wanted, the reduction, and what is generated.
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

// Bytes is the size of the item's inputs or of its message.
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

// Batch is items of one Key, stacked.
type Batch struct {
	// Names of the items, in their order.
	Names []string
	// Inputs have the batch axis first. A part of an input that belongs to one item
	// is contiguous.
	Inputs []Tensor
	// Outputs are those of the items.
	Outputs []string
	Reduce  Reduction
	// Whole is that of its one item: there is no batch axis.
	Whole bool
	// Generate is that of the items.
	Generate *Generate
	// Messages are those of the items of a model in Python, which have no Inputs.
	Messages []*Message
	// Began is called by what runs the batch, when it begins; it may be called again, and
	// may be nil.
	Began func()
}

// Port is one input or output of a model as it describes itself.
type Port struct {
	Name string `json:"name"`
	// DType is the type that the model has, F16 too; Carries says which tensors pass.
	DType string `json:"dtype"`
	// Shape has -1 for sizes that are free.
	Shape []int `json:"shape"`
}

// Carries reports whether tensors of type d go in or come out there: those of the port's
// own type, and F32 where it is F16.
func (p Port) Carries(d DType) bool {
	return p.DType == string(d) && d != F16 || p.DType == string(F16) && d == F32
}

// Types lists ports by name and type for people. Those whose names differ behind the first dot
// alone, as those of layers do, are there once: "logits F32, present F16".
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

// Info is what a model says about itself.
type Info struct {
	Inputs  []Port `json:"inputs"`
	Outputs []Port `json:"outputs"`
	// Metadata are the custom entries of the file, such as "character".
	Metadata map[string]string `json:"metadata,omitempty"`
	// Provider is what runs it: "CPUExecutionProvider" or "CUDAExecutionProvider".
	Provider string `json:"provider"`
	// MaxBatch is the largest batch for which the device had memory when the model was loaded; 0
	// where it lacked none, or was not tried.
	MaxBatch int `json:"max_batch,omitempty"`
	// Bytes is what one process with the model takes of the device's memory for it; 0: not known.
	Bytes int64 `json:"bytes,omitempty"`
}

// Model names a model and where it runs. Two equal Models are the same one.
type Model struct {
	// Name in errors, metrics and the log.
	Name string `json:"name"`
	// Path of the file.
	Path string `json:"path"`
	// SHA256 of the file in lower-case hexadecimal; "" is not checked.
	SHA256 string `json:"sha256,omitempty"`
	// Embed makes the model a language model: Path is its decoder with a cache of keys
	// and values (decoder_model_merged.onnx), Embed the file that makes embeddings of
	// token ids (embed_tokens.onnx). Items then have a Generate. "": a plain graph.
	Embed string `json:"embed,omitempty"`
	// Entry makes it a model in Python: what tells its entry in the configuration from all
	// others. Path is its file or module, and items have a Message. "": an ONNX model.
	Entry string `json:"entry,omitempty"`
	// Device is "cpu", "cuda" for every card of the reward pool, or "cuda:<n>".
	Device string `json:"device"`
}

// Row returns the part of a batched tensor that belongs to item i, without the
// batch axis. It aliases the tensor.
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

// Stack joins the items' inputs into a batch. All must have the same Key; it wraps
// ErrInput otherwise, naming the item.
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

// The devices of a model beside cuda:<n>, which is the nth card that the process sees.
const (
	CPU = "cpu"
	// Pool is every card of the process's reward pool.
	Pool = "cuda"
)

// DeviceForm says for people what names a device.
const DeviceForm = "cpu, cuda (every card of the reward pool) or cuda:<n>"

var deviceForm = regexp.MustCompile(`^(cpu|cuda|cuda:(0|[1-9][0-9]{0,2}))$`)

// ValidDevice reports whether a text names a device. Each has one name only, because models
// are shared by it.
func ValidDevice(device string) bool { return deviceForm.MatchString(device) }
