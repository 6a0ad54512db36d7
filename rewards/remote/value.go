package remote

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/rewardloop/rewardloop/internal/pickle"
	"github.com/rewardloop/rewardloop/internal/service"
	"github.com/rewardloop/rewardloop/rewards"
)

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
		return 0, fmt.Errorf("%w: the score is an integer beyond 2^53", rewards.InvalidScore)
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
		return nil, fmt.Errorf("%d steps, want at most %d", len(p), maxDepth)
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
