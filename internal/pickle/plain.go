package pickle

import (
	"fmt"
	"math/big"
	"strconv"
)

// Plain converts a value to the types of encoding/json, for metadata that is forwarded as JSON:
// nil, bool, int64, *big.Int, float64, string, []any (from lists, tuples and arrays, nested by
// shape) and map[string]any. Keys that are not str become text: numbers in decimal, "true", "false"
// and "null". NaN and infinities stay floats. Bytes, complex numbers, and more than 262,144 values
// in total are errors.
func Plain(v Value) (any, error) {
	p := plainer{left: 1 << 18}
	return p.plain(v)
}

// plainer counts down the values it may still make, because one array is a
// single node to Decode and here as many as it has elements.
type plainer struct {
	left int
}

func (p *plainer) spend(n int) error {
	if n > p.left {
		return fmt.Errorf("%w: too many values for JSON: send large arrays elsewhere than in metadata", errType)
	}
	p.left -= n
	return nil
}

func (p *plainer) plain(v Value) (any, error) {
	if err := p.spend(1); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64, string:
		return v, nil
	case *List:
		return p.sequence(v.Items)
	case *Tuple:
		return p.sequence(v.Items)
	case *Dict:
		return p.object(v)
	case *NDArray:
		next := 0
		return p.array(v, v.Shape, &next)
	}
	return nil, fmt.Errorf("%w: %s has no form in JSON", errType, TypeName(v))
}

func (p *plainer) sequence(items []Value) (any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		var err error
		if out[i], err = p.plain(item); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return out, nil
}

func (p *plainer) object(d *Dict) (any, error) {
	out := make(map[string]any, len(d.Items))
	for _, pair := range d.Items {
		key := keyText(pair.Key)
		if _, taken := out[key]; taken {
			return nil, fmt.Errorf("%w: two keys of a dict are both %q in JSON", errType, key)
		}
		value, err := p.plain(pair.Value)
		if err != nil {
			return nil, fmt.Errorf("[%q]: %w", key, err)
		}
		out[key] = value
	}
	return out, nil
}

// array nests the elements by shape; next is the index of the next element.
func (p *plainer) array(a *NDArray, shape []int, next *int) (any, error) {
	if len(shape) == 0 {
		*next++
		return p.plain(a.At(*next - 1))
	}
	if err := p.spend(shape[0]); err != nil {
		return nil, err
	}
	out := make([]any, shape[0])
	for i := range out {
		var err error
		if out[i], err = p.array(a, shape[1:], next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keyText writes a dict key as the key of a JSON object.
func keyText(key Value) string {
	switch k := key.(type) {
	case string:
		return k
	case bool:
		return strconv.FormatBool(k)
	case int64:
		return strconv.FormatInt(k, 10)
	case float64:
		return strconv.FormatFloat(k, 'g', -1, 64)
	}
	return "null"
}
