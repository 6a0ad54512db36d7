package pickle

import (
	"fmt"
)

// Items returns the elements of a list, a tuple or a one-dimensional object
// array; ok is false for every other value. It does not copy.
func Items(v Value) (items []Value, ok bool) {
	switch v := v.(type) {
	case *List:
		return v.Items, true
	case *Tuple:
		return v.Items, true
	case *NDArray:
		return v.Objects, v.DType == "O" && len(v.Shape) == 1
	}
	return nil, false
}

// Strings returns the elements of a list or tuple of str or of a
// one-dimensional array of dtype U or O, the forms in which trainers send
// prompts. The error matches ErrType.
func Strings(v Value) ([]string, error) {
	if a, ok := v.(*NDArray); ok && len(a.Shape) == 1 && a.DType[0] == 'U' {
		return a.Strings, nil
	}
	return elements[string](v, "str")
}

// ByteSlices returns the elements of a list or tuple of bytes or of a
// one-dimensional object array of them, without copying. The error matches
// errType.
func ByteSlices(v Value) ([][]byte, error) {
	return elements[[]byte](v, "bytes")
}

// Dicts returns the elements of a list or tuple of dicts, such as GenEval's
// meta_datas. The error matches ErrType.
func Dicts(v Value) ([]*Dict, error) {
	return elements[*Dict](v, "dict")
}

func elements[T any](v Value, want string) ([]T, error) {
	items, ok := Items(v)
	if !ok {
		return nil, fmt.Errorf("%w: %s, want a list of %s", errType, TypeName(v), want)
	}
	out := make([]T, len(items))
	for i, item := range items {
		if out[i], ok = item.(T); !ok {
			return nil, fmt.Errorf("%w: element %d is %s, want %s", errType, i, TypeName(item), want)
		}
	}
	return out, nil
}
