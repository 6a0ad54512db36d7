package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The wire format of protocol buffers, as far as onnx.proto needs it
// (protobuf.dev/programming-guides/encoding, github.com/onnx/onnx/blob/main/onnx/onnx.proto).

// The wire types.
const (
	varint    = 0
	fixed64   = 1
	delimited = 2
	fixed32   = 5
)

// field is one field of a message.
type field struct {
	number, kind int
	// value is a varint or a fixed one.
	value uint64
	// data is what a length-delimited one holds; raw is the field with its tag.
	data, raw []byte
}

var errWire = errors.New("not a message of protocol buffers")

// fields calls do for every field of a message, in order.
func fields(msg []byte, do func(f field) error) error {
	for len(msg) > 0 {
		f, rest, err := next(msg)
		if err != nil {
			return err
		}
		if err := do(f); err != nil {
			return err
		}
		msg = rest
	}
	return nil
}

func next(msg []byte) (field, []byte, error) {
	tag, n := binary.Uvarint(msg)
	if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
		return field{}, nil, errWire
	}
	f := field{number: int(tag >> 3), kind: int(tag & 7)}
	rest := msg[n:]
	switch f.kind {
	case varint:
		if f.value, n = binary.Uvarint(rest); n <= 0 {
			return field{}, nil, errWire
		}
		rest = rest[n:]
	case fixed64, fixed32:
		n = 8
		if f.kind == fixed32 {
			n = 4
		}
		if len(rest) < n {
			return field{}, nil, errWire
		}
		if f.kind == fixed32 {
			f.value = uint64(binary.LittleEndian.Uint32(rest))
		} else {
			f.value = binary.LittleEndian.Uint64(rest)
		}
		rest = rest[n:]
	case delimited:
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return field{}, nil, errWire
		}
		f.data, rest = rest[n:n+int(size)], rest[n+int(size):]
	default:
		return field{}, nil, fmt.Errorf("%w: wire type %d", errWire, f.kind)
	}
	f.raw = msg[:len(msg)-len(rest)]
	return f, rest, nil
}

func appendBytes[T ~string | ~[]byte](dst []byte, number int, data T) []byte {
	dst = binary.AppendUvarint(dst, uint64(number)<<3|delimited)
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...)
}

func appendInt(dst []byte, number int, v int64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(number)<<3|varint), uint64(v))
}

func appendFloat(dst []byte, number int, v float32) []byte {
	dst = binary.AppendUvarint(dst, uint64(number)<<3|fixed32)
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
}

// ints reads a repeated integer's field, packed or a single one.
func (f field) ints(dst []int64) ([]int64, error) {
	if f.kind == varint {
		return append(dst, int64(f.value)), nil
	}
	if f.kind != delimited {
		return nil, errWire
	}
	for data := f.data; len(data) > 0; {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return nil, errWire
		}
		dst, data = append(dst, int64(v)), data[n:]
	}
	return dst, nil
}
