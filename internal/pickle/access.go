package pickle

import (
	"fmt"
)

// Items returns the elements of a list, a tuple or a one-dimensional object array without copying
// them; ok is false for every other value.
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

// Strings returns the elements of a list or tuple of str, or of a one-dimensional array of dtype U
// or O: the forms in which trainers send prompts. A value of another type is an error.
func Strings(v Value) ([]string, error) {
	if a, ok := v.(*NDArray); ok && len(a.Shape) == 1 && a.DType[0] == 'U' {
		return a.Strings, nil
	}
	return elements[string](v, "str")
}

// ByteSlices returns the elements of a list or tuple of bytes, or of a one-dimensional object array
// of bytes, without copying them. A value of another type is an error.
func ByteSlices(v Value) ([][]byte, error) {
	return elements[[]byte](v, "bytes")
}

// Dicts returns the elements of a list or tuple of dicts, such as GenEval's meta_datas. A value of
// another type is an error.
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
