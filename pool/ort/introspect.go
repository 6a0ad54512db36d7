//go:build cgo

package ort

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/rewardloop/rewardloop/internal/infer"
)

// introspect asks a file for its ports.
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

// supported refuses what cannot be passed on, naming the port and its type.
func supported(m infer.Model, inputs, outputs []ort.InputOutputInfo) error {
	refuse := func(p ort.InputOutputInfo, format string, args ...any) error {
		return fmt.Errorf("%w: %q from %s: %q is "+format, append([]any{infer.ErrModel, m.Name, m.Path, p.Name}, args...)...)
	}
	for _, p := range slices.Concat(inputs, outputs) {
		if p.OrtValueType != ort.ONNXTypeTensor {
			return refuse(p, "%v, and only tensors can be passed on", p.OrtValueType)
		}
		if infer.DType(dtype(p.DataType)).Size() == 0 {
			return refuse(p, "a tensor of %s, want F32, F16, I64, I32, U8 or BOOL: export the model with F32 or F16, or add a Cast for the tensor", dtype(p.DataType))
		}
	}
	for _, p := range inputs { // the bindings cannot make one
		if p.DataType == ort.TensorElementDataTypeFloat16 && len(p.Dimensions) == 0 {
			return refuse(p, "a tensor of F16 without axes, which is not supported: export the tensor in F32 or with an axis")
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
		return string(infer.F16)
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
