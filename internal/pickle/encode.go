package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// The encoder writes lists and dicts in batches, as CPython does, so that a
// reader's stack stays short however long they are.
const batch = 1000

// maxEncodeDepth is the nesting Encode accepts; the default of Limits, so that
// what is written can be read.
const maxEncodeDepth = 32

// Encode returns v as a pickle of protocol 4, which every Python since 3.4 loads without importing
// a module. v is a Value of nil, bool, int64, float64, string, []byte, *List, *Tuple and *Dict, or
// for convenience an int, a []string, []float64, []int, [][]byte or []Value, which become lists.
// Floats are written unchanged, including NaN and infinities; callers must check them. A value of
// another type is an error.
func Encode(v Value) ([]byte, error) {
	out, err := appendValue([]byte{opProto, 4}, v, 0)
	if err != nil {
		return nil, err
	}
	return append(out, opStop), nil
}

// EncodeError returns the answer {"error": message, "failed": [indices]} for a failed batch, or
// {"error": message} without indices. It cannot fail: invalid UTF-8 in the message becomes U+FFFD.
func EncodeError(message string, failed []int) []byte {
	answer := &Dict{Items: []Pair{{Key: "error", Value: strings.ToValidUTF8(message, "\uFFFD")}}}
	if len(failed) > 0 {
		answer.Items = append(answer.Items, Pair{Key: "failed", Value: failed})
	}
	out, _ := Encode(answer) // valid UTF-8 and ints are all encodable
	return out
}

func appendValue(b []byte, v Value, depth int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(b, opNone), nil
	case bool:
		if v {
			return append(b, opNewTrue), nil
		}
		return append(b, opNewFalse), nil
	case int:
		return appendInt(b, int64(v)), nil
	case int64:
		return appendInt(b, v), nil
	case float64:
		return binary.BigEndian.AppendUint64(append(b, opBinFloat), math.Float64bits(v)), nil
	case string:
		return appendText(b, v)
	case []byte:
		b = appendLength(b, uint64(len(v)), opShortBinBytes, opBinBytes, opBinBytes8)
		return append(b, v...), nil
	case *Dict:
		return appendDict(b, v, depth)
	case *Tuple:
		return appendTuple(b, v.Items, depth)
	}
	return appendAnyList(b, v, depth)
}

// checkDepth stops at a container with depth containers around it.
func checkDepth(depth int) error {
	if depth >= maxEncodeDepth {
		return fmt.Errorf("%w: nested deeper than %d, or a value that contains itself", errEncode, maxEncodeDepth)
	}
	return nil
}

func appendAnyList(b []byte, v Value, depth int) ([]byte, error) {
	switch v := v.(type) {
	case *List:
		return appendList(b, v.Items, depth)
	case []Value:
		return appendList(b, v, depth)
	case []string:
		return appendList(b, v, depth)
	case []float64:
		return appendList(b, v, depth)
	case []int:
		return appendList(b, v, depth)
	case [][]byte:
		return appendList(b, v, depth)
	}
	return nil, fmt.Errorf("%w: a %s: use None, bool, int, float, str, bytes, list, tuple or dict", errEncode, TypeName(v))
}

func appendList[T any](b []byte, items []T, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	b = append(b, opEmptyList)
	var err error
	for start := 0; start < len(items); start += batch {
		b = append(b, opMark)
		for _, item := range items[start:min(start+batch, len(items))] {
			if b, err = appendValue(b, item, depth+1); err != nil {
				return nil, err
			}
		}
		b = append(b, opAppends)
	}
	return b, nil
}

func appendDict(b []byte, d *Dict, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	b = append(b, opEmptyDict)
	var err error
	for start := 0; start < len(d.Items); start += batch {
		b = append(b, opMark)
		for _, p := range d.Items[start:min(start+batch, len(d.Items))] {
			if _, ok := dictKey(p.Key); !ok {
				return nil, fmt.Errorf("%w: a %s as the key of a dict: use str", errEncode, TypeName(p.Key))
			}
			if b, err = appendValue(b, p.Key, depth+1); err != nil {
				return nil, err
			}
			if b, err = appendValue(b, p.Value, depth+1); err != nil {
				return nil, err
			}
		}
		b = append(b, opSetItems)
	}
	return b, nil
}

func appendTuple(b []byte, items []Value, depth int) ([]byte, error) {
	if err := checkDepth(depth); err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return append(b, opEmptyTuple), nil
	}
	b = append(b, opMark)
	var err error
	for _, item := range items {
		if b, err = appendValue(b, item, depth+1); err != nil {
			return nil, err
		}
	}
	return append(b, opTuple), nil
}

func appendText(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%w: a string that is not UTF-8: %.40q", errEncode, s)
	}
	b = appendLength(b, uint64(len(s)), opShortBinUnicode, opBinUnicode, opBinUnicode8)
	return append(b, s...), nil
}

// appendLength writes the opcode of the shortest form that holds n, and n.
func appendLength(b []byte, n uint64, short, medium, long byte) []byte {
	switch {
	case n <= math.MaxUint8:
		return append(b, short, byte(n))
	case n <= math.MaxUint32:
		return binary.LittleEndian.AppendUint32(append(b, medium), uint32(n))
	default:
		return binary.LittleEndian.AppendUint64(append(b, long), n)
	}
}

// appendInt writes the shortest form, as CPython does.
func appendInt(b []byte, n int64) []byte {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		return append(b, opBinInt1, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		return binary.LittleEndian.AppendUint16(append(b, opBinInt2), uint16(n))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		return binary.LittleEndian.AppendUint32(append(b, opBinInt), uint32(n))
	}
	width := 5
	for width < 8 && n != n<<(64-8*width)>>(64-8*width) {
		width++
	}
	b = append(b, opLong1, byte(width))
	for i := range width {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}
