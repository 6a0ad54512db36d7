package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
)

// jsonWriter writes what encoding/json writes with SetEscapeHTML(false).
type jsonWriter struct {
	out []byte
	err error // the first one
}

// appendMessage writes a message the general way: an object whose field "type" comes first.
func appendMessage(out []byte, kind string, v any) ([]byte, error) {
	w := jsonWriter{out: append(append(append(out, `{"type":"`...), kind...), '"')}
	head := len(w.out)
	if w.general(v); w.err != nil {
		return nil, w.err
	}
	if string(w.out[head:]) == "{}" {
		return append(w.out[:head], '}'), nil
	}
	w.out[head] = ',' // in place of the object's own '{'
	return w.out, nil
}

// general writes any value the general way.
func (w *jsonWriter) general(v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		if w.err == nil {
			w.err = err
		}
		return
	}
	w.out = append(w.out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}

func (w *jsonWriter) any(v any) {
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
	case bool:
		w.out = strconv.AppendBool(w.out, v)
	case string:
		w.text(v)
	case float64:
		w.number(v)
	case int64:
		w.out = strconv.AppendInt(w.out, v, 10)
	default:
		w.general(v)
	}
}

// text writes a string; one that is not plain ASCII the general way.
func (w *jsonWriter) text(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.general(s)
			return
		}
	}
	w.out = append(w.out, '"')
	w.out = append(w.out, s...)
	w.out = append(w.out, '"')
}

// number writes a number; very large and very small ones, and what is none, the
// general way.
func (w *jsonWriter) number(v float64) {
	if abs := math.Abs(v); abs != 0 && !(abs >= 1e-6 && abs < 1e21) {
		w.general(v)
		return
	}
	w.out = strconv.AppendFloat(w.out, v, 'f', -1, 64)
}

// writeMap writes a name and a map in the order of its keys.
func writeMap[V any](w *jsonWriter, name string, m map[string]V, value func(V)) {
	keys := make([]string, 0, 16)
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	w.out = append(w.out, name...)
	sep := byte('{')
	for _, k := range keys {
		w.out = append(w.out, sep)
		w.text(k)
		w.out = append(w.out, ':')
		value(m[k])
		sep = ','
	}
	w.out = append(w.out, '}')
}

// appendString writes s as a JSON string in the one form that docs/wire.md
// fixes: short escapes where JSON has them, \u00xx in lower case for the other
// control characters, everything else as it is. It is what Python's
// json.dumps(s, ensure_ascii=False) writes.
func appendString[T string | []byte](out []byte, s T) []byte {
	const hexDigits = "0123456789abcdef"
	out = append(out, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		out = append(out, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			out = append(out, '\\', c)
		case '\b':
			out = append(out, `\b`...)
		case '\f':
			out = append(out, `\f`...)
		case '\n':
			out = append(out, `\n`...)
		case '\r':
			out = append(out, `\r`...)
		case '\t':
			out = append(out, `\t`...)
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(out, s[from:]...), '"')
}
