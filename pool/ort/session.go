//go:build cgo

package ort

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// Session is a model, loaded into this process. Its methods are safe for
// concurrent use, but on a CUDA device, where every call must come from the thread
// that opened it: called from several, one session grew by 2 GiB a run
// (onnxruntime issue 29351), and two runs at once spoil the process (32342).
type Session struct {
	cfg     SessionConfig
	info    infer.Info
	session *ort.DynamicAdvancedSession
	thread  uint64        // that opened it
	free    chan struct{} // a token per run that may start
	buffers buffers

	// trust says which shapes of outputs are foreseen, see foresee. It only falls.
	trust atomic.Int32

	closing chan struct{} // closed by Close
	close   sync.Once

	mu     sync.Mutex
	shapes map[string][][]int // guarded by mu; of the outputs, by those of the inputs
}

// Which outputs' shapes are foreseen, so that they are written into memory of ours.
const (
	trustNone   = iota // none: ONNX Runtime makes every output and it is copied
	trustScalar        // only those of outputs that have no axes
	trustAll           // also the shapes that outputs had the last time
)

// maxShapes bounds Session.shapes.
const maxShapes = 1024

// OpenSession loads a model. Its errors wrap infer.ErrModel with the path and the
// reason, infer.ErrMemory, infer.ErrFault, or infer.ErrUnavailable where the
// library or the device is what fails.
func OpenSession(cfg SessionConfig) (*Session, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), load(cfg.Library)); err != nil {
		return nil, err
	}
	if cfg.data == nil {
		if err := checkFile(cfg.Model); err != nil {
			return nil, err
		}
	}
	s := &Session{cfg: cfg, thread: thread(), closing: make(chan struct{}), shapes: make(map[string][][]int)}
	s.trust.Store(trustAll)
	open := s.open
	if cfg.cuda() {
		open = func() error { return keepSignals(s.open) }
	}
	if err := open(); err != nil {
		return nil, err
	}
	if err := match(cfg.Model, s.info, cfg.Want); err != nil {
		return nil, errors.Join(err, s.session.Destroy())
	}
	s.free = make(chan struct{}, cfg.Concurrency)
	for range cfg.Concurrency {
		s.free <- struct{}{}
	}
	return s, nil
}

// open looks at the model's ports with a session that optimises nothing, because
// the bindings want the names before they make the one that runs.
func (s *Session) open() error {
	inputs, outputs, err := s.introspect()
	if err != nil {
		return failedLoad(s.cfg.Model, err)
	}
	if kept := s.cfg.kept; kept != nil && slices.ContainsFunc(outputs, func(p ort.InputOutputInfo) bool { return kept(p.Name) }) {
		outputs = slices.DeleteFunc(outputs, func(p ort.InputOutputInfo) bool { return !kept(p.Name) })
	}
	if err := supported(s.cfg.Model, append(slices.Clone(inputs), outputs...)); err != nil {
		return err
	}
	s.info = infer.Info{Inputs: ports(inputs), Outputs: ports(outputs), Provider: cpuProvider}
	if s.cfg.cuda() {
		s.info.Provider = cudaProvider
	}
	o, err := sessionOptions(s.cfg)
	if err != nil {
		return fmt.Errorf("%w: the options of a session on %s: %w", infer.ErrUnavailable, s.cfg.Model.Device, err)
	}
	defer func() { _ = o.Destroy() }() // it cannot fail
	if s.cfg.data != nil {
		s.session, err = ort.NewDynamicAdvancedSessionWithONNXData(s.cfg.data, names(s.info.Inputs), names(s.info.Outputs), o)
	} else {
		s.session, err = ort.NewDynamicAdvancedSession(s.cfg.Model.Path, names(s.info.Inputs), names(s.info.Outputs), o)
	}
	if err != nil {
		return failedLoad(s.cfg.Model, err)
	}
	if s.info.Metadata, err = metadata(s.session); err != nil {
		return errors.Join(failedLoad(s.cfg.Model, err), s.session.Destroy())
	}
	return nil
}

func (s *Session) introspect() (inputs, outputs []ort.InputOutputInfo, err error) {
	if s.cfg.data != nil {
		return ort.GetInputOutputInfoWithONNXData(s.cfg.data)
	}
	o, err := ort.NewSessionOptions()
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = o.Destroy() }() // it cannot fail
	if err := errors.Join(o.SetGraphOptimizationLevel(ort.GraphOptimizationLevelDisableAll), o.SetIntraOpNumThreads(1)); err != nil {
		return nil, nil, err
	}
	return ort.GetInputOutputInfoWithOptions(s.cfg.Model.Path, o)
}

// supported refuses what cannot be passed on, naming the port.
func supported(m infer.Model, all []ort.InputOutputInfo) error {
	for _, p := range all {
		if p.OrtValueType != ort.ONNXTypeTensor {
			return fmt.Errorf("%w: %q from %s: %q is %v, and only tensors can be passed on", infer.ErrModel, m.Name, m.Path, p.Name, p.OrtValueType)
		}
		if infer.DType(dtype(p.DataType)).Size() == 0 && strings.HasPrefix(p.Name, pastPrefix) {
			return fmt.Errorf("%w: %q from %s: its cache %q is a tensor of %s: export it with a cache of fp32", infer.ErrModel, m.Name, m.Path, p.Name, dtype(p.DataType))
		}
		if infer.DType(dtype(p.DataType)).Size() == 0 {
			return fmt.Errorf("%w: %q from %s: %q is a tensor of %s, and F32, I64, I32, U8 and BOOL can be passed on: put a Cast behind or before it", infer.ErrModel, m.Name, m.Path, p.Name, dtype(p.DataType))
		}
	}
	return nil
}

// dtype is the safetensors name of a type, or ORT's own where there is none here.
func dtype(t ort.TensorElementDataType) string {
	switch t {
	case ort.TensorElementDataTypeFloat:
		return string(infer.F32)
	case ort.TensorElementDataTypeInt64:
		return string(infer.I64)
	case ort.TensorElementDataTypeInt32:
		return string(infer.I32)
	case ort.TensorElementDataTypeUint8:
		return string(infer.U8)
	case ort.TensorElementDataTypeBool:
		return string(infer.Bool)
	case ort.TensorElementDataTypeFloat16:
		return "F16"
	case ort.TensorElementDataTypeBFloat16:
		return "BF16"
	case ort.TensorElementDataTypeDouble:
		return "F64"
	}
	return strings.TrimPrefix(t.String(), "ONNX_TENSOR_ELEMENT_DATA_TYPE_")
}

func ports(all []ort.InputOutputInfo) []infer.Port {
	out := make([]infer.Port, len(all))
	for i, p := range all {
		out[i] = infer.Port{Name: p.Name, DType: dtype(p.DataType), Shape: make([]int, len(p.Dimensions))}
		for k, n := range p.Dimensions {
			out[i].Shape[k] = int(max(n, -1))
		}
	}
	return out
}

func names(ports []infer.Port) []string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = p.Name
	}
	return out
}

// metadata reads the custom entries of the model.
func metadata(session *ort.DynamicAdvancedSession) (map[string]string, error) {
	m, err := session.GetModelMetadata()
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Destroy() }() // it cannot fail
	keys, err := m.GetCustomMetadataMapKeys()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	out := make(map[string]string, len(keys))
	for _, k := range keys {
		v, _, err := m.LookupCustomMetadataMap(k)
		if err != nil {
			return nil, err
		}
		out[k] = v
	}
	return out, nil
}

// Info says what the model is. It is the caller's to read only.
func (s *Session) Info() infer.Info { return s.info }

// Close waits for runs that go on and gives the model's memory back. A second call
// does nothing.
func (s *Session) Close() error {
	var err error
	s.close.Do(func() {
		close(s.closing)
		for range cap(s.free) {
			<-s.free // from every run that goes on; none begins any more
		}
		err = s.session.Destroy()
	})
	return err
}

// Answer is what a run gave.
type Answer struct {
	Outputs []infer.Tensor

	buffers *buffers
	memory  [][]byte
}

// Release lets later runs have the memory of the outputs, which must not be looked
// at afterwards. Without it they are the garbage collector's.
func (a *Answer) Release() {
	for _, b := range a.memory {
		a.buffers.put(b)
	}
	a.memory, a.Outputs = nil, nil
}

// Run runs the model on a batch. Bytes with a Norm are made floats first. Outputs that
// are not wanted are computed all the same, because a run of the bindings asks for all
// that a session was opened with, but go no further. The inputs are bound in place; they are read only
// and only until Run returns. When ctx ends, so does the run, between two nodes of
// the graph. Errors wrap infer.ErrInput (a batch that does not fit the model, or
// has numbers that are none), infer.ErrMemory, infer.ErrFault (among others: NaN or
// an infinity in an output), infer.ErrTimeout or ctx's cancellation; after
// infer.ErrFault the process should be replaced.
func (s *Session) Run(ctx context.Context, b infer.Batch) (*Answer, error) {
	if b.Generate != nil {
		return nil, fmt.Errorf("%w: %q is no language model, it generates nothing", infer.ErrInput, s.cfg.Model.Name)
	}
	inputs, err := s.arrange(b)
	if err != nil {
		return nil, err
	}
	wanted, err := s.wanted(b)
	if err != nil {
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	memory := s.normalised(inputs)
	a, err := s.run(ctx, inputs)
	for _, m := range memory {
		s.buffers.put(m)
	}
	if err != nil {
		return nil, err
	}
	if err := s.finish(a, b, wanted); err != nil {
		a.Release()
		return nil, err
	}
	return a, nil
}

// begin takes a token, which the caller gives back.
func (s *Session) begin(ctx context.Context) error {
	if ctx.Err() != nil {
		return s.ended(ctx, "before it ran")
	}
	select {
	case <-s.free:
	case <-s.closing:
		return s.gone()
	case <-ctx.Done():
		return s.ended(ctx, "before the model was free")
	}
	select {
	case <-s.closing:
		s.end()
		return s.gone()
	default:
	}
	if s.cfg.cuda() && thread() != s.thread {
		s.end()
		return fmt.Errorf("%w: %q was opened on another thread, and a CUDA session is used on one", infer.ErrFault, s.cfg.Model.Name)
	}
	return nil
}

// end gives the token back.
func (s *Session) end() { s.free <- struct{}{} }

func (s *Session) gone() error {
	return fmt.Errorf("%w: %q is closed", infer.ErrUnavailable, s.cfg.Model.Name)
}

// run tries with as much foresight as has not been wrong yet.
func (s *Session) run(ctx context.Context, inputs []infer.Tensor) (*Answer, error) {
	for {
		trust := s.trust.Load()
		a, err := s.attempt(ctx, inputs, s.foresee(inputs, trust))
		switch {
		case err == nil:
			s.remember(inputs, a.Outputs)
			return a, nil
		case ctx.Err() != nil:
			return nil, s.ended(ctx, "while it ran")
		case trust > trustNone && otherShape.MatchString(err.Error()):
			// A model whose outputs' shapes depend on values, or that does not say the truth.
			s.trust.CompareAndSwap(trust, trust-1)
		default:
			return nil, fmt.Errorf("%q: %w", s.cfg.Model.Name, failedRun(err))
		}
	}
}

func (s *Session) ended(ctx context.Context, when string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %q %s: %w", infer.ErrTimeout, s.cfg.Model.Name, when, ctx.Err())
	}
	return fmt.Errorf("%q %s: %w", s.cfg.Model.Name, when, ctx.Err())
}

// foresee returns the shapes of the outputs; nil is one that is not foreseen.
func (s *Session) foresee(inputs []infer.Tensor, trust int32) [][]int {
	shapes := make([][]int, len(s.info.Outputs))
	if trust == trustAll {
		s.mu.Lock()
		copy(shapes, s.shapes[key(inputs)])
		s.mu.Unlock()
	}
	for i, p := range s.info.Outputs {
		switch {
		case slices.ContainsFunc(s.info.Inputs, func(in infer.Port) bool { return in.Name == p.Name }):
			shapes[i] = nil // ORT answers with the input itself and leaves our memory alone
		case len(p.Shape) == 0 && trust >= trustScalar:
			shapes[i] = []int{} // the bindings cannot make one
		}
	}
	return shapes
}

// remember notes the shapes that outputs had.
func (s *Session) remember(inputs, outputs []infer.Tensor) {
	if s.trust.Load() < trustAll {
		return
	}
	k := key(inputs)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shapes[k] != nil {
		return
	}
	if len(s.shapes) >= maxShapes {
		clear(s.shapes)
	}
	shapes := make([][]int, len(outputs))
	for i, t := range outputs {
		shapes[i] = t.Shape
	}
	s.shapes[k] = shapes
}

func key(inputs []infer.Tensor) string {
	var b strings.Builder
	for _, t := range inputs {
		fmt.Fprint(&b, t.Shape)
	}
	return b.String()
}

// arrange checks a batch against the model and puts its inputs in the model's order.
func (s *Session) arrange(b infer.Batch) ([]infer.Tensor, error) {
	want := s.info.Inputs
	fail := func(what string) error {
		return fmt.Errorf("%w: %q %s: the model takes %s, the batch has %s", infer.ErrInput, s.cfg.Model.Name, what, list(want), list(portsOf(b.Inputs)))
	}
	if len(b.Inputs) != len(want) {
		return nil, fail("has another number of inputs")
	}
	out := make([]infer.Tensor, len(want))
	for i, w := range want {
		k := slices.IndexFunc(b.Inputs, func(t infer.Tensor) bool { return t.Name == w.Name || (t.Name == "" && len(want) == 1) })
		if k < 0 {
			return nil, fail(fmt.Sprintf("lacks its input %q", w.Name))
		}
		t := b.Inputs[k]
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("%q: %w", s.cfg.Model.Name, err)
		}
		got := t.DType
		if t.Norm != nil {
			got = infer.F32
		}
		if string(got) != w.DType || !fits(t.Shape, w.Shape) {
			return nil, fail(fmt.Sprintf("cannot take its input %q", w.Name))
		}
		out[i] = t
	}
	return out, nil
}

// normalised makes floats of the bytes that are to be normalised, in memory that the
// caller gives back once the run is over.
func (s *Session) normalised(inputs []infer.Tensor) (memory [][]byte) {
	for i, t := range inputs {
		if t.Norm == nil {
			continue
		}
		floats := infer.Tensor{Name: t.Name, DType: infer.F32, Shape: t.Shape}
		m := s.buffers.get(4 * len(t.U8))
		setRaw(&floats, m[:4*len(t.U8)])
		t.Norm.Into(floats.F32, t.U8)
		memory, inputs[i] = append(memory, m), floats
	}
	return memory
}

// wanted are the places of the outputs that a batch asks for; nil: all.
func (s *Session) wanted(b infer.Batch) ([]int, error) {
	var at []int
	for _, name := range b.Outputs {
		k := slices.IndexFunc(s.info.Outputs, func(p infer.Port) bool { return p.Name == name })
		if k < 0 || slices.Contains(at, k) {
			return nil, fmt.Errorf("%w: %q: output %q is wanted, want each at most once of %s", infer.ErrInput, s.cfg.Model.Name, name, list(s.info.Outputs))
		}
		at = append(at, k)
	}
	return at, nil
}

// finish leaves the outputs away that nobody wants, looks for numbers that are none,
// and reduces.
func (s *Session) finish(a *Answer, b infer.Batch, wanted []int) error {
	if wanted != nil {
		all := a.Outputs
		a.Outputs = make([]infer.Tensor, len(wanted))
		for i, k := range wanted {
			a.Outputs[i] = all[k]
		}
	}
	for _, t := range a.Outputs {
		at := unreal(t.F32)
		if at < 0 {
			continue
		}
		for _, in := range b.Inputs {
			if k := unreal(in.F32); k >= 0 {
				return fmt.Errorf("%w: %q: input %q has %v at %d", infer.ErrInput, s.cfg.Model.Name, cmp.Or(in.Name, s.info.Inputs[0].Name), in.F32[k], k)
			}
		}
		return fmt.Errorf("%w: %q: output %q has %v at %d", infer.ErrFault, s.cfg.Model.Name, t.Name, t.F32[at], at)
	}
	switch b.Reduce {
	case infer.Whole:
		return nil
	case infer.ArgMax:
		return a.argMax()
	}
	return fmt.Errorf("%w: %q: reduction %q is not known", infer.ErrInput, s.cfg.Model.Name, b.Reduce)
}

// argMax reduces the outputs of floats.
func (a *Answer) argMax() error {
	var out []infer.Tensor
	for _, t := range a.Outputs {
		if t.DType != infer.F32 {
			out = append(out, t)
			continue
		}
		index, value, err := reduceArgMax(t)
		if err != nil {
			return err
		}
		out = append(out, index, value)
	}
	a.Outputs = out
	return nil
}

// unreal finds the first NaN or infinity, whose exponent has all bits set; -1 if
// there is none.
func unreal(all []float32) int {
	const exponent = 0x7f800000
	for i, v := range all {
		if math.Float32bits(v)&exponent == exponent {
			return i
		}
	}
	return -1
}
