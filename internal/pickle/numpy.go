package pickle

import (
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// maxDims is NumPy 2's own limit of dimensions.
const maxDims = 64

// dtype is numpy.dtype on its way into an array or scalar. It is no value.
type dtype struct {
	code  string // "b1", "u1", "i4", "i8", "f2", "f4", "f8", "U12", "O"
	size  int    // bytes of an element; 0 for O
	built bool   // BUILD has checked its state
}

// kind is the first letter of the code.
func (t *dtype) kind() byte { return t.code[0] }

// newDType reads dtype(code, align, copy).
func (d *decoder) newDType(args []Value) (Value, error) {
	if len(args) != 3 || !isFlag(args[1]) || !isFlag(args[2]) {
		return nil, d.forbidden("numpy.dtype is read only with a code and two flags")
	}
	code, ok := args[0].(string)
	if !ok {
		return nil, d.forbidden("numpy.dtype of a %s: want str", TypeName(args[0]))
	}
	switch code {
	case "b1", "u1", "i4", "i8", "f2", "f4", "f8":
		return &dtype{code: code, size: int(code[1] - '0')}, nil
	case "O8":
		return &dtype{code: "O"}, nil
	}
	if len(code) > 1 && code[0] == 'U' {
		if n, err := strconv.ParseUint(code[1:], 10, 28); err == nil {
			return &dtype{code: "U" + strconv.FormatUint(n, 10), size: 4 * int(n)}, nil
		}
	}
	return nil, d.forbidden("dtype %.30q: use bool, uint8, int32, int64, float16, float32, float64, str or object", code)
}

// isFlag reports whether v is a bool, which old versions of NumPy write as 0
// or 1.
func isFlag(v Value) bool {
	switch v {
	case true, false, int64(0), int64(1):
		return true
	}
	return false
}

// build carries out BUILD, which hands a state to a dtype or an array.
func (d *decoder) build() error {
	popped, err := d.pop(1)
	if err != nil {
		return err
	}
	target, err := d.top()
	if err != nil {
		return err
	}
	state, ok := popped[0].(*Tuple)
	if !ok {
		return d.forbidden("a state of type %s: want a tuple", TypeName(popped[0]))
	}
	switch target := target.(type) {
	case *dtype:
		return d.buildDType(target, state.Items)
	case *NDArray:
		return d.buildArray(target, state.Items)
	}
	return d.forbidden("hands a state to a %s, want a NumPy dtype or array", TypeName(target))
}

// buildDType checks the state, which is version 3, the byte order, the base,
// names and fields of a structure (all None), size, alignment and flags. It
// adds nothing to the code but the byte order.
func (d *decoder) buildDType(t *dtype, state []Value) error {
	switch {
	case t.built:
		return d.malformed("numpy.dtype gets a second state")
	case len(state) != 8 || state[0] != Value(int64(3)):
		return d.forbidden("numpy.dtype with a state of another version, such as metadata: use a plain dtype")
	case state[1] != Value("<") && state[1] != Value("|"):
		return d.forbidden("dtype %s is not little-endian: use arr.astype(arr.dtype.newbyteorder('<'))", t.code)
	case state[2] != nil || state[3] != nil || state[4] != nil:
		return d.forbidden("dtype %s has fields or a shape: use a plain dtype", t.code)
	}
	if size, ok := state[5].(int64); !ok || (size != -1 && size != int64(t.size)) {
		return d.malformed("the size of dtype %s differs from the size of its code", t.code)
	}
	t.built = true
	return nil
}

// newArray reads _reconstruct(ndarray, (0,), b"b"), an array that BUILD fills.
func (d *decoder) newArray(args []Value) (Value, error) {
	if len(args) != 3 || args[0] != Value(globalNDArray) {
		return nil, d.forbidden("_reconstruct is read only for numpy.ndarray: use np.asarray")
	}
	return &NDArray{}, nil
}

// buildArray takes the state (1, shape, dtype, is Fortran order, data).
func (d *decoder) buildArray(a *NDArray, state []Value) error {
	switch {
	case a.DType != "":
		return d.malformed("array gets a second state")
	case len(state) != 5 || state[0] != Value(int64(1)):
		return d.forbidden("array with a state of another version")
	case state[3] != Value(false):
		return d.forbidden("array is not in C order: use np.ascontiguousarray")
	}
	return d.fill(a, state[1], state[2], state[4])
}

// fromBuffer reads _frombuffer(buffer, dtype, shape, "C"), the form of
// protocol 5.
func (d *decoder) fromBuffer(args []Value) (Value, error) {
	if len(args) < 4 {
		return nil, d.malformed("_frombuffer with %d arguments, want 4", len(args))
	}
	if len(args) > 4 || args[3] != Value("C") {
		return nil, d.forbidden("array is not in C order: use np.ascontiguousarray")
	}
	a := &NDArray{}
	if err := d.fill(a, args[2], args[1], args[0]); err != nil {
		return nil, err
	}
	return a, nil
}

// fill completes an array after comparing its shape with its data.
func (d *decoder) fill(a *NDArray, shape, typ, data Value) error {
	t, ok := typ.(*dtype)
	if !ok {
		return d.malformed("array of dtype %s, want a numpy.dtype", TypeName(typ))
	}
	dims, count, err := d.shape(shape)
	if err != nil {
		return err
	}
	if t.kind() == 'O' {
		list, ok := data.(*List)
		if !ok || len(list.Items) != count {
			return d.malformed("object array of %d elements over other data: want a list of as many", count)
		}
		a.DType, a.Shape, a.Objects = t.code, dims, list.Items[:count:count]
		return nil
	}
	raw, ok := data.([]byte)
	if !ok {
		return d.malformed("array data is a %s, want bytes", TypeName(data))
	}
	if hi, size := bits.Mul64(uint64(count), uint64(t.size)); hi != 0 || size != uint64(len(raw)) {
		return d.malformed("array of %d elements of dtype %s over %d bytes", count, t.code, len(raw))
	}
	if t.kind() == 'U' {
		if a.Strings, err = d.utf32Strings(raw, t.size, count); err != nil {
			return err
		}
		raw = nil
	}
	a.DType, a.Shape, a.Data = t.code, dims, raw
	return nil
}

// shape reads a tuple of dimensions and the number of elements.
func (d *decoder) shape(v Value) (dims []int, count int, err error) {
	tuple, ok := v.(*Tuple)
	if !ok || len(tuple.Items) > maxDims {
		return nil, 0, d.malformed("array shape is a %s, want a tuple of at most %d dimensions", TypeName(v), maxDims)
	}
	dims = make([]int, 0, len(tuple.Items))
	count, zero := 1, false
	for _, item := range tuple.Items {
		n, ok := item.(int64)
		if !ok || n < 0 || n > math.MaxInt32 {
			return nil, 0, d.malformed("array shape contains %s, want ints from 0 to 2^31-1", describe(item))
		}
		dims = append(dims, int(n))
		if n == 0 {
			zero = true
			continue
		}
		if int64(count) > math.MaxInt32/n {
			return nil, 0, d.malformed("array of more than 2^31-1 elements")
		}
		count *= int(n)
	}
	if zero {
		count = 0
	}
	return dims, count, nil
}

// describe shows an int by its value and all else by its type.
func describe(v Value) string {
	if n, ok := v.(int64); ok {
		return strconv.FormatInt(n, 10)
	}
	return TypeName(v)
}

// scalar reads scalar(dtype, bytes) and makes a plain Go value of it.
func (d *decoder) scalar(args []Value) (Value, error) {
	if len(args) != 2 {
		return nil, d.malformed("scalar with %d arguments, want 2", len(args))
	}
	t, okType := args[0].(*dtype)
	raw, okRaw := args[1].([]byte)
	switch {
	case !okType || !okRaw || t.kind() == 'O':
		return nil, d.forbidden("scalar is read only with a dtype of numbers or str and bytes: use .item()")
	case len(raw) != t.size:
		return nil, d.malformed("scalar of dtype %s over %d bytes", t.code, len(raw))
	case t.kind() != 'U':
		return element(t.code, raw), nil
	}
	texts, err := d.utf32Strings(raw, t.size, 1)
	if err != nil {
		return nil, err
	}
	return texts[0], nil
}

// utf32Strings decodes count strings of size bytes of UTF-32LE, each padded
// with NULs. All share one allocation.
func (d *decoder) utf32Strings(raw []byte, size, count int) ([]string, error) {
	if err := d.count(count); err != nil {
		return nil, err
	}
	if err := d.charge(len(raw)); err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(raw)/2)
	ends := make([]int, count)
	for i := range count {
		units := raw[i*size : (i+1)*size]
		for len(units) > 0 && littleUint(units[len(units)-4:]) == 0 {
			units = units[:len(units)-4]
		}
		for ; len(units) > 0; units = units[4:] {
			r := littleUint(units[:4])
			if r > utf8.MaxRune || !utf8.ValidRune(rune(r)) {
				return nil, d.malformed("string %d of the array contains 0x%x, which is not a character", i, r)
			}
			text = utf8.AppendRune(text, rune(r))
		}
		ends[i] = len(text)
	}
	all, start := string(text), 0
	texts := make([]string, count)
	for i, end := range ends {
		texts[i] = all[start:end]
		start = end
	}
	return texts, nil
}
