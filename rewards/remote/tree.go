package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

// maxDepth bounds the nesting of a JSON value, an answer's or a request's.
const maxDepth = 64

// parseJSON reads one JSON value into the types of package pickle, so that the
// answers of all protocols are read alike: objects keep their order and become
// *pickle.Dict, arrays *pickle.List, numbers json.Number. Of a name that occurs
// twice the last value counts, as in Python.
func parseJSON(data []byte) (pickle.Value, error) {
	if json.Valid(data) {
		v, _, err := parseValid(skip(data), 0)
		return v, err
	}
	return parseSlowly(data)
}

// parseSlowly is parseJSON by a Decoder, which takes ten times as long and says what is
// wrong, and where.
func parseSlowly(data []byte) (pickle.Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (pickle.Value, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch t {
	case json.Delim('['):
		list := &pickle.List{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list.Items = append(list.Items, v)
		}
		return list, closing(d)
	case json.Delim('{'):
		return parseObject(d, depth)
	}
	return t, nil
}

func parseObject(d *json.Decoder, depth int) (pickle.Value, error) {
	dict, at := &pickle.Dict{}, map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("not JSON: %w", err)
		}
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		name, _ := key.(string) // Token gives nothing else in the place of a name
		if i, again := at[name]; again {
			dict.Items[i].Value = v
			continue
		}
		at[name] = len(dict.Items)
		dict.Items = append(dict.Items, pickle.Pair{Key: name, Value: v})
	}
	return dict, closing(d)
}

func closing(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// withNaN lets NaN and infinities through, which Python writes into JSON: outside
// of strings they become 1e999, a number that number refuses. Without any the
// result is data itself.
func withNaN(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	out := make([]byte, 0, len(data))
	inString := false
	for i := 0; i < len(data); i++ {
		rest := data[i:]
		switch {
		case inString && data[i] == '\\' && len(rest) > 1:
			out = append(out, data[i], data[i+1])
			i++
			continue
		case data[i] == '"':
			inString = !inString
		case !inString && bytes.HasPrefix(rest, []byte("NaN")):
			out, i = append(out, "1e999"...), i+len("NaN")-1
			continue
		case !inString && bytes.HasPrefix(rest, []byte("Infinity")):
			out, i = append(out, "1e999"...), i+len("Infinity")-1
			continue
		}
		out = append(out, data[i])
	}
	return out
}

// maxExact is 2^53: from there on a float64 no longer holds every integer.
const maxExact = 1 << 53

// number returns a score or an extra field as float64. Only finite numbers are: a
// bool or a string is none, and an integer beyond 2^53 would become another one.
// The error is of class InvalidScore.
func number(v pickle.Value) (float64, error) {
	if a, ok := v.(*pickle.NDArray); ok && len(a.Shape) == 0 && a.Len() == 1 {
		v = a.At(0) // numpy.array(0.5)
	}
	var f float64
	whole := true
	switch n := v.(type) {
	case float64:
		f, whole = n, false
	case int64:
		f = float64(n)
	case *big.Int:
		f = math.MaxFloat64
	case json.Number:
		var err error
		if f, err = n.Float64(); err != nil {
			f = math.Inf(1) // out of range: the only fault that a number of JSON can have
		}
		whole = !strings.ContainsAny(n.String(), ".eE") // 1e999 is a float
	default:
		return 0, fmt.Errorf("%w: %s, want a number", rewards.InvalidScore, typeName(v))
	}
	switch {
	case whole && math.Abs(f) > maxExact:
		return 0, fmt.Errorf("%w: an integer beyond 2^53 is no score", rewards.InvalidScore)
	case math.IsNaN(f) || math.IsInf(f, 0):
		return 0, fmt.Errorf("%w: the score is not finite", rewards.InvalidScore)
	}
	return f, nil
}

// typeName is pickle's, with the number of JSON and its null.
func typeName(v pickle.Value) string {
	if _, ok := v.(json.Number); ok {
		return "number"
	}
	return pickle.TypeName(v)
}

// items returns the elements of a list, a tuple or an array of one dimension.
func items(v pickle.Value) ([]pickle.Value, bool) {
	a, ok := v.(*pickle.NDArray)
	if !ok || a.DType == "O" {
		return pickle.Items(v)
	}
	if len(a.Shape) != 1 {
		return nil, false
	}
	out := make([]pickle.Value, a.Len())
	for i := range out {
		out[i] = a.At(i)
	}
	return out, true
}

// path is where something stands in an answer: names and indices, joined by dots.
type path []string

// parsePath reads "rewards.0.score"; the empty text is the answer itself.
func parsePath(text string) (path, error) {
	if text == "" {
		return nil, nil
	}
	p := path(strings.Split(text, "."))
	if len(p) > maxDepth {
		return nil, fmt.Errorf("%d steps, at most %d", len(p), maxDepth)
	}
	if slices.Contains(p, "") {
		return nil, fmt.Errorf("%q has an empty step", text)
	}
	return p, nil
}

func (p path) String() string { return strings.Join(p, ".") }

// look follows the path. ok is false where it does not lead.
func (p path) look(v pickle.Value) (found pickle.Value, ok bool) {
	for _, step := range p {
		if d, isDict := v.(*pickle.Dict); isDict {
			if v, ok = d.Get(step); !ok {
				return nil, false
			}
			continue
		}
		list, isList := items(v)
		i, err := strconv.Atoi(step)
		if !isList || err != nil || i < 0 || i >= len(list) {
			return nil, false
		}
		v = list[i]
	}
	return v, true
}

// scalar brings a value to the kind of a declared extra field. ok is false for
// what is missing or of another kind: the field is then absent.
func scalar(v pickle.Value, kind rewards.FieldKind) (out any, ok bool) {
	switch kind {
	case rewards.Bool:
		out, ok = v.(bool)
	case rewards.String:
		var text string
		if text, ok = v.(string); ok {
			out = service.Clip(text, maxExtraText)
		}
	default:
		f, err := number(v)
		out, ok = f, err == nil
	}
	return out, ok
}

// maxExtraText bounds an extra field that is text, in bytes: it becomes a cell of
// a table.
const maxExtraText = 1024

// forPickle turns the numbers of a JSON value into those of Python.
func forPickle(v pickle.Value) pickle.Value {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return nil
		}
		return f
	case *pickle.List:
		out := &pickle.List{Items: make([]pickle.Value, len(v.Items))}
		for i, item := range v.Items {
			out.Items[i] = forPickle(item)
		}
		return out
	case *pickle.Dict:
		out := &pickle.Dict{Items: make([]pickle.Pair, len(v.Items))}
		for i, pair := range v.Items {
			out.Items[i] = pickle.Pair{Key: pair.Key, Value: forPickle(pair.Value)}
		}
		return out
	}
	return v
}
