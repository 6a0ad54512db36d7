package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
)

// exactMap is a map of scalars, or of anything that JSON can express, whose numbers come out
// of JSON as the type that went in: a float64 is written with a point or an exponent, and a
// number without either is an int64. Of what is neither scalar nor map[string]any or []any
// only the JSON comes through.
type exactMap map[string]any

var errNotFinite = errors.New("a number is not finite")

// MarshalJSON implements json.Marshaler.
func (m exactMap) MarshalJSON() ([]byte, error) {
	w := jsonWriter{}
	w.exact(map[string]any(m))
	return w.out, w.err
}

// exact writes a value with the types of its numbers.
func (w *jsonWriter) exact(v any) {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			w.err = errNotFinite
			return
		}
		at := len(w.out)
		if w.out = strconv.AppendFloat(w.out, v, 'g', -1, 64); !bytes.ContainsAny(w.out[at:], ".e") {
			w.out = append(w.out, ".0"...)
		}
	case []any:
		if v == nil {
			w.out = append(w.out, "null"...)
			return
		}
		w.out = append(w.out, '[')
		for i, e := range v {
			if i > 0 {
				w.out = append(w.out, ',')
			}
			w.exact(e)
		}
		w.out = append(w.out, ']')
	case map[string]any:
		switch {
		case v == nil:
			w.out = append(w.out, "null"...)
		case len(v) == 0:
			w.out = append(w.out, "{}"...)
		default:
			writeMap(w, "", v, w.exact)
		}
	default:
		w.any(v)
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *exactMap) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	for k, e := range v {
		v[k] = typed(e)
	}
	*m = v
	return nil
}

// typed puts float64 and int64 in place of every json.Number; one that is beyond both stays.
func typed(v any) any {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(string(v), ".eE") {
			if f, err := v.Float64(); err == nil {
				return f
			}
		} else if n, err := v.Int64(); err == nil && v != "-0" {
			return n
		}
	case []any:
		for i, e := range v {
			v[i] = typed(e)
		}
	case map[string]any:
		for k, e := range v {
			v[k] = typed(e)
		}
	}
	return v
}
