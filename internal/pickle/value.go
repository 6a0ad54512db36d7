package pickle

import (
	"fmt"
	"math/big"
)

// Value is a decoded Python value, one of
//
//	nil          None
//	bool         bool, and NumPy's bool_ scalar
//	int64        int, and NumPy's integer scalars
//	*big.Int     int beyond 64 bits, at most 20 digits (protocol 1 only)
//	float64      float, and NumPy's floating scalars
//	complex128   complex
//	string       str, and NumPy's str_ scalar; always valid UTF-8
//	[]byte       bytes and bytearray; aliases the input
//	*List        list
//	*Tuple       tuple
//	*Dict        dict, OrderedDict and defaultdict
//	*NDArray     numpy.ndarray
//
// A decoded value contains no cycle. It may contain the same pointer twice.
type Value = any

// List is a Python list.
type List struct {
	Items []Value
}

// Tuple is a Python tuple.
type Tuple struct {
	Items []Value
}

// Pair is one entry of a Dict.
type Pair struct {
	Key   Value
	Value Value
}

// Dict is a Python dict, in its order. A decoded key is nil, a bool, an int64, a float64 or a
// string, and no two keys are equal in Python.
type Dict struct {
	Items []Pair
}

// Get returns the value of a str key. It searches the entries linearly.
func (d *Dict) Get(key string) (Value, bool) {
	for _, p := range d.Items {
		if k, ok := p.Key.(string); ok && k == key {
			return p.Value, true
		}
	}
	return nil, false
}

// dictKey maps a key to a form in which Python's equal keys are equal
// (1 == 1.0 == True). ok is false for types that are refused as keys.
func dictKey(key Value) (canonical any, ok bool) {
	switch k := key.(type) {
	case nil, string, int64:
		return k, true
	case bool:
		if k {
			return int64(1), true
		}
		return int64(0), true
	case float64:
		if k >= -1<<63 && k < 1<<63 && k == float64(int64(k)) {
			return int64(k), true
		}
		return k, true
	}
	return nil, false
}

// TypeName returns the Python name of a value's type, for error messages.
func TypeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case complex128:
		return "complex"
	case string:
		return "str"
	case []byte:
		return "bytes"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *NDArray:
		return "ndarray"
	case global:
		return "class or function " + string(v)
	case *dtype:
		return "numpy.dtype"
	}
	return fmt.Sprintf("Go %T", v)
}
