package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rewardloop/rewardloop/internal/pickle"
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
