package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// jsonText is one value inside a JSON text that json.Valid has accepted, and whose
// bytes are valid UTF-8. It aliases the text: a body may hold hundreds of MiB of
// base64, which encoding/json would copy at every level, and encoding/json takes
// "Prompt" for "prompt" and the second of two for the first.
type jsonText []byte

var errJSON = errors.New("not JSON")

// parseJSON checks a text as a whole.
func parseJSON(b []byte) (jsonText, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: invalid UTF-8", errJSON)
	}
	if !json.Valid(b) {
		return nil, fmt.Errorf("%w: %w", errJSON, json.Unmarshal(b, new(json.RawMessage))) // says where
	}
	return trim(b), nil
}

func trim(b []byte) jsonText {
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && space(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// kind is the first byte: '{', '[', '"', 't', 'f', 'n', or of a number.
func (t jsonText) kind() byte { return t[0] }

// skip returns the end of the value that begins at i.
func (t jsonText) skip(i int) int {
	depth := 0
	for ; i < len(t); i++ {
		switch t[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case '"':
			for i++; t[i] != '"'; i++ {
				if t[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// next skips white space and one byte of punctuation.
func (t jsonText) next(i int, punctuation byte) int {
	for i < len(t) && space(t[i]) {
		i++
	}
	if i < len(t) && t[i] == punctuation {
		i++
	}
	for i < len(t) && space(t[i]) {
		i++
	}
	return i
}

// object calls f for every member. A repeated name is an error.
func (t jsonText) object(f func(key string, v jsonText) error) error {
	if t.kind() != '{' {
		return fmt.Errorf("%w object: found %s", errWant, t.short())
	}
	seen := map[string]bool{}
	for i := t.next(1, 0); i < len(t)-1; {
		end := t.skip(i)
		key, err := t[i:end].str()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%q is there twice", clip(key))
		}
		seen[key] = true
		i = t.next(end, ':')
		end = t.skip(i)
		if err := f(key, t[i:end]); err != nil {
			return fmt.Errorf("%s: %w", clip(key), err)
		}
		i = t.next(end, ',')
	}
	return nil
}

// array calls f for every element.
func (t jsonText) array(f func(i int, v jsonText) error) error {
	if t.kind() != '[' {
		return fmt.Errorf("%w array: found %s", errWant, t.short())
	}
	n := 0
	for i := t.next(1, 0); i < len(t)-1; n++ {
		end := t.skip(i)
		if err := f(n, t[i:end]); err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		i = t.next(end, ',')
	}
	return nil
}

var errWant = errors.New("want an")

// str is the value of a string.
func (t jsonText) str() (string, error) {
	if t.kind() != '"' {
		return "", fmt.Errorf("want a string, found %s", t.short())
	}
	var s string
	err := json.Unmarshal(t, &s)
	return s, err
}

// integer is the value of an integer from lo to hi.
func (t jsonText) integer(lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(string(t), 10, 64)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("want an integer from %d to %d, found %s", lo, hi, t.short())
	}
	return n, nil
}

// number is the value of a number.
func (t jsonText) number() (float64, error) {
	f, err := strconv.ParseFloat(string(t), 64)
	if err != nil {
		return 0, fmt.Errorf("want a number, found %s", t.short())
	}
	return f, nil
}

func (t jsonText) short() string { return clip(string(t[:min(len(t), 100)])) }
