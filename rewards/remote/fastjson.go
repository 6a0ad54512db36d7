package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/rewardloop/rewardloop/internal/pickle"
)

// parseValid reads the value that a valid JSON text begins with, and returns what
// follows it. White space before it has been skipped.
func parseValid(b []byte, depth int) (pickle.Value, []byte, error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	switch b[0] {
	case '{':
		return validObject(b, depth)
	case '[':
		return validList(b, depth)
	case '"':
		s, rest, err := validString(b)
		return s, rest, err
	case 't':
		return true, b[len("true"):], nil
	case 'f':
		return false, b[len("false"):], nil
	case 'n':
		return nil, b[len("null"):], nil
	}
	n := bytes.IndexFunc(b, func(r rune) bool {
		return (r < '0' || r > '9') && r != '-' && r != '+' && r != '.' && r != 'e' && r != 'E'
	})
	if n < 0 {
		n = len(b)
	}
	return json.Number(b[:n]), b[n:], nil
}

func validList(b []byte, depth int) (pickle.Value, []byte, error) {
	list := &pickle.List{}
	for b = skip(b[1:]); b[0] != ']'; b = skip(b) {
		if b[0] == ',' {
			b = skip(b[1:])
		}
		v, rest, err := parseValid(b, depth+1)
		if err != nil {
			return nil, nil, err
		}
		list.Items, b = append(list.Items, v), rest
	}
	return list, b[1:], nil
}

func validObject(b []byte, depth int) (pickle.Value, []byte, error) {
	dict, at := &pickle.Dict{}, map[string]int{}
	for b = skip(b[1:]); b[0] != '}'; b = skip(b) {
		if b[0] == ',' {
			b = skip(b[1:])
		}
		name, rest, err := validString(b)
		if err != nil {
			return nil, nil, err
		}
		rest = skip(rest)[1:] // the colon
		v, rest, err := parseValid(skip(rest), depth+1)
		if err != nil {
			return nil, nil, err
		}
		b = rest
		if i, again := at[name]; again {
			dict.Items[i].Value = v
			continue
		}
		at[name] = len(dict.Items)
		dict.Items = append(dict.Items, pickle.Pair{Key: name, Value: v})
	}
	return dict, b[1:], nil
}

// validString reads a string. One with escapes, or with what is no UTF-8, is left to
// package json.
func validString(b []byte) (string, []byte, error) {
	plain := true
	n := 1
	for ; b[n] != '"'; n++ {
		if b[n] == '\\' {
			plain = false
			n++
		}
	}
	text, rest := b[:n+1], b[n+1:]
	if plain && utf8.Valid(text) {
		return string(text[1:n]), rest, nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return "", nil, fmt.Errorf("not JSON: %w", err)
	}
	return s, rest, nil
}

// skip leaves white space out.
func skip(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }
