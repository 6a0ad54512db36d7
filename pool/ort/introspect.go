//go:build cgo

package ort

import (
	"errors"
	"fmt"
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
