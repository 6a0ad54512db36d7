//go:build cgo

package ort

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// The bindings cannot make an output of F16 whose shape is not known before the run: they
// copy as many bytes as it has elements, which is half of them, and fail. So the model is
// loaded with a Cast behind every such output, and the session is asked for what that
// gives, which is F32 and of the type of every other output. The caches of a decoder
// alone stay as they are, because their shapes are known.

// widened ends the names of the outputs of those Casts.
const widened = " as F32"

// folderEntry tells ONNX Runtime where the weights are that a model keeps in files beside
// it, where it gets the model as bytes.
const folderEntry = "session.model_external_initializers_file_folder_path"

// source is the model that the session is made of, nil for its file as it is, and the
// names of the outputs in it.
func (s *Session) source(o *ort.SessionOptions) (model []byte, outputs []string, err error) {
	outputs = names(s.info.Outputs)
	var casts []byte
	for i, p := range s.info.Outputs {
		if p.DType == string(infer.F16) && !s.cfg.keeps(p.Name) {
			outputs[i] += widened
			casts = append(casts, castNode(p.Name, outputs[i])...)
		}
	}
	switch {
	case casts == nil:
		return s.cfg.data, outputs, nil
	case s.cfg.data != nil:
		return slices.Concat(s.cfg.data, casts), outputs, nil
	}
	if model, err = readWith(s.cfg.Model.Path, casts); err == nil {
		err = o.AddSessionConfigEntry(folderEntry, filepath.Dir(s.cfg.Model.Path))
	}
	return model, outputs, err
}

// readWith is a file with a tail behind it.
func readWith(path string, tail []byte) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > maxModel {
		return nil, fmt.Errorf("the file has %d bytes, a model at most %d", st.Size(), maxModel)
	}
	all := make([]byte, st.Size(), st.Size()+int64(len(tail)))
	if _, err := io.ReadFull(f, all); err != nil {
		return nil, err
	}
	return append(all, tail...), nil
}

// create makes the session that runs.
func (s *Session) create(o *ort.SessionOptions) error {
	model, outputs, err := s.source(o)
	if err != nil {
		return err
	}
	if model == nil {
		s.session, err = ort.NewDynamicAdvancedSession(s.cfg.Model.Path, names(s.info.Inputs), outputs, o)
		return err
	}
	s.session, err = ort.NewDynamicAdvancedSessionWithONNXData(model, names(s.info.Inputs), outputs, o)
	if s.cfg.data == nil {
		debug.FreeOSMemory() // of the file, up to maxModel, which the runtime has copied
	}
	return err
}

// castNode is what makes an F32 output of an output of a model, where it stands behind the
// model's bytes: messages of protocol buffers are joined like this, their lists too. It is
//
//	ModelProto{graph: {node: {op_type: "Cast", input, output, attribute: {to: FLOAT}}, output: {name, type}}}
func castNode(from, to string) []byte {
	const float, intAttribute = 1, 2 // TensorProto.FLOAT, AttributeProto.INT
	attribute := slices.Concat(field(1, []byte("to")), number(3, float), number(20, intAttribute))
	node := slices.Concat(field(1, []byte(from)), field(2, []byte(to)), field(4, []byte("Cast")), field(5, attribute))
	output := slices.Concat(field(1, []byte(to)), field(2, field(1, number(1, float))))
	return field(7, slices.Concat(field(1, node), field(12, output)))
}

// field is a field of a message that has a length.
func field(n uint64, data []byte) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(nil, n<<3|2), uint64(len(data))), data...)
}

// number is a field of a message that is a whole number.
func number(n, v uint64) []byte { return binary.AppendUvarint(binary.AppendUvarint(nil, n<<3), v) }

// passed is the type of the tensors that an output gives.
func passed(p infer.Port) infer.DType {
	if p.DType == string(infer.F16) {
		return infer.F32
	}
	return infer.DType(p.DType)
}

// halves views the bytes of an F16 tensor, which begin at a multiple of 8, as its numbers.
func halves(t infer.Tensor) []uint16 { return elements[uint16](t.U8) }

// converted makes of the inputs what the model takes: numbers of bytes that are to be
// normalised, and numbers of F16 for its inputs of F16. They lie in memory that the caller
// gives back once the run is over, also with an error.
func (s *Session) converted(inputs []infer.Tensor) (memory [][]byte, err error) {
	for i, t := range inputs {
		port := s.info.Inputs[i]
		if t.Norm == nil && t.DType == infer.DType(port.DType) {
			continue
		}
		to := infer.Tensor{Name: port.Name, DType: infer.DType(port.DType), Shape: t.Shape}
		size := t.Len() * to.DType.Size()
		m := s.buffers.get(size)
		memory = append(memory, m)
		setRaw(&to, m[:size])
		if err := fill(to, t); err != nil {
			return memory, fmt.Errorf("%q: input %s: %w", s.cfg.Model.Name, list([]infer.Port{port}), err)
		}
		inputs[i] = to
	}
	return memory, nil
}

// fill writes what from becomes in the type of to.
func fill(to, from infer.Tensor) error {
	switch {
	case to.DType == infer.F16 && from.Norm != nil:
		return from.Norm.IntoHalves(halves(to), from.U8)
	case to.DType == infer.F16:
		return tooLarge(infer.ToHalf(halves(to), from.F32), from.F32)
	}
	from.Norm.Into(to.F32, from.U8)
	return nil
}

// tooLarge says that the number at a place, if there is one, cannot be one of F16.
func tooLarge(at int, of []float32) error {
	if at < 0 {
		return nil
	}
	return fmt.Errorf("%w: %v at %d is beyond F16, which ends at %d", infer.ErrInput, of[at], at, infer.MaxHalf)
}

// keeps reports whether an output is left as the model gives it: a decoder's cache.
func (c SessionConfig) keeps(name string) bool {
	return c.decoder && strings.HasPrefix(name, presentPrefix)
}
